"""compute.yaml -> Registry, or all of its faults with their places."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from lumbridge_compute.core.registry import GatewaySpec, Registry, Scene
from lumbridge_compute.core.registry_rules import Breach, gateway_breaches, scene_breaches
from lumbridge_compute.errors import BadInput
from lumbridge_compute.store.registry_collections import Values
from lumbridge_compute.store.registry_model import make_model
from lumbridge_compute.store.registry_shapes import Reader
from lumbridge_compute.store.registry_tables import REGISTRY
from lumbridge_compute.store.yaml_nodes import MAX_BYTES, compose
from lumbridge_compute.store.yaml_values import (
    Fault,
    MappingNode,
    Node,
    Sequence,
    join_path,
)

MAX_SHOWN_FAULTS = 200
_MOST_NAMES = 10

_CHECK = "mend the file, then run 'lumbridge-compute check'"
_WRITE_ONE = "write the registry there, or name another root with --root DIR"


def parse_registry(data: bytes) -> tuple[Registry | None, tuple[Fault, ...]]:
    """The registry in the text of compute.yaml, or None with every fault in it, by line."""
    root, faults = compose(data)
    reader = Reader()
    reader.faults.extend(faults)
    if root is None:
        if not faults:
            hint = "begin with 'version: 1', then 'models:' and 'scenes:'"
            reader.faults.append(Fault(1, 1, "", "the file holds no registry", hint))
        return None, tuple(reader.faults)
    values = REGISTRY.read(reader, root, "") or {}
    _check_rules(reader, root, values)
    if reader.faults:
        return None, _in_order(reader.faults)
    return _make(values), ()


def read_registry(path: str) -> Registry:
    """The registry in the file at `path`.

    Raises BadInput, whose message has one line for each fault.
    """
    registry, faults = parse_registry(_read(path))
    if registry is None:
        raise BadInput(render_faults(path, faults), _CHECK)
    return registry


def render_faults(path: str, faults: Iterable[Fault]) -> str:
    """A sentence, then one line for each fault: "FILE:LINE:COLUMN: KEY: what is wrong; hint"."""
    lines = [render_fault(path, fault) for fault in faults]
    count = "1 fault" if len(lines) == 1 else f"{len(lines)} faults"
    more = len(lines) - MAX_SHOWN_FAULTS
    tail = [f"... and {more} more"] if more > 0 else []
    return "\n".join([f"cannot use {path!r}: {count}", *lines[:MAX_SHOWN_FAULTS], *tail])


def render_fault(path: str, fault: Fault) -> str:
    """One line for one fault."""
    place = f"{path}:{fault.line}:{fault.column}" if fault.line else path
    parts = [place, fault.path, fault.message] if fault.path else [place, fault.message]
    line = ": ".join(parts)
    return f"{line}; {fault.hint}" if fault.hint else line


def _read(path: str) -> bytes:
    try:
        # Without O_NONBLOCK a FIFO of that name would hold us up until someone writes to it.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise _unreadable(path, error) from None
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            cause = "it is a folder" if stat.S_ISDIR(mode) else "not a regular file"
            raise BadInput(f"cannot read {path!r}: {cause}", _WRITE_ONE)
        with os.fdopen(os.dup(descriptor), "rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise _unreadable(path, error) from None
    finally:
        os.close(descriptor)


def _unreadable(path: str, error: OSError) -> BadInput:
    cause, hint = error.strerror or str(error), _WRITE_ONE
    if isinstance(error, FileNotFoundError) and os.path.islink(path):
        cause, hint = f"it is a link to {os.readlink(path)!r}, which is not there", "mend the link"
    elif isinstance(error, FileNotFoundError):
        cause = "there is no such file"
    elif isinstance(error, PermissionError):
        cause, hint = "no permission", "run the command as the owner of the root folder"
    elif error.errno == errno.ENXIO:
        cause = "not a regular file"
    return BadInput(f"cannot read {path!r}: {cause}", hint)


def _make(values: Values) -> Registry:
    """The registry of values that have no fault."""
    node: dict[str, Any] = values.get("node", {})
    models = values.get("models", {})
    scenes = values.get("scenes", {})
    return Registry(
        models={name: make_model(name, given) for name, given in models.items()},
        scenes={name: Scene(name, **given) for name, given in scenes.items()},
        memory_floor_bytes=node.get("memory_floor_bytes") or None,
        gateways=tuple(GatewaySpec(**given) for given in node.get("gateways", ())),
    )


def _check_rules(reader: Reader, root: Node, values: Values) -> None:
    for breach in _breaches(root, values):
        node, path = _find(root, breach.path)
        hint = breach.hint
        if breach.unknown is not None:
            near = reader.did_you_mean(breach.unknown, breach.known)
            hint = near or _known_here(breach.known)
        reader.fault(node, path, breach.message, hint)


def _known_here(names: Collection[str]) -> str | None:
    shown = sorted(names)[:_MOST_NAMES]
    more = ", ..." if len(names) > len(shown) else ""
    return f"known here: {', '.join(shown)}{more}" if shown else None


def _breaches(root: Node, values: Values) -> Iterator[Breach]:
    """What is wrong between the values, as far as these could be read."""
    models = _child(root, "models")
    if models is not None and not isinstance(models, MappingNode):
        return
    read = values.get("models", {})
    names = models.entries if models is not None else ()
    ports = {name: read.get(name, {}).get("port") for name in names}
    for name, scene in values.get("scenes", {}).items():
        if "models" in scene:
            yield from scene_breaches(name, scene["models"], scene.get("sacrifice", ()), ports)
    gateways = values.get("node", {}).get("gateways", ())
    pairs = [((given or {}).get("listen"), (given or {}).get("upstream")) for given in gateways]
    yield from gateway_breaches(pairs, ports)


def _child(node: Node, key: str | int) -> Node | None:
    if isinstance(node, MappingNode) and isinstance(key, str) and key in node.entries:
        return node.entries[key].value
    if isinstance(node, Sequence) and isinstance(key, int) and key < len(node.items):
        return node.items[key]
    return None


def _find(root: Node, keys: tuple[str | int, ...]) -> tuple[Node, str]:
    """The node that `keys` lead to, and its path."""
    node, path = root, ""
    for key in keys:
        node = _child(node, key) or node
        path = join_path(path, key)
    return node, path


def _in_order(faults: Iterable[Fault]) -> tuple[Fault, ...]:
    """By place, and once each: what an alias repeats is wrong in one place only."""
    first = {(fault.line, fault.column, fault.message): fault for fault in reversed([*faults])}
    return tuple(sorted(first.values(), key=lambda fault: (fault.line, fault.column)))
