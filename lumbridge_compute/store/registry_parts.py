"""Parts of a model that are more than one scalar: its command, its texts by name, a JSON body."""

from __future__ import annotations

import enum
import math
from typing import NamedTuple, TypeVar

from lumbridge_compute.core.placeholders import PATTERN
from lumbridge_compute.store.registry_collections import ListOf, MapOf
from lumbridge_compute.store.registry_scalars import ARGUMENT, COMMAND_LINE
from lumbridge_compute.store.registry_shapes import (
    Reader,
    Schema,
    Text,
    check_placeholders,
    describe,
)
from lumbridge_compute.store.yaml_values import (
    Kind,
    MappingNode,
    Node,
    Scalar,
    Sequence,
    join_path,
    plain,
    plain_scalar,
)

E = TypeVar("E", bound=enum.StrEnum)

JSON_SCHEMA: Schema = {
    "anyOf": [
        {"type": ["number", "boolean", "null"]},
        {"type": "string", "pattern": PATTERN},
        {"type": "array", "items": {"$ref": "#/$defs/json"}},
        {
            "type": "object",
            "propertyNames": {"pattern": PATTERN},
            "additionalProperties": {"$ref": "#/$defs/json"},
        },
    ]
}
"""What `#/$defs/json` stands for in the schema of a Body."""


def choice(wants: str, values: type[E]) -> Text[E]:
    """One of the values of an enumeration."""
    options = tuple(member.value for member in values)
    pattern = f"^(?:{'|'.join(options)})$"
    return Text(wants, pattern, values, str, options=options, hint=f"one of {', '.join(options)}")


class Command:
    """An argument list, or a line that is split into one by shell rules."""

    wants = "a list of arguments, or one line"

    def read(self, reader: Reader, node: Node, path: str) -> tuple[str, ...] | None:
        if isinstance(node, Scalar):
            return self._split(reader, node, path)
        arguments = ListOf(ARGUMENT, self.wants, least=1).read(reader, node, path)
        if arguments and arguments[0] == "":
            first = node.items[0] if isinstance(node, Sequence) else node
            reader.fault(first, join_path(path, 0), "the program to run is an empty text")
        return None if arguments is None else tuple(a for a in arguments if a is not None)

    def dump(self, value: tuple[str, ...]) -> object:
        return list(value)

    def schema(self) -> Schema:
        first = {**ARGUMENT.schema(), "minLength": 1}
        listed = {**ListOf(ARGUMENT, "", least=1).schema(), "prefixItems": [first]}
        return {"anyOf": [listed, COMMAND_LINE.schema()]}

    def _split(self, reader: Reader, node: Scalar, path: str) -> tuple[str, ...] | None:
        line = COMMAND_LINE.read(reader, node, path)
        if line is None:
            return None
        import shlex  # few commands are one line

        try:
            arguments = tuple(shlex.split(line))
        except ValueError as error:
            problem = str(error).lower()
            reader.fault(node, path, f"can't be split by shell rules: {problem}")
            return None
        if not arguments or not arguments[0]:
            reader.fault(node, path, "the program to run is an empty text")
        # Quoting can put together what was no placeholder before.
        if not all(check_placeholders(reader, node, path, text) for text in arguments):
            return None
        return arguments


class Pairs(NamedTuple):
    """A mapping of texts, sorted by name: their order means nothing, so it must not differ."""

    pairs: MapOf[str]
    any_case: bool = False

    def read(self, reader: Reader, node: Node, path: str) -> tuple[tuple[str, str], ...] | None:
        values = self.pairs.read(reader, node, path)
        if values is None:
            return None
        if self.any_case and isinstance(node, MappingNode):
            self._refuse_twins(reader, node, path)
        return tuple(sorted(values.items()))

    def dump(self, value: tuple[tuple[str, str], ...]) -> object:
        return self.pairs.dump(dict(value))

    def schema(self) -> Schema:
        return self.pairs.schema()

    @staticmethod
    def _refuse_twins(reader: Reader, node: MappingNode, path: str) -> None:
        seen: dict[str, str] = {}
        for name, entry in node.entries.items():
            first = seen.setdefault(name.lower(), name)
            if first != name:
                message = f"names the same header as {first!r}: capitals do not count there"
                reader.fault(entry.key, join_path(path, name), message, "keep one of the two")


class Body:
    """Any mapping or list, kept as JSON text with its keys sorted."""

    def read(self, reader: Reader, node: Node, path: str) -> str | None:
        if isinstance(node, Scalar):
            message = f"wants a mapping or a list, found {describe(node)}"
            reader.fault(node, path, message, "it is sent as JSON")
            return None
        before = len(reader.faults)
        self._check(reader, node, path)
        if len(reader.faults) > before:
            return None
        import json  # 2 ms that few models need

        return json.dumps(plain(node), sort_keys=True, ensure_ascii=False, separators=(",", ":"))

    def dump(self, value: str) -> object:
        import json  # 2 ms that few models need

        return json.loads(value)

    def schema(self) -> Schema:
        return {"type": ["object", "array"], "$ref": "#/$defs/json"}

    def _check(self, reader: Reader, node: Node, path: str) -> None:
        if isinstance(node, MappingNode):
            for key, entry in node.entries.items():
                check_placeholders(reader, entry.key, join_path(path, key))
                self._check(reader, entry.value, join_path(path, key))
        elif isinstance(node, Sequence):
            for index, item in enumerate(node.items):
                self._check(reader, item, join_path(path, index))
        elif node.kind is Kind.TEXT:
            check_placeholders(reader, node, path)
        elif not math.isfinite(float(plain_scalar(node) or 0)):
            reader.fault(node, path, f"{node.text} has no form in JSON")
