"""JSON Pointer: one place in a JSON document.

Source: RFC 6901, sections 3 and 4.
"""

from __future__ import annotations

import re

_BAD_ESCAPE = re.compile(r"~(?![01])")
_INDEX = re.compile(r"0|[1-9][0-9]{0,17}")


def parse_pointer(text: str) -> tuple[str, ...]:
    """The reference tokens of `text`, unescaped; () names the whole document.

    Raises ValueError with a fragment that says what is wrong.
    """
    if not text:
        return ()
    if not text.startswith("/"):
        raise ValueError("a JSON pointer is empty or starts with '/'")
    if _BAD_ESCAPE.search(text):
        raise ValueError("in a JSON pointer '~' is written '~0' and '/' is written '~1'")
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in text[1:].split("/"))


def resolve(document: object, tokens: tuple[str, ...]) -> object:
    """The value at `tokens` in a document of dicts, lists and scalars.

    Raises LookupError when nothing is there: a missing key, an index that is out of range or not
    plain digits (so "-", "01" and "+1" are nowhere), or a step into a scalar.
    """
    value = document
    for token in tokens:
        if isinstance(value, dict):
            value = value[token]
        elif isinstance(value, list) and _INDEX.fullmatch(token):
            value = value[int(token)]
        else:
            raise LookupError(token)
    return value
