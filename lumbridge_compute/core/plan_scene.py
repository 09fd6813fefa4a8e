"""Registry + state + observed world -> a Plan, or every reason against it (DESIGN section 8)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from lumbridge_compute.core.health import HealthName
from lumbridge_compute.core.identity import Ownership
from lumbridge_compute.core.plan import (
    Keep,
    MemoryEstimate,
    Plan,
    Refusals,
    Snapshot,
    Start,
    Stop,
)
from lumbridge_compute.core.refusals import (
    memory_refusals,
    port_refusals,
    record_refusals,
    start_refusals,
    stop_refusals,
    stray_processes,
    unrecorded_servers,
)
from lumbridge_compute.core.registry import Model, Registry
from lumbridge_compute.core.state import Bound, NodeState
from lumbridge_compute.core.world import ModelView, World

LOADING = frozenset(
    {HealthName.STARTING, HealthName.UNREACHABLE, HealthName.NOT_READY, HealthName.BUSY}
)

_KeepRule = Callable[[Model, ModelView, Bound], Keep | None]


def plan_activate(now: Snapshot, scene: str, *, floor_bytes: int = 0) -> Plan | Refusals:
    """Switch to `scene`: what is healthy under today's definition stays, all else goes."""
    goal = _Goal("activate", scene, now.registry.models_of(scene), _keep_unchanged, floor_bytes)
    return _plan(now, goal)


def plan_resume(now: Snapshot, scene: str, *, floor_bytes: int = 0) -> Plan | Refusals:
    """Make `scene` true again: what is healthy or still loading stays, whatever the registry says
    today."""
    goal = _Goal("resume", scene, now.registry.models_of(scene), _keep_serving, floor_bytes)
    return _plan(now, goal)


def plan_restore(now: Snapshot, scene: str, target: tuple[Model, ...]) -> Plan | Refusals:
    """Put `target`, the definitions that ran before, back; memory was theirs, so no admission."""
    return _plan(now, _Goal("restore", scene, target, _keep_unchanged, None))


def plan_stop_all(now: Snapshot, command: str) -> Plan | Refusals:
    """Stop everything that is ours, whatever its health."""
    return _plan(now, _Goal(command, None, (), _keep_unchanged, None))


@dataclass(frozen=True, slots=True)
class _Goal:
    command: str
    scene: str | None
    target: tuple[Model, ...]
    keep_rule: _KeepRule
    floor_bytes: int | None


def _plan(now: Snapshot, goal: _Goal) -> Plan | Refusals:
    state, world = now.state, now.world
    keep = tuple(kept for model in goal.target if (kept := _kept(model, now, goal.keep_rule)))
    kept_names = {k.model for k in keep}
    stop = _stops(now, kept_names)
    start = tuple(Start(model) for model in goal.target if model.name not in kept_names)
    memory = _estimate(stop, start, now, goal.floor_bytes or 0)
    reasons = (
        *record_refusals(state, world),
        *stop_refusals(stop, world),
        *start_refusals(start, now.registry, world),
        *port_refusals(start, stop, now),
        *(memory_refusals(memory) if goal.floor_bytes is not None else ()),
    )
    warnings = (
        *unrecorded_servers(now.registry, world, {model.name for model in goal.target}),
        *stray_processes(state, world),
    )
    if reasons:
        # One stranger on two addresses of a port is one reason.
        return Refusals(goal.scene, tuple(dict.fromkeys(reasons)), warnings)
    forget = _forgotten(state, world)
    return Plan(
        goal.command,
        goal.scene,
        keep,
        stop,
        start,
        forget,
        warnings,
        memory,
        measured=world.footprints,
    )


def _kept(model: Model, now: Snapshot, rule: _KeepRule) -> Keep | None:
    view, record = now.world.view(model.name), now.state.processes.get(model.name)
    if view.ownership is not Ownership.OWNED or not isinstance(record, Bound):
        return None
    return rule(model, view, record)


def _keep_unchanged(model: Model, view: ModelView, record: Bound) -> Keep | None:
    healthy = view.exact or (view.health is not None and view.health.name is HealthName.BUSY)
    if not healthy or not record.definition.starts_like(model):
        return None
    return Keep(model.name, record.identity, model, loading=not view.exact)


def _keep_serving(model: Model, view: ModelView, record: Bound) -> Keep | None:
    same = record.definition.starts_like(model)
    definition = model if same else record.definition
    if view.exact:
        return Keep(model.name, record.identity, definition)
    age_s = view.age_s if view.age_s is not None else float("inf")
    name = view.health.name if view.health is not None else None
    if name is HealthName.BUSY:
        # It works on something, however old it is: it gets the whole timeout from now.
        return Keep(model.name, record.identity, definition, loading=True)
    if name in LOADING and age_s < definition.health.timeout_s:
        return Keep(model.name, record.identity, definition, loading=True, age_s=age_s)
    return None


def _stops(now: Snapshot, kept: set[str]) -> tuple[Stop, ...]:
    stops = [
        Stop(name, record)
        for name, record in now.state.processes.items()
        if isinstance(record, Bound)
        and name not in kept
        and now.world.view(name).ownership in (Ownership.OWNED, Ownership.SURVIVORS)
    ]
    rank = _start_ranks(now.registry, now.state)
    return tuple(
        sorted(
            stops,
            key=lambda s: (rank.get(s.model, -1), s.record.identity.start_ticks),
            reverse=True,
        )
    )


def _start_ranks(registry: Registry, state: NodeState) -> dict[str, int]:
    """Start order of the Scene that the running models most likely belong to."""
    for scene in (state.active_scene, state.transition_scene, state.desired_scene):
        if scene is not None and scene in registry.scenes:
            return {name: i for i, name in enumerate(registry.scenes[scene].models)}
    return {}


def _forgotten(state: NodeState, world: World) -> tuple[str, ...]:
    return tuple(name for name in state.processes if world.view(name).ownership is Ownership.GONE)


def _estimate(
    stop: Iterable[Stop], start: Iterable[Start], now: Snapshot, floor_bytes: int
) -> MemoryEstimate | None:
    world = now.world
    if world.memory is None:
        return None
    gives = _total(_cost(step.record.definition, world) for step in stop)
    needs = _total(_start_cost(step.definition, now) for step in start)
    return MemoryEstimate(world.memory.available_bytes, gives, needs, floor_bytes)


def _start_cost(model: Model, now: Snapshot) -> int | None:
    """As `_cost`; what was measured of the recorded process says nothing of another definition."""
    record = now.state.processes.get(model.name)
    changed = isinstance(record, Bound) and not record.definition.starts_like(model)
    return model.memory_bytes if changed else _cost(model, now.world)


def _cost(model: Model, world: World) -> int | None:
    """Declared memory, else what its last starts were measured to cost."""
    if model.memory_bytes is not None:
        return model.memory_bytes
    return world.footprints.get(model.name)


def _total(costs: Iterable[int | None]) -> int | None:
    total = 0
    for cost in costs:
        if cost is None:
            return None
        total += cost
    return total
