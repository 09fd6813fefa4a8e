"""NodeState -> state.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lumbridge_compute.core.state import (
    FloorLatch,
    Legacy,
    NodeState,
    Record,
    ResumeFailures,
)
from lumbridge_compute.errors import BadInput
from lumbridge_compute.store.registry_model import model_document
from lumbridge_compute.store.state_fields import merged
from lumbridge_compute.store.yaml_nodes import MAX_BYTES, MAX_DEPTH, MAX_NODES
from lumbridge_compute.store.yaml_text import render_yaml

VERSION = 1
BOUND_KEYS = frozenset({"boot_id", "process_start_ticks", "definition"})
"""Any of these makes an entry of `processes` more than a bare PID."""

_TITLE = (
    "# Written by lumbridge-compute: what this node remembers.  Edit it only while nothing runs.\n"
)


def render_state(state: NodeState) -> bytes:
    """The content of the file, as version 1, with every key that we don't know kept.

    Raises: BadInput when it would be larger, or nested deeper, than what is read again.
    """
    document = _state_document(state)
    data = (_TITLE + render_yaml(document)).encode()
    depth, nodes = _measure(document)
    if len(data) > MAX_BYTES or depth > MAX_DEPTH or nodes > MAX_NODES:
        raise BadInput(
            f"cannot write the state: {len(data)} bytes, {nodes} values, nested {depth} deep, "
            f"at most {MAX_BYTES}, {MAX_NODES} and {MAX_DEPTH} are read again",
            "look for a large key in .kuda/state.yaml and for a deep probe body in compute.yaml",
        )
    return data


def _state_document(state: NodeState) -> dict[str, object]:
    first: dict[str, object] = {
        "version": VERSION,
        "desired_scene": state.desired_scene,
        "active_scene": state.active_scene,
        "last_known_good_scene": state.last_known_good_scene,
        "transition_scene": state.transition_scene,
        "last_error": state.last_error,
    }
    if state.deactivating:
        first["deactivating"] = True
    # Nothing that may be left out comes behind these: they prove that nothing was cut off.
    last: dict[str, object] = {
        "processes": {name: _record_document(each) for name, each in state.processes.items()},
        "resume_failures": _failures_document(state.resume_failures),
        "floor_latch": _latch_document(state.floor_latch),
    }
    extra = {key: value for key, value in state.extra.items() if key not in first | last}
    return first | extra | last


def _record_document(record: Record) -> dict[str, Any]:
    if isinstance(record, Legacy):
        return _legacy_document(record)
    identity = record.identity
    optional = {
        "pidfd_inode": identity.pidfd_inode,
        "token": record.token,
        "scope": record.scope,
        "started_at": record.started_at,
    }
    known = {
        "boot_id": identity.boot_id,
        "pid": identity.pid,
        "process_start_ticks": identity.start_ticks,
        **{key: value for key, value in optional.items() if value is not None},
        "definition": model_document(record.definition),
    }
    return merged(known, record.extra)


def _legacy_document(record: Legacy) -> dict[str, Any]:
    ambiguous = (BOUND_KEYS | {"legacy", "pid"}) & record.extra.keys()
    extra = {"legacy": record.extra} if ambiguous else record.extra
    return {"pid": record.pid, **extra}


def _failures_document(failures: ResumeFailures | None) -> dict[str, Any] | None:
    if failures is None:
        return None
    known = {
        "scene": failures.scene,
        "definition": failures.definition,
        "count": failures.count,
    }
    return merged(known, failures.extra)


def _latch_document(latch: FloorLatch | None) -> dict[str, Any] | None:
    """A text comes last, at the end of the whole file: without its closing quote it is refused."""
    if latch is None:
        return None
    known = {"scene": latch.scene, "boot_id": latch.boot_id, "figures": latch.figures}
    return {**merged(known, latch.extra), "at": latch.at}


def _measure(value: object) -> tuple[int, int]:
    """How deep the value is nested, and of how many nodes it consists, keys included."""
    if isinstance(value, Mapping):
        below = [_measure(item) for item in value.values()]
        keys = len(below)
    elif isinstance(value, list | tuple):
        below, keys = [_measure(item) for item in value], 0
    else:
        return 0, 1
    return 1 + max((depth for depth, _ in below), default=0), 1 + keys + sum(n for _, n in below)
