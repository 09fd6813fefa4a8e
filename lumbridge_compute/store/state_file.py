"""state.yaml -> NodeState; the way back is in state_render.

Every key that version 1 has is required: a file that was cut off between two lines must not read
as one with fewer processes.
"""

from __future__ import annotations

from typing import Any

from lumbridge_compute.core.identity import Identity
from lumbridge_compute.core.registry import Model
from lumbridge_compute.core.state import (
    Bound,
    FloorLatch,
    Legacy,
    NodeState,
    Record,
    ResumeFailures,
)
from lumbridge_compute.errors import BadInput
from lumbridge_compute.store.registry_model import MODEL, read_model
from lumbridge_compute.store.registry_scalars import NAME
from lumbridge_compute.store.registry_shapes import describe, shown
from lumbridge_compute.store.state_fields import (
    HINT,
    Fields,
    nullable,
    read_any_text,
    read_flag,
    read_plain_mapping,
    read_text,
    refuse,
    refuse_fault,
    split_unknown,
    whole,
    written_null,
)
from lumbridge_compute.store.state_render import BOUND_KEYS, VERSION, render_state
from lumbridge_compute.store.yaml_nodes import MAX_BYTES, compose
from lumbridge_compute.store.yaml_values import (
    MappingNode,
    Node,
    Scalar,
    Sequence,
    join_path,
    plain_scalar,
)

__all__ = ["MAX_PID", "parse_state", "render_state"]

MAX_PID = 4 * 1024 * 1024
"""Source: proc_sys_kernel(5), pid_max."""

# PID 1 is the system's: it can't be a model that somebody started.
_PID = whole("a PID", 1, MAX_PID)
_MODEL_PID = whole("a model's PID", 2, MAX_PID)
_COUNT = whole("a whole number", 0, 2**64 - 1)


def parse_state(data: bytes | None) -> NodeState:
    """The state in the file's content; a fresh one for None, which means that there is no file.

    A content without `version` is the predecessor's.  Raises: BadInput, with what is wrong and
    where, for everything that can't be read as version 1 or as the predecessor's form.
    """
    if data is None:
        return NodeState()
    top = _compose(data)
    state = _read_state(top) if "version" in top.entries else _read_legacy_state(top)
    if len(data) > MAX_BYTES // 16 or _volume(top) > MAX_BYTES // 16:
        _refuse_unwritable(state)
    return state


def _refuse_unwritable(state: NodeState) -> None:
    """What can't be written again is not taken over: a later refusal would come too late."""
    try:
        render_state(state)
    except BadInput as error:
        raise BadInput(f"cannot read the state: then {error.message}", error.hint) from None


def _compose(data: bytes) -> MappingNode:
    if not data.strip():
        raise BadInput("cannot read the state: the file is empty", HINT)
    if not data.strip(b"\x00"):
        message = f"the file is {len(data)} NUL bytes, as after a crash of the machine"
        raise BadInput(f"cannot read the state: {message}", HINT)
    root, faults = compose(data)
    if faults:
        refuse_fault(faults[0])
    if not isinstance(root, MappingNode):
        found = "no value" if root is None else describe(root)
        refuse(root, "", f"wants a mapping, found {found}")
    if _volume(root) > MAX_BYTES:
        refuse(None, "", f"more than {MAX_BYTES} bytes when the aliases are followed")
    return root


def _volume(node: Node) -> int:
    """About how many bytes the node needs with its aliases followed."""
    if isinstance(node, Scalar):
        return len(node.text) + 8
    if isinstance(node, Sequence):
        return 8 + sum(map(_volume, node.items))
    return 8 + sum(len(key) + _volume(entry.value) for key, entry in node.entries.items())


def _read_state(top: MappingNode) -> NodeState:
    fields = Fields(top, "")
    fields.take("version", _read_version)
    scene = nullable(read_text)
    return NodeState(
        desired_scene=fields.take("desired_scene", scene),
        active_scene=fields.take("active_scene", scene),
        last_known_good_scene=fields.take("last_known_good_scene", scene),
        transition_scene=fields.take("transition_scene", scene),
        last_error=fields.take("last_error", nullable(read_any_text)),
        deactivating=fields.take_or("deactivating", read_flag, default=False),
        processes=fields.take("processes", _read_processes),
        resume_failures=fields.take("resume_failures", written_null(_read_failures)),
        floor_latch=fields.take("floor_latch", written_null(_read_latch)),
        extra=fields.rest(),
    )


