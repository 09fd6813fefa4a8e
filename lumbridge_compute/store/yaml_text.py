"""Plain values -> YAML text that every YAML reader, of 1.1 and of 1.2, reads alike.

Every text is written in double quotes, so that none turns into another type.  What `plain` of
yaml_values gives is given again by composing the text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

BLOCK_DEPTH = 4
"""Mappings down to this depth stand in lines of their own, deeper ones within one line: a value
that somebody else put into the file grows little by being written anew."""

_PLAIN_KEY = re.compile(r"[a-zA-Z][a-zA-Z0-9._-]{0,63}")
# What YAML 1.1 or 1.2 reads as something else than a text.
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
# The reader takes a longer one for a text.
_MAX_NUMBER_LENGTH = 40
# YAML's limit is 1024 characters; a longer key has to be announced by a question mark.
_MAX_SIMPLE_KEY = 512
_SHORT_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}


def render_yaml(document: Mapping[str, object]) -> str:
    """`document` as YAML text with a line end, in the order of its keys.

    Values are str, int, float, bool, None, sequences of these and mappings with str keys.  A
    surrogate, which YAML can't hold, is spelled out as a text of six characters.
    """
    return "".join(f"{line}\n" for line in _block(document, 0))


def _block(document: Mapping[str, object], depth: int) -> list[str]:
    lines: list[str] = []
    indent = "  " * depth
    for name, value in document.items():
        key = _key(name)
        if isinstance(value, Mapping) and value and depth < BLOCK_DEPTH and key[0] != "?":
            lines += [f"{indent}{key}:", *_block(value, depth + 1)]
        else:
            separator = f"\n{indent}" if key[0] == "?" else ""
            lines.append(f"{indent}{key}{separator}: {_flow(value)}")
    return lines


def _key(name: str) -> str:
    if _PLAIN_KEY.fullmatch(name) and name.lower() not in _WORDS:
        return name
    quoted = _quoted(name)
    return quoted if len(quoted) <= _MAX_SIMPLE_KEY else f"? {quoted}"


def _flow(value: object) -> str:
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_key(key)}: {_flow(item)}' for key, item in value.items())}}}"
    if isinstance(value, Sequence):
        return f"[{', '.join(map(_flow, value))}]"
    return _scalar(value)


def _scalar(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value) if len(str(value)) <= _MAX_NUMBER_LENGTH else hex(value)
    if not isinstance(value, float):
        raise TypeError(f"cannot write a {type(value).__name__} as YAML")
    if math.isnan(value):
        return ".nan"
    if math.isinf(value):
        return ".inf" if value > 0 else "-.inf"
    return repr(value)


def _quoted(text: str) -> str:
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(char: str) -> str:
    code = ord(char)
    if char in _SHORT_ESCAPES:
        return _SHORT_ESCAPES[char]
    if char.isprintable():
        return char
    if 0xD800 <= code <= 0xDFFF:
        return f"\\\\u{code:04x}"
    if code > 0xFFFF:
        return f"\\U{code:08X}"
    return f"\\u{code:04X}" if code > 0xFF else f"\\x{code:02X}"
