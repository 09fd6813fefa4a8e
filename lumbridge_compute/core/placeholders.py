"""`${port}` and its like: found, checked and replaced (DESIGN section 4)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

NAMES = ("port", "marker", "name", "root")
"""What may stand in `${}` beside `env:NAME`."""

_VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*"
_TOKEN = re.compile(r"\$\$\{|\$\{([^}]*)\}|\$\{")

PATTERN = r"^([^$]|\$(?!\$?\{)|\$\$\{|\$\{(" + "|".join(NAMES) + f"|env:{_VARIABLE}" + r")\})*$"
"""Matches, in Python and in JSON Schema, the texts in which every placeholder is known."""


class BadPlaceholder(Exception):
    """A placeholder that nothing can replace.

    `placeholder` is what was written, "${prot}", and `reason` what is wrong with it.  `variable`
    is the name of an environment variable where the placeholder is good and that one is not set.
    """

    def __init__(self, placeholder: str, reason: str, variable: str | None = None) -> None:
        super().__init__(f"{placeholder} {reason}")
        self.placeholder = placeholder
        self.reason = reason
        self.variable = variable


def placeholders(text: str) -> tuple[str, ...]:
    """The names in the placeholders of `text`, in order: ("port", "env:HF_TOKEN").

    Raises BadPlaceholder for the first one that is unknown or has no end.
    """
    found: list[str] = []

    def note(name: str) -> str:
        found.append(name)
        return ""

    _substitute(text, note)
    return tuple(found)


def expand(
    text: str,
    names: Mapping[str, str],
    environ: Mapping[str, str],
    encode: Callable[[str], str] | None = None,
) -> str:
    """`text` with each placeholder replaced, once: what is put in is not looked at again.

    `names` holds a value for each of NAMES; `encode` is applied to what is put in.  `$${` becomes
    `${`.

    Raises BadPlaceholder for one that is unknown, has no end, or names a variable that is not in
    `environ`.
    """

    def value(name: str) -> str:
        if not name.startswith("env:"):
            found = names[name]
        elif (variable := name.removeprefix("env:")) in environ:
            found = environ[variable]
        else:
            raise BadPlaceholder(f"${{{name}}}", "is not set in the environment", variable)
        return encode(found) if encode else found

    return _substitute(text, value)


def _substitute(text: str, value: Callable[[str], str]) -> str:
    def replaced(match: re.Match[str]) -> str:
        if match.group() == "$${":
            return "${"
        name = match.group(1)
        if name is None:
            raise BadPlaceholder("${", "has no closing }")
        if name not in NAMES and not re.fullmatch(f"env:{_VARIABLE}", name):
            raise BadPlaceholder(f"${{{name}}}", "is not a placeholder")
        return value(name)

    return _TOKEN.sub(replaced, text) if "${" in text else text