def _read_legacy_state(top: MappingNode) -> NodeState:
    fields = Fields(top, "")
    if "processes" not in top.entries:
        refuse(top, "", "the keys 'version' and 'processes' are missing, so this is no state file")
    scene = nullable(read_text)
    return NodeState(
        desired_scene=fields.take_or("desired_scene", scene, None),
        active_scene=fields.take_or("active_scene", scene, None),
        last_known_good_scene=fields.take_or("last_known_good_scene", scene, None),
        transition_scene=fields.take_or("transition_scene", scene, None),
        last_error=fields.take_or("last_error", nullable(read_any_text), None),
        processes=fields.take("processes", _read_legacy_processes),
        resume_failures=fields.take_or("resume_failures", nullable(_read_failures), None),
        floor_latch=fields.take_or("floor_latch", nullable(_read_latch), None),
        deactivating=fields.take_or("deactivating", read_flag, default=False),
        extra=fields.rest(),
    )


def _read_version(node: Node, path: str) -> int:
    found = plain_scalar(node) if isinstance(node, Scalar) else None
    if isinstance(found, bool) or not isinstance(found, int):
        refuse(node, path, f"wants the number {VERSION}, found {describe(node)}")
    if found > VERSION:
        refuse(
            node,
            path,
            f"the file has version {found}, this program reads version {VERSION}",
            "use the newer lumbridge-compute that wrote it",
        )
    if found < VERSION:
        refuse(node, path, f"wants the number {VERSION}, found {found}")
    return found


def _read_processes(node: Node, path: str) -> dict[str, Record]:
    entries = Fields(node, path).node.entries
    return {
        name: _read_record(name, entry.value, join_path(path, name))
        for name, entry in entries.items()
    }


def _read_legacy_processes(node: Node, path: str) -> dict[str, Record]:
    entries = Fields(node, path).node.entries
    return {
        name: _read_legacy(entry.value, join_path(path, name)) for name, entry in entries.items()
    }


def _read_record(name: str, node: Node, path: str) -> Record:
    if not isinstance(node, MappingNode) or not BOUND_KEYS & node.entries.keys():
        return _unwrapped(_read_legacy(node, path))
    if not NAME.fits(name):
        refuse(node, path, f"wants {NAME.wants} as key, found {shown(name)}", NAME.hint)
    fields = Fields(node, path)
    identity = Identity(
        boot_id=fields.take("boot_id", read_text),
        pid=fields.take("pid", _MODEL_PID),
        start_ticks=fields.take("process_start_ticks", _COUNT),
        pidfd_inode=fields.take_or("pidfd_inode", nullable(_COUNT), None),
    )
    definition, unknown = fields.take(
        "definition", lambda value, below: _read_definition(name, value, below)
    )
    return Bound(
        identity,
        definition,
        token=fields.take_or("token", nullable(read_text), None),
        scope=fields.take_or("scope", nullable(read_text), None),
        started_at=fields.take_or("started_at", nullable(read_text), None),
        extra=fields.rest() | ({"definition": unknown} if unknown else {}),
    )


def _read_legacy(node: Node, path: str) -> Legacy:
    if not isinstance(node, MappingNode):
        return Legacy(_PID(node, path))
    fields = Fields(node, path)
    return Legacy(fields.take("pid", _PID), fields.rest())


def _unwrapped(record: Legacy) -> Legacy:
    """Undo what `the renderer does to a record whose extra keys would make it look bound."""
    inner = record.extra.get("legacy")
    if record.extra.keys() == {"legacy"} and isinstance(inner, dict):
        return Legacy(record.pid, inner)
    return record


def _read_definition(name: str, node: Node, path: str) -> tuple[Model, dict[str, Any]]:
    known, unknown = split_unknown(MODEL, node)
    model, faults = read_model(name, known, path)
    if model is None:
        refuse_fault(faults[0])
    return model, unknown


def _read_failures(node: Node, path: str) -> ResumeFailures:
    fields = Fields(node, path)
    return ResumeFailures(
        scene=fields.take("scene", read_text),
        definition=fields.take("definition", read_text),
        count=fields.take("count", _COUNT),
        extra=fields.rest(),
    )


def _read_latch(node: Node, path: str) -> FloorLatch:
    fields = Fields(node, path)
    return FloorLatch(
        scene=fields.take("scene", nullable(read_text)),
        boot_id=fields.take("boot_id", read_text),
        at=fields.take("at", read_text),
        figures=fields.take("figures", read_plain_mapping),
        extra=fields.rest(),
    )
