"""What the node remembers, and the only ways in which that may change (DESIGN section 5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lumbridge_compute.core.identity import Identity
from lumbridge_compute.core.registry import Model
from lumbridge_compute.core.values import dataclass, field, replace

MAX_LINE_CHARS = 2000

Extra = Mapping[str, Any]
"""Keys of a file that we don't know, as plain YAML values: kept at every rewrite."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A record with an identity.

    `definition` is what the process was started with, placeholders unexpanded.  `token` is the
    random text in its environment, None for an adopted process.  `scope` is its systemd scope.
    `started_at` is UTC in ISO 8601, for people only.  In `extra`, unknown keys of the definition
    stand under "definition".
    """

    identity: Identity
    definition: Model
    token: str | None = None
    scope: str | None = None
    started_at: str | None = None
    extra: Extra = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Legacy:
    """The predecessor's record: a PID alone, which proves nothing and is never signalled."""

    pid: int
    extra: Extra = field(default_factory=dict)


Record = Bound | Legacy


MOST_RESUME_FAILURES = 3
"""After so many in a row resume wants an operator."""


@dataclass(frozen=True, slots=True)
class ResumeFailures:
    """How often in a row resume ended without a good state.

    `scene` with `definition` (a digest of its models' definitions) is what failed last.
    """

    scene: str
    definition: str
    count: int
    extra: Extra = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FloorLatch:
    """What the memory floor stopped in this boot, which nothing starts again by itself."""

    scene: str | None
    boot_id: str
    at: str
    figures: Extra = field(default_factory=dict)
    extra: Extra = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeState:
    """The whole of state.yaml.  `deactivating` marks a deactivation that has not ended yet."""

    desired_scene: str | None = None
    active_scene: str | None = None
    last_known_good_scene: str | None = None
    transition_scene: str | None = None
    last_error: str | None = None
    processes: Mapping[str, Record] = field(default_factory=dict)
    resume_failures: ResumeFailures | None = None
    floor_latch: FloorLatch | None = None
    deactivating: bool = False
    extra: Extra = field(default_factory=dict)


# One function for each row of the table of writes.  Nothing else writes those five fields.


def begin(state: NodeState, target: str) -> NodeState:
    """A transition to `target` is about to make its first change."""
    return replace(
        state, active_scene=None, transition_scene=target, last_error=None, deactivating=False
    )


def rollback_begins(state: NodeState, cause: str) -> NodeState:
    """The transition has failed: from now on no resume commits its target."""
    return replace(state, last_error=one_line(cause))


def commit(state: NodeState, target: str, previous: str | None) -> NodeState:
    """`target` is exactly healthy; `previous` was active before (None when nothing was)."""
    last_known_good = state.last_known_good_scene
    if previous is not None and previous != target:
        last_known_good = previous
    elif last_known_good is None:
        last_known_good = target
    return replace(
        state,
        desired_scene=target,
        active_scene=target,
        last_known_good_scene=last_known_good,
        transition_scene=None,
        last_error=None,
        resume_failures=None,
        floor_latch=None,
        deactivating=False,
    )


def restored(state: NodeState, previous: str, cause: str) -> NodeState:
    """`previous` runs again and was verified."""
    return replace(state, active_scene=previous, transition_scene=None, last_error=one_line(cause))


def failed(state: NodeState, cause: str) -> NodeState:
    """Nothing is active; what still runs stays in `processes`."""
    return replace(state, active_scene=None, transition_scene=None, last_error=one_line(cause))


def resumed_on_last_known_good(state: NodeState, cause: str) -> NodeState:
    """The desired Scene failed and the last known good one runs instead, verified."""
    return replace(
        state,
        active_scene=state.last_known_good_scene,
        transition_scene=None,
        last_error=one_line(cause),
    )


def adopt(state: NodeState, scene: str, records: Mapping[str, Bound]) -> NodeState:
    """`scene` already runs as `records` and was verified."""
    return replace(
        state,
        desired_scene=scene,
        active_scene=scene,
        last_known_good_scene=state.last_known_good_scene or scene,
        transition_scene=None,
        last_error=None,
        processes={**state.processes, **records},
        resume_failures=None,
        floor_latch=None,
        deactivating=False,
    )


def deactivate_begin(state: NodeState) -> NodeState:
    """Everything owned is about to be stopped, and nothing is wanted any more."""
    return replace(
        state, desired_scene=None, active_scene=None, transition_scene=None, deactivating=True
    )


def deactivate_end(state: NodeState) -> NodeState:
    """Nothing of ours runs."""
    return replace(state, transition_scene=None, deactivating=False)


def reactivated(state: NodeState, desired: str | None) -> NodeState:
    """A deactivation was interrupted and its Scene is back: what was desired is desired again."""
    return replace(state, desired_scene=desired, deactivating=False)


def record_loss(state: NodeState, cause: str) -> NodeState:
    """The floor or an unexpected death has broken the active Scene."""
    return replace(state, active_scene=None, last_error=one_line(cause))


def with_record(state: NodeState, name: str, record: Record) -> NodeState:
    """`name` is about to start, or its record is replaced."""
    return replace(state, processes={**state.processes, name: record})


def without_processes(state: NodeState, ended: Iterable[Identity]) -> NodeState:
    """The processes `ended` are gone for certain; a newer record of the same model stays."""
    gone = tuple(ended)
    kept = {
        name: record
        for name, record in state.processes.items()
        if not (isinstance(record, Bound) and any(map(record.identity.matches, gone)))
    }
    return replace(state, processes=kept)


def without_records(state: NodeState, names: Iterable[str]) -> NodeState:
    """The records of `names` are worth nothing any more, or are dropped on request."""
    gone = set(names)
    kept = {name: record for name, record in state.processes.items() if name not in gone}
    return replace(state, processes=kept)


def with_resume_failures(state: NodeState, failures: ResumeFailures | None) -> NodeState:
    """Remember how resumes have ended."""
    return replace(state, resume_failures=failures)


def with_latch(state: NodeState, latch: FloorLatch) -> NodeState:
    """The floor has stopped something: nothing starts it again by itself in this boot."""
    return replace(state, floor_latch=latch)


def one_line(text: str) -> str:
    """`text` folded to the single line that `last_error` holds, of bounded length."""
    line = " ".join(text.split())
    return line if len(line) <= MAX_LINE_CHARS else line[: MAX_LINE_CHARS - 3] + "..."
