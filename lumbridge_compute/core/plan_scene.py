"""Registry + state + observed world -> a Plan, or every reason against it (DESIGN section 8)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from lumbridge_compute.core.digest import digest
from lumbridge_compute.core.health import HealthName
from lumbridge_compute.core.identity import Ownership
from lumbridge_compute.core.plan import (
    Keep,
    MemoryEstimate,
    Plan,
    Refusal,
    Refusals,
    Snapshot,
    Start,
    Stop,
)
from lumbridge_compute.core.ports import holder_of
from lumbridge_compute.core.registry import Model, Registry
from lumbridge_compute.core.state import (
    MOST_RESUME_FAILURES,
    Bound,
    NodeState,
    ResumeFailures,
)
from lumbridge_compute.core.units import render_bytes
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


def plan_next_resume(now: Snapshot, *, force: bool, floor_bytes: int = 0) -> Plan | Refusals:
    """What a resume tries first: an interrupted transition that is whole, else the desired Scene,
    else nothing at all."""
    state = now.state
    scene = state.transition_scene if transition_whole(now) else state.desired_scene
    if scene is None or state.deactivating:
        return plan_stop_all(now, "resume")
    if scene not in now.registry.scenes:
        return Refusals(scene, (_unknown_scene(scene),))
    plan = plan_resume(now, scene, floor_bytes=floor_bytes)
    settled = isinstance(plan, Plan) and plan.settled
    if not settled and not force and (reason := _given_up(now, scene)) is not None:
        return Refusals(scene, (reason,))
    return plan


def plan_fallback(now: Snapshot, *, floor_bytes: int = 0) -> Plan | Refusals:
    """The last known good Scene, where it is another one than the desired."""
    scene = now.state.last_known_good_scene
    if scene is None or scene == now.state.desired_scene:
        hint = "activate a Scene that works"
        message = "there is no other last known good Scene to fall back on"
        return Refusals(scene, (Refusal("no-fallback", None, message, hint),))
    if scene not in now.registry.scenes:
        return Refusals(scene, (_unknown_scene(scene),))
    return plan_resume(now, scene, floor_bytes=floor_bytes)


def next_resume_failures(now: Snapshot, scene: str) -> ResumeFailures:
    """What is remembered while a resume of `scene` is under way: one attempt more."""
    definition = digest(now.registry.models_of(scene))
    past = now.state.resume_failures
    same = past is not None and (past.scene, past.definition) == (scene, definition)
    return ResumeFailures(scene, definition, past.count + 1 if past is not None and same else 1)


def _given_up(now: Snapshot, scene: str) -> Refusal | None:
    count = next_resume_failures(now, scene).count - 1
    if count < MOST_RESUME_FAILURES:
        return None
    return Refusal(
        "needs-operator",
        None,
        f"cannot resume {scene!r}: it has failed {count} times in a row and needs an operator"
        + (f" (last error: {now.state.last_error})" if now.state.last_error else ""),
        f"mend the cause, then `lumbridge-compute scene activate {scene}` or "
        "`lumbridge-compute scene resume --force`",
    )


def _unknown_scene(scene: str) -> Refusal:
    return Refusal(
        "unknown-scene",
        None,
        f"cannot resume {scene!r}: compute.yaml declares no such Scene any more",
        "declare it again, or activate another Scene",
    )


def plan_restore(now: Snapshot, scene: str, target: tuple[Model, ...]) -> Plan | Refusals:
    """Put `target`, the definitions that ran before, back; memory was theirs, so no admission."""
    return _plan(now, _Goal("restore", scene, target, _keep_unchanged, None))


def plan_stop_all(now: Snapshot, command: str) -> Plan | Refusals:
    """Stop everything that is ours, whatever its health."""
    return _plan(now, _Goal(command, None, (), _keep_unchanged, None))


def transition_whole(now: Snapshot) -> bool:
    """True when an interrupted transition had reached its target and nothing had failed."""
    scene = now.state.transition_scene
    if scene is None or now.state.last_error is not None or scene not in now.registry.scenes:
        return False
    return all(now.world.view(name).exact for name in now.registry.scenes[scene].models)


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
        *_record_refusals(state, world),
        *_stop_refusals(stop, world),
        *_start_refusals(start, now.registry, world),
        *_port_refusals(start, stop, now),
        *(_memory_refusals(memory) if goal.floor_bytes is not None else ()),
    )
    warnings = (
        *_unrecorded_servers(now.registry, world, {model.name for model in goal.target}),
        *_strays(state, world),
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
    young = name in LOADING and age_s < definition.health.timeout_s
    if young or name is HealthName.BUSY:
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


def _record_refusals(state: NodeState, world: World) -> Iterable[Refusal]:
    for name in state.processes:
        view = world.view(name)
        if view.ownership is Ownership.LEGACY:
            yield Refusal(
                "legacy-record",
                name,
                f"cannot touch {name!r}: its record is a bare pid {view.legacy_pid}, which is "
                "alive but not proved to be ours",
                "bind it with `lumbridge-compute scene adopt NAME`, or drop the record with "
                f"`lumbridge-compute scene forget {name}`",
            )
        elif view.ownership is Ownership.FOREIGN:
            pid = view.identity.pid if view.identity else "?"
            yield Refusal(
                "foreign-record",
                name,
                f"cannot touch {name!r}: pid {pid} lives but no longer leads its own process group",
                f"drop the record with `lumbridge-compute scene forget {name}`, then end the "
                "process yourself if it should go",
            )
        elif not view.permitted:
            pid = view.identity.pid if view.identity else "?"
            yield Refusal(
                "not-permitted",
                name,
                f"cannot touch {name!r}: pid {pid} belongs to another user, whom this command may "
                "not signal",
                "run the command as the user who owns the model's processes",
            )


def _stop_refusals(stop: Iterable[Stop], world: World) -> Iterable[Refusal]:
    for step in stop:
        if world.view(step.model).hosts_us:
            yield Refusal(
                "inside-model",
                step.model,
                f"cannot stop {step.model!r}: this command runs inside it",
                f"run it outside {step.model}",
            )


def _start_refusals(start: Iterable[Start], registry: Registry, world: World) -> Iterable[Refusal]:
    for step in start:
        declared = registry.models.get(step.model)
        if declared is None or not declared.starts_like(step.definition):
            continue  # what was looked at is not what is started: a restore takes the old one
        for reason in world.unstartable.get(step.model, ()):
            yield Refusal(
                "not-startable",
                step.model,
                f"cannot start {step.model!r}: {reason}",
                f"install it, or correct models.{step.model} in compute.yaml",
            )


def _port_refusals(
    start: Iterable[Start], stop: Iterable[Stop], now: Snapshot
) -> Iterable[Refusal]:
    world, stopped = now.world, {step.model for step in stop}
    # What an unfinished transaction has started never proved its marker, and what it was stopping
    # goes anyway: a doubt about it would block the way back.
    doubted = now.state.transition_scene is None and not now.state.deactivating
    for step in start:
        port = step.definition.port
        for listener in world.listeners:
            if listener.port != port:
                continue
            holder = holder_of(listener, world)
            if holder is None or holder not in stopped:
                who = listener.who if holder is None else f"model {holder!r}, which stays"
                yield Refusal(
                    "port-conflict",
                    step.model,
                    f"cannot start {step.model!r}: port {port} is held by {who or 'a stranger'}",
                    f"free the port, or give models.{step.model}.port another number",
                )
            elif (
                doubted
                and (odd := _unexpected_marker(world.view(holder), now.registry)) is not None
            ):
                yield Refusal(
                    "unexpected-marker",
                    holder,
                    f"cannot replace {holder!r} on port {port}: {odd}",
                    "look at what it serves; `lumbridge-compute scene deactivate` stops it "
                    "whatever it serves",
                )


def _unexpected_marker(view: ModelView, registry: Registry) -> str | None:
    health = view.health
    if health is None or health.name is not HealthName.WRONG_MARKER:
        return None
    declared = registry.models.get(view.name)
    if declared is not None and declared.marker in health.reported:
        return None
    return health.detail


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


def _memory_refusals(memory: MemoryEstimate | None) -> Iterable[Refusal]:
    if memory is None or memory.after_bytes is None or not memory.needs_bytes:
        return
    if memory.after_bytes < memory.floor_bytes:
        gives = memory.gives_bytes or 0
        yield Refusal(
            "memory",
            None,
            f"not enough memory: {render_bytes(memory.available_bytes)} available "
            f"+ {render_bytes(gives)} from what stops - {render_bytes(memory.needs_bytes)} needed "
            f"leaves {render_bytes(memory.after_bytes)}, the floor is "
            f"{render_bytes(memory.floor_bytes)}",
            "free memory, or correct `memory` of the models or `node.memory_floor` in compute.yaml",
        )


def _unrecorded_servers(registry: Registry, world: World, target: set[str]) -> tuple[str, ...]:
    return tuple(
        f"{name!r} is not in the Scene but something without a record of ours serves it on port "
        f"{registry.models[name].port}"
        for name, view in world.models.items()
        if name in registry.models
        and name not in target
        and view.stranger is not None
        and view.stranger.exact
        and _held_by_others(registry.models[name].port, world)
    )


def _held_by_others(port: int, world: World) -> bool:
    """Two models may share port and marker: what answers may be the other one, ours."""
    return any(
        listener.port == port and holder_of(listener, world) is None for listener in world.listeners
    )


def _strays(state: NodeState, world: World) -> Iterable[str]:
    for name in state.processes:
        if strays := world.view(name).claim.strays:
            pids = ", ".join(str(pid) for pid in sorted(strays))
            yield f"pid {pids} may be left of {name!r}, but is not proved to be ours: not touched"
