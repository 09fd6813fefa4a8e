"""Reading one mapping of state.yaml: the keys that we know, and the rest, which is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

from lumbridge_compute.errors import BadInput
from lumbridge_compute.store.registry_collections import Record, Table
from lumbridge_compute.store.registry_shapes import Shape, describe, shown
from lumbridge_compute.store.yaml_values import (
    Entry,
    Fault,
    Kind,
    MappingNode,
    Node,
    Scalar,
    join_path,
    plain,
    plain_scalar,
)

HINT = (
    "mend .kuda/state.yaml or put a copy back; only when no model of it runs any more, move it "
    "away: an empty file never stands for 'no processes'"
)

T = TypeVar("T")
Read = Callable[[Node, str], T]


class Fields:
    """The entries of one mapping, taken one by one; what is left over is the rest."""

    def __init__(self, node: Node, path: str) -> None:
        if not isinstance(node, MappingNode):
            refuse(node, path, f"wants a mapping, found {describe(node)}")
        self.node = node
        self._path = path
        self._left = dict(node.entries)

    def take(self, key: str, read: Read[T]) -> T:
        """The value of a key that has to be there."""
        if key not in self._left:
            message = f"the key {key!r} is missing, as in a file that was cut off"
            refuse(self.node, self._path, message)
        return read(self._left.pop(key).value, join_path(self._path, key))

    def take_or(self, key: str, read: Read[T], default: T) -> T:
        """The value of a key, or `default` where it is not there."""
        return self.take(key, read) if key in self._left else default

    def rest(self) -> dict[str, Any]:
        """Everything that was not taken, as plain values."""
        return {key: plain(entry.value) for key, entry in self._left.items()}


def refuse(node: Node | None, path: str, message: str, hint: str | None = None) -> NoReturn:
    """Raise BadInput for what stands at `path`."""
    line, column = (node.line, node.column) if node is not None else (0, 0)
    refuse_fault(Fault(line, column, path, message, hint))


def refuse_fault(fault: Fault) -> NoReturn:
    """Raise BadInput for a fault that was found while reading the state."""
    place = f"line {fault.line}, column {fault.column}: " if fault.line else ""
    what = f"{fault.path}: " if fault.path else ""
    raise BadInput(f"cannot read the state: {place}{what}{fault.message}", fault.hint or HINT)


def read_text(node: Node, path: str) -> str:
    """A text that is not empty."""
    if not isinstance(node, Scalar) or node.kind not in (Kind.TEXT, Kind.MERGE):
        refuse(node, path, f"wants a text, found {describe(node)}")
    if not node.text:
        refuse(node, path, "wants a text, found an empty one")
    return node.text


def read_any_text(node: Node, path: str) -> str:
    """A text, also an empty one."""
    return "" if isinstance(node, Scalar) and not node.text else read_text(node, path)


def read_flag(node: Node, path: str) -> bool:
    """true or false."""
    if not isinstance(node, Scalar) or node.kind is not Kind.BOOL:
        refuse(node, path, f"wants true or false, found {describe(node)}")
    return plain_scalar(node) is True


def read_plain_mapping(node: Node, path: str) -> dict[str, Any]:
    """A mapping of whatever it holds."""
    return Fields(node, path).rest()


def whole(wants: str, least: int, most: int) -> Read[int]:
    """Reads a whole number from `least` to `most`; true and false are none."""

    def read(node: Node, path: str) -> int:
        value = plain(node)
        if not isinstance(value, int) or isinstance(value, bool):
            refuse(node, path, f"wants {wants} from {least} to {most}, found {_found(node)}")
        if not least <= value <= most:
            refuse(node, path, f"wants {wants} from {least} to {most}, found {value}")
        return value

    return read


def nullable(read: Read[T]) -> Read[T | None]:
    """Reads null as None, all else by `read`."""

    def read_nullable(node: Node, path: str) -> T | None:
        return None if isinstance(node, Scalar) and node.kind is Kind.NULL else read(node, path)

    return read_nullable


def written_null(read: Read[T]) -> Read[T | None]:
    """As `nullable`, but null has to be written out: a key without a value may have lost it."""

    def read_written(node: Node, path: str) -> T | None:
        if isinstance(node, Scalar) and node.kind is Kind.NULL and not node.text:
            refuse(node, path, "wants null or a mapping, found no value, as in a file cut off here")
        return nullable(read)(node, path)

    return read_written


def split_unknown(shape: Shape[Any], node: Node) -> tuple[Node, dict[str, Any]]:
    """`node` with the keys that `shape` knows, and the others as plain values, nested alike.

    A newer program may have written them; ours acts on what it knows.
    """
    table = shape.table if isinstance(shape, Record) else shape
    if not isinstance(table, Table) or not isinstance(node, MappingNode):
        return node, {}
    known = {field.key: field.shape for field in table.fields}
    entries: dict[str, Entry] = {}
    unknown: dict[str, Any] = {}
    for key, entry in node.entries.items():
        if key not in known:
            unknown[key] = plain(entry.value)
            continue
        inner, below = split_unknown(known[key], entry.value)
        entries[key] = Entry(entry.key, inner)
        if below:
            unknown[key] = below
    return MappingNode(node.line, node.column, entries), unknown


def merged(known: Mapping[str, Any], unknown: Mapping[str, Any]) -> dict[str, Any]:
    """What `split_unknown` has taken apart, together again; a known value wins."""
    together = dict(known)
    for key, value in unknown.items():
        if key not in together:
            together[key] = value
        elif isinstance(value, Mapping) and isinstance(together[key], Mapping):
            together[key] = merged(together[key], value)
    return together


def _found(node: Node) -> str:
    if isinstance(node, Scalar) and node.kind is Kind.TEXT:
        return f"the text {shown(node.text)}"
    return describe(node)
