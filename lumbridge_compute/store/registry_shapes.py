"""Shapes of values in the registry: each reads a node, writes it back, and says itself as JSON
Schema, so that the reader and the schema for editors come from one table.  Scalars are here,
lists and mappings in registry_collections.

Patterns are written in the part of regular expressions that Python and ECMA-262 share.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Generic, NamedTuple, Protocol, TypeVar

from lumbridge_compute.core.nearest import nearest
from lumbridge_compute.core.placeholders import NAMES, PATTERN, BadPlaceholder, placeholders
from lumbridge_compute.store.yaml_values import (
    Fault,
    Kind,
    MappingNode,
    Node,
    Scalar,
    Sequence,
)

T = TypeVar("T")
Schema = dict[str, object]

# Comparing a name costs some 50 us: enough for every mistake in a file that a person wrote.
_COMPARISONS = 2000
# A path can have 64 keys: kept whole for each of many faults, they would fill the memory.
_MAX_PATH = 256


class Reader:
    """Collects the faults of one reading."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self._comparisons = _COMPARISONS

    def fault(self, node: Node, path: str, message: str, hint: str | None = None) -> None:
        if len(path) > _MAX_PATH:
            path = f"...{path[-_MAX_PATH:]}"
        self.faults.append(Fault(node.line, node.column, path, message, hint))

    def did_you_mean(self, word: str, options: Collection[str]) -> str | None:
        """A hint with the nearest of `options`, None when none is near."""
        self._comparisons -= len(options)
        found = nearest(word, options) if self._comparisons >= 0 else None
        return f"did you mean {found!r}?" if found else None


class Shape(Protocol[T]):
    """What a value must look like."""

    def read(self, reader: Reader, node: Node, path: str) -> T | None:
        """The value of `node`; None when it has a fault, which `reader` then knows."""
        ...

    def dump(self, value: T) -> object:
        """The plain YAML value that `read` makes `value` of."""
        ...

    def schema(self) -> Schema: ...


class Text(NamedTuple, Generic[T]):
    """One scalar.

    `pattern` fits its whole text, also where it is written as a bare number.  `parse` may raise
    ValueError with what is wrong.  `types` and `number` are its JSON types and the bounds of a
    bare number, for the schema.  `common` is a simpler pattern for what is written most, a part
    of the other, whose compilation takes milliseconds.  `options` are all the texts that fit,
    where these are few.  A text has at most `limit` characters.  A `secret` is not quoted in a
    fault.  In a `filled` text placeholders are checked.
    """

    wants: str
    pattern: str
    parse: Callable[[str], T]
    render: Callable[[T], object]
    kinds: frozenset[Kind] = frozenset({Kind.TEXT})
    types: tuple[str, ...] = ("string",)
    number: Mapping[str, object] | None = None
    common: str | None = None
    options: tuple[str, ...] = ()
    limit: int | None = None
    hint: str | None = None
    secret: bool = False
    filled: bool = False

    def read(self, reader: Reader, node: Node, path: str) -> T | None:
        if not isinstance(node, Scalar) or node.kind not in self.kinds:
            hint = self._hint_for(node)
            reader.fault(node, path, f"wants {self.wants}, found {self._found(node)}", hint)
            return None
        if self.limit is not None and len(node.text) > self.limit:
            message = f"{len(node.text)} characters long, at most {self.limit} can be used"
            reader.fault(node, path, message)
            return None
        if self.filled and not check_placeholders(reader, node, path):
            return None
        if not self.fits(node.text):
            near = reader.did_you_mean(node.text, self.options)
            hint = f"{self.hint}; {near}" if near else self.hint
            reader.fault(node, path, f"wants {self.wants}, found {self._found(node)}", hint)
            return None
        try:
            return self.parse(node.text)
        except ValueError as error:
            reader.fault(node, path, str(error), self.hint)
            return None

    def fits(self, text: str) -> bool:
        """True when `text` has the form of these values."""
        if self.limit is not None and len(text) > self.limit:
            return False
        if self.common is not None and re.fullmatch(self.common, text):
            return True
        return re.fullmatch(self.pattern, text) is not None

    def dump(self, value: T) -> object:
        return self.render(value)

    def schema(self) -> Schema:
        types = self.types[0] if len(self.types) == 1 else list(self.types)
        schema: Schema = {"type": types, **(self.number or {})}
        if self.options:
            schema["enum"] = list(self.options)
        elif "string" in self.types:
            schema["pattern"] = self.pattern
        if self.limit is not None:
            schema["maxLength"] = self.limit
        if self.filled:
            schema["allOf"] = [{"pattern": PATTERN}]
        return schema

    def _found(self, node: Node) -> str:
        if isinstance(node, Scalar) and node.kind in (Kind.TEXT, Kind.MERGE):
            return "another text" if self.secret else shown(node.text)
        return describe(node)

    def _hint_for(self, node: Node) -> str | None:
        if not isinstance(node, Scalar):
            return self.hint
        if node.kind is Kind.NULL:
            return "give it a value, or leave the key out"
        return f'put it in quotes: "{node.text}"' if Kind.TEXT in self.kinds else self.hint


def check_placeholders(reader: Reader, node: Scalar, path: str, text: str | None = None) -> bool:
    """True when every placeholder in `text` (that of the node by default) is a known one."""
    try:
        placeholders(node.text if text is None else text)
    except BadPlaceholder as error:
        name = error.placeholder.strip("${}")
        hint = reader.did_you_mean(name, NAMES) or "for a literal ${ write $${"
        reader.fault(node, path, f"{shown(error.placeholder)} {error.reason}", hint)
        return False
    return True


def describe(node: Node) -> str:
    """What stands there instead, in words."""
    if isinstance(node, MappingNode):
        return "a mapping"
    if isinstance(node, Sequence):
        return "a list"
    if node.kind is Kind.NULL:
        return "nothing"
    return f"{node.kind} ({node.text})" if node.kind is not Kind.TEXT else "a text"


def shown(text: str) -> str:
    """`text` in quotes, bounded, and fit for a terminal."""
    return ascii(text if len(text) <= 64 else f"{text[:61]}...")


def same(text: str) -> str:
    """`text` as it is."""
    return text
