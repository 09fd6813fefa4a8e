"""Shapes that hold others: lists, mappings by name, and tables of known keys."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from lumbridge_compute.store.registry_shapes import (
    Reader,
    Schema,
    Shape,
    Text,
    describe,
    shown,
)
from lumbridge_compute.store.yaml_values import MappingNode, Node, Scalar, Sequence, join_path

T = TypeVar("T")


class ListOf(NamedTuple, Generic[T]):
    """A list of `least` to `most` values; None stands for one that has a fault."""

    item: Shape[T]
    wants: str
    least: int = 0
    most: int | None = None
    unique: bool = False

    def read(self, reader: Reader, node: Node, path: str) -> tuple[T | None, ...] | None:
        if not isinstance(node, Sequence):
            reader.fault(node, path, f"wants {self.wants}, found {describe(node)}")
            return None
        if len(node.items) < self.least:
            reader.fault(node, path, f"wants {self.wants}, found an empty list")
        if self.most is not None and len(node.items) > self.most:
            found = f"found {len(node.items)}"
            reader.fault(node, path, f"wants {self.wants}, at most {self.most}, {found}")
            return None
        values = tuple(
            self.item.read(reader, item, join_path(path, index))
            for index, item in enumerate(node.items)
        )
        if self.unique:
            self._refuse_twins(reader, node, path, values)
        return values

    def dump(self, value: tuple[T | None, ...]) -> object:
        return [self.item.dump(item) for item in value if item is not None]

    def schema(self) -> Schema:
        schema: Schema = {"type": "array", "items": self.item.schema()}
        if self.least:
            schema["minItems"] = self.least
        if self.most is not None:
            schema["maxItems"] = self.most
        if self.unique:
            schema["uniqueItems"] = True
        return schema

    @staticmethod
    def _refuse_twins(
        reader: Reader, node: Sequence, path: str, values: tuple[T | None, ...]
    ) -> None:
        first: dict[T, int] = {}
        for index, value in enumerate(values):
            if value is not None and first.setdefault(value, index) != index:
                place = join_path(path, index)
                message = f"{value!r} stands here twice, first as [{first[value]}]"
                reader.fault(node.items[index], place, message, "keep one of the two")


class MapOf(NamedTuple, Generic[T]):
    """A mapping with names of the operator's own; values that have a fault are left out."""

    key: Text[str]
    value: Shape[T]
    wants: str

    def read(self, reader: Reader, node: Node, path: str) -> dict[str, T] | None:
        if not isinstance(node, MappingNode):
            reader.fault(node, path, f"wants {self.wants}, found {describe(node)}")
            return None
        values: dict[str, T] = {}
        for name, entry in node.entries.items():
            below = join_path(path, name)
            if not self.key.fits(name):
                message = f"wants {self.key.wants} as key, found {shown(name)}"
                reader.fault(entry.key, below, message, self.key.hint)
            value = self.value.read(reader, entry.value, below)
            if value is not None:
                values[name] = value
        return values

    def dump(self, value: Mapping[str, T]) -> object:
        return {name: self.value.dump(item) for name, item in value.items()}

    def schema(self) -> Schema:
        return {
            "type": "object",
            "propertyNames": self.key.schema(),
            "additionalProperties": self.value.schema(),
        }


class Field(NamedTuple):
    """One key of a Table.  `attribute` is where its value stands in what the table describes."""

    key: str
    attribute: str
    shape: Shape[Any]
    description: str
    required: bool = False


Values = dict[str, Any]


class Table(NamedTuple):
    """A mapping whose keys we know.

    `blank` is a value that has the defaults; `check` judges the values together, by attribute;
    `rules` is what the schema says of them.
    """

    wants: str
    fields: tuple[Field, ...]
    blank: object = None
    check: Callable[[Reader, MappingNode, str, Values], None] | None = None
    rules: Mapping[str, object] | None = None

    def read(self, reader: Reader, node: Node, path: str) -> Values | None:
        """The values by attribute, those left out that are not given or have a fault."""
        if not isinstance(node, MappingNode):
            reader.fault(node, path, f"wants {self.wants}, found {describe(node)}")
            return None
        known = {field.key: field for field in self.fields}
        for key, entry in node.entries.items():
            if key not in known:
                self._refuse_unknown(reader, entry.key, path)
        values: Values = {}
        for field in self.fields:
            if field.key in node.entries:
                below = join_path(path, field.key)
                value = field.shape.read(reader, node.entries[field.key].value, below)
                if value is not None:
                    values[field.attribute] = value
            elif field.required:
                reader.fault(node, path, f"the key {field.key!r} is missing")
        if self.check is not None:
            self.check(reader, node, path, values)
        return values

    def dump(self, value: object) -> dict[str, object]:
        """The keys that differ from their defaults, and the required ones."""
        document: dict[str, object] = {}
        for field in self.fields:
            get = operator.attrgetter(field.attribute)
            if field.required or get(value) != get(self.blank):
                dumped = field.shape.dump(get(value))
                # What differs within a record may be said by another key of ours.
                if dumped != {} or not isinstance(field.shape, Record):
                    document[field.key] = dumped
        return document

    def schema(self) -> Schema:
        schema: Schema = {
            "type": "object",
            "additionalProperties": False,
            "properties": {field.key: self._property(field) for field in self.fields},
        }
        required = [field.key for field in self.fields if field.required]
        if required:
            schema["required"] = required
        return {**schema, **(self.rules or {})}

    def _property(self, field: Field) -> Schema:
        schema = {"description": field.description, **field.shape.schema()}
        if self.blank is not None and not field.required:
            default = operator.attrgetter(field.attribute)(self.blank)
            if default not in (None, "", ()) and not hasattr(default, "__dataclass_fields__"):
                schema["default"] = field.shape.dump(default)
        return schema

    def _refuse_unknown(self, reader: Reader, key: Scalar, path: str) -> None:
        names = [field.key for field in self.fields]
        hint = reader.did_you_mean(key.text, names) or f"known here: {', '.join(names)}"
        reader.fault(key, join_path(path, key.text), f"unknown key {shown(key.text)}", hint)


class Record(NamedTuple, Generic[T]):
    """A Table whose values make one object; None where any of them has a fault."""

    table: Table
    make: Callable[..., T]

    def read(self, reader: Reader, node: Node, path: str) -> T | None:
        before = len(reader.faults)
        values = self.table.read(reader, node, path)
        return self.make(**values) if values is not None and len(reader.faults) == before else None

    def dump(self, value: T) -> object:
        return self.table.dump(value)

    def schema(self) -> Schema:
        return self.table.schema()
