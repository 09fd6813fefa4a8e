"""Nodes of a YAML document that know their place, and the plain values in them.

They are named tuples, because these are defined in a sixth of the time of a frozen dataclass, and
every command pays for that.

Scalars are typed by the core schema of YAML 1.2, so `on`, `no`, `12:30` and dates are texts.

Source: https://yaml.org/spec/1.2.2/#1032-tag-resolution.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from typing import NamedTuple

# Python converts no integer of more than 4300 digits; no number here needs a hundredth of that.
_MAX_NUMBER_LENGTH = 40
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE = frozenset({"true", "True", "TRUE"})
_FALSE = frozenset({"false", "False", "FALSE"})
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(
    r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
    r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
_SIMPLE_KEY = re.compile(r"[\w.\-]{1,64}")


class Fault(NamedTuple):
    """One thing that is wrong with a document.

    `line` and `column` count from 1; both are 0 where no place can be named.  `path` is the path
    of the key ("models.qwen.health.path"), empty for the document as a whole.
    """

    line: int
    column: int
    path: str
    message: str
    hint: str | None = None


class Kind(enum.StrEnum):
    """The type of a scalar, in the words of a message to the operator."""

    TEXT = "a text"
    INT = "a whole number"
    FLOAT = "a number"
    BOOL = "a boolean"
    NULL = "nothing"
    MERGE = "a merge key"


class Scalar(NamedTuple):
    """One value; `text` is what was written, without quotes and with escapes resolved."""

    line: int
    column: int
    text: str
    kind: Kind


class Sequence(NamedTuple):
    """A list."""

    line: int
    column: int
    items: tuple[Node, ...]


class Entry(NamedTuple):
    """One key of a mapping with its value."""

    key: Scalar
    value: Node


class MappingNode(NamedTuple):
    """A mapping with merge keys carried out: entries by the text of their key, in order."""

    line: int
    column: int
    entries: Mapping[str, Entry]


Node = Scalar | Sequence | MappingNode


def plain_kind(text: str) -> Kind:
    """The type of an unquoted, untagged scalar."""
    if text in _NULL:
        return Kind.NULL
    if text in _TRUE or text in _FALSE:
        return Kind.BOOL
    if text == "<<":
        return Kind.MERGE
    if text[0] not in "+-.0123456789" or len(text) > _MAX_NUMBER_LENGTH:
        return Kind.TEXT
    if _INT.fullmatch(text):
        return Kind.INT
    return Kind.FLOAT if _FLOAT.fullmatch(text) else Kind.TEXT


def plain(node: Node) -> object:
    """The node as str, int, float, bool, None, list or dict (with str keys)."""
    if isinstance(node, MappingNode):
        return {key: plain(entry.value) for key, entry in node.entries.items()}
    if isinstance(node, Sequence):
        return [plain(item) for item in node.items]
    return plain_scalar(node)


def plain_scalar(node: Scalar) -> str | int | float | bool | None:
    """The value of one scalar; `010` is ten, as YAML 1.2 has it."""
    text = node.text
    if node.kind is Kind.INT:
        return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
    if node.kind is Kind.FLOAT:
        # Python spells the special values without the dot, and takes no dot before a word.
        special = text.lower().lstrip("+-") in (".inf", ".nan")
        return float(text.replace(".", "") if special else text)
    if node.kind is Kind.BOOL:
        return text in _TRUE
    return None if node.kind is Kind.NULL else text


def join_path(path: str, key: str | int) -> str:
    """`path` extended by a key of a mapping or an index of a list."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    if not _SIMPLE_KEY.fullmatch(key):
        key = ascii(key if len(key) <= 64 else key[:61] + "...")
    return f"{path}.{key}" if path else key
