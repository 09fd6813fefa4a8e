"""What holds for every plan, whatever the registry, the state and the world are."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from lumbridge_compute.core.health import EXACT, Health, HealthName
from lumbridge_compute.core.identity import Claim, Identity, Ownership, Process
from lumbridge_compute.core.plan import AdoptPlan, Keep, Plan, Refusals, Snapshot
from lumbridge_compute.core.plan_adopt import plan_adopt
from lumbridge_compute.core.plan_resume import plan_fallback, plan_next_resume
from lumbridge_compute.core.plan_scene import (
    plan_activate,
    plan_restore,
    plan_stop_all,
)
from lumbridge_compute.core.registry import Model, PortOwner, Registry, Scene
from lumbridge_compute.core.state import (
    Bound,
    Legacy,
    NodeState,
    Record,
    ResumeFailures,
    adopt,
)
from lumbridge_compute.core.world import Listener, Memory, ModelView, World

NAMES = ("a", "b", "c", "d")
PORTS = (8001, 8002, 8003)
SCENES = ("one", "two")
OURS = (Ownership.OWNED, Ownership.SURVIVORS)
STRANGER_PID = 9999
Planned = Plan | AdoptPlan | Refusals

# Trouble is drawn seldom: where everything is in trouble, every order is refused.
rarely = st.sampled_from([False] * 7 + [True])


@st.composite
def definitions(draw: st.DrawFn, name: str) -> Model:
    return Model(
        name,
        ("serve", draw(st.sampled_from(["old", "new"]))),
        draw(st.sampled_from(PORTS)),
        draw(st.sampled_from(["m", name])),
        memory_bytes=draw(st.none() | st.integers(0, 4)),
        port_owner=draw(st.sampled_from(PortOwner)),
    )


@st.composite
def registries(draw: st.DrawFn) -> Registry:
    """Models and Scenes by the rules of the registry: no port twice in one Scene."""
    models = {name: draw(definitions(name)) for name in NAMES}
    scenes = {}
    for scene in SCENES:
        order = draw(st.permutations(NAMES))
        by_port = {models[name].port: name for name in order[: draw(st.integers(1, 4))]}
        scenes[scene] = Scene(scene, tuple(by_port.values()))
    return Registry(models, scenes)


@st.composite
def records(draw: st.DrawFn, name: str, pid: int, registry: Registry) -> Record:
    if draw(rarely):
        return Legacy(pid)
    definition = draw(definitions(name)) if draw(rarely) else registry.models[name]
    return Bound(Identity("boot", pid, 1000 + pid), definition)


@st.composite
def views(draw: st.DrawFn, name: str, record: Record | None, registry: Registry) -> ModelView:
    declared = registry.models[name]
    if record is None:
        stranger = EXACT if draw(rarely) else None
        return ModelView(name, checked=declared, stranger=stranger)
    if isinstance(record, Legacy):
        ownership = draw(st.sampled_from([Ownership.LEGACY, Ownership.GONE, Ownership.FOREIGN]))
        pid, checked = record.pid, declared
    else:
        troubled = st.sampled_from([Ownership.SURVIVORS, Ownership.GONE, Ownership.FOREIGN])
        ownership = draw(troubled) if draw(rarely) else Ownership.OWNED
        same = record.definition.starts_like(declared)
        pid, checked = record.identity.pid, declared if same else record.definition
    identity = Identity("boot", pid, 1000 + pid)
    return ModelView(
        name,
        claim_of(ownership, pid),
        identity=identity if ownership is not Ownership.GONE or isinstance(record, Bound) else None,
        checked=checked,
        health=draw(healths()) if ownership in (Ownership.OWNED, Ownership.LEGACY) else None,
        age_s=draw(st.none() | st.sampled_from([1.0, 1e6])),
        permitted=ownership not in OURS or not (draw(rarely) and draw(rarely)),
        hosts_us=draw(rarely) and draw(rarely),
        legacy_pid=pid if isinstance(record, Legacy) else None,
    )


def claim_of(ownership: Ownership, pid: int) -> Claim:
    leader = Process(pid, 1, pid, pid, "S", 1000 + pid)
    if ownership is Ownership.GONE:
        return Claim(ownership)
    if ownership is Ownership.SURVIVORS:
        return Claim(ownership, None, frozenset({pid + 100}))
    return Claim(ownership, leader, frozenset({pid, pid + 100}))


@st.composite
def healths(draw: st.DrawFn) -> Health:
    name = draw(st.sampled_from(HealthName))
    if name is HealthName.EXACT or not draw(rarely):
        return EXACT
    return Health(name, f"it is {name}", tuple(draw(st.sets(st.sampled_from(["m", "x"])))))


@st.composite
def listening(draw: st.DrawFn, models: dict[str, ModelView]) -> tuple[Listener, ...]:
    """Models that are exact hold their own port alone; everything else may be anything."""
    found = [
        Listener("127.0.0.1", view.checked.port, 1, 0, view.claim.members)
        for view in models.values()
        if view.claim.members and view.checked is not None and (view.exact or draw(st.booleans()))
    ]
    if draw(rarely):
        port = draw(st.sampled_from(PORTS))
        pids = draw(st.sampled_from([frozenset({STRANGER_PID}), frozenset()]))
        found.append(Listener("127.0.0.1", port, 2, 33, pids, "pid 9999 (nginx)"))
    return tuple(found)


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    registry = draw(registries())
    subset = st.sets(st.sampled_from(NAMES))
    recorded = draw(st.sampled_from([set(s.models) for s in registry.scenes.values()]) | subset)
    processes = {
        name: draw(records(name, 41 + index, registry))
        for index, name in enumerate(NAMES)
        if name in recorded
    }
    scene = st.sampled_from([None, *SCENES, "unknown"])
    state = NodeState(
        desired_scene=draw(scene),
        active_scene=draw(scene),
        last_known_good_scene=draw(scene),
        transition_scene=draw(scene),
        last_error=draw(st.sampled_from([None, "cause"])),
        processes=processes,
        resume_failures=draw(st.none() | st.just(ResumeFailures("one", "0" * 16, 3))),
        deactivating=draw(rarely),
    )
    seen = {name: draw(views(name, processes.get(name), registry)) for name in NAMES}
    world = World(
        models=seen,
        listeners=draw(listening(seen)),
        memory=draw(st.none() | st.builds(Memory, st.integers(0, 9), st.just(16))),
        unstartable={"a": ("no program",)} if draw(rarely) else {},
        footprints=draw(st.dictionaries(st.sampled_from(NAMES), st.integers(0, 4))),
    )
    return Snapshot(registry, state, world)


def recorded_definitions(now: Snapshot) -> tuple[Model, ...]:
    """What a restore would put back: at most one definition for a port."""
    bound = [r.definition for r in now.state.processes.values() if isinstance(r, Bound)]
    return tuple({model.port: model for model in bound}.values())


ORDERS: dict[str, Callable[[Snapshot], Planned]] = {
    "activate": lambda now: plan_activate(now, "one", floor_bytes=2),
    "resume": lambda now: plan_next_resume(now, force=False, floor_bytes=2),
    "resume --force": lambda now: plan_next_resume(now, force=True),
    "fallback": plan_fallback,
    "restore": lambda now: plan_restore(now, "one", recorded_definitions(now)),
    "deactivate": lambda now: plan_stop_all(now, "deactivate"),
    "adopt": lambda now: plan_adopt(now, "one", {}, frozenset({1, 41})),
}


@given(snapshots())
def test_every_rule_holds_for_every_order(now: Snapshot) -> None:
    """All in one, since a snapshot costs more to make than to plan with."""
    for name, order in ORDERS.items():
        before = copy.deepcopy(now)
        found = order(now)
        assert now == before, f"{name} changed what it was given"
        assert order(now) == found
        match found:
            case Refusals():
                every_reason_is_told_once_in_one_line(found)
            case AdoptPlan():
                nothing_unproved_is_adopted(found, now)
            case Plan():
                no_model_is_both_kept_and_touched(found)
                what_is_ours_is_kept_or_stopped_and_nothing_else(found, now)
                no_foreign_record_and_no_living_bare_pid_gets_past(now)
                ports_of_starts_are_free_once_the_stops_are_done(found, now)
                starts_fit_into_the_memory_that_is_known(found)
                if name in ("activate", "fallback"):
                    every_model_of_the_scene_is_there_once_and_starts_in_order(found, now)


def every_reason_is_told_once_in_one_line(found: Refusals) -> None:
    assert found.reasons
    assert len(set(found.reasons)) == len(found.reasons)
    texts = [text for reason in found.reasons for text in (reason.message, reason.hint)]
    assert all(text and len(text.splitlines()) == 1 for text in texts)


def nothing_unproved_is_adopted(found: AdoptPlan, now: Snapshot) -> None:
    for name in found.records:
        view = now.world.view(name)
        assert view.ownership in (Ownership.OWNED, Ownership.LEGACY)
        assert view.health == EXACT
        assert view.permitted


def no_model_is_both_kept_and_touched(found: Plan) -> None:
    kept, stopped = [k.model for k in found.keep], [s.model for s in found.stop]
    started = [s.model for s in found.start]
    for names in (kept, stopped, started):
        assert len(set(names)) == len(names)
    assert not set(kept) & {*stopped, *started, *found.forget}
    assert not set(stopped) & set(found.forget)


def what_is_ours_is_kept_or_stopped_and_nothing_else(found: Plan, now: Snapshot) -> None:
    for step in found.stop:
        view = now.world.view(step.model)
        assert step.record is now.state.processes[step.model]
        assert view.ownership in OURS
        assert view.permitted
        assert not view.hosts_us
    for kept in found.keep:
        record, view = now.state.processes[kept.model], now.world.view(kept.model)
        assert isinstance(record, Bound)
        assert record.identity == kept.identity
        assert view.ownership is Ownership.OWNED
        assert kept.loading != view.exact
    ours = {name for name in now.state.processes if now.world.view(name).ownership in OURS}
    assert ours == {k.model for k in found.keep} | {s.model for s in found.stop}


def no_foreign_record_and_no_living_bare_pid_gets_past(now: Snapshot) -> None:
    found = {now.world.view(name).ownership for name in now.state.processes}
    assert not found & {Ownership.FOREIGN, Ownership.LEGACY}


def ports_of_starts_are_free_once_the_stops_are_done(found: Plan, now: Snapshot) -> None:
    stopped = [now.world.view(step.model) for step in found.stop]
    ends = frozenset(pid for view in stopped for pid in view.claim.members)
    by_any = {
        view.checked.port
        for view in stopped
        if view.checked is not None and view.checked.port_owner is PortOwner.ANY
    }
    for step in found.start:
        for listener in now.world.listeners:
            if listener.port == step.definition.port and listener.port not in by_any:
                assert listener.pids
                assert listener.pids <= ends


def starts_fit_into_the_memory_that_is_known(found: Plan) -> None:
    memory = found.memory
    if memory is None or memory.after_bytes is None or found.command == "restore":
        return
    assert not memory.needs_bytes or memory.after_bytes >= memory.floor_bytes


def every_model_of_the_scene_is_there_once_and_starts_in_order(found: Plan, now: Snapshot) -> None:
    assert found.scene is not None
    order = now.registry.scenes[found.scene].models
    assert sorted(model.name for model in found.target) == sorted(order)
    started = [step.model for step in found.start]
    assert started == sorted(started, key=order.index)


def carried_out(now: Snapshot, plan: Plan) -> Snapshot:
    """The node once `plan` has done all it says and every model has become exactly healthy."""
    definitions = {model.name: model for model in plan.target}
    identities = {kept.model: kept.identity for kept in plan.keep}
    for index, step in enumerate(plan.start):
        identities[step.model] = Identity("boot", 500 + index, 9000 + index)
    after = {name: Bound(identities[name], model) for name, model in definitions.items()}
    seen = {name: ModelView(name, checked=model) for name, model in now.registry.models.items()}
    for name, record in after.items():
        claim = claim_of(Ownership.OWNED, record.identity.pid)
        seen[name] = ModelView(name, claim, record.identity, record.definition, EXACT)
    listeners = tuple(
        Listener("127.0.0.1", record.definition.port, 1, 0, seen[name].claim.members)
        for name, record in after.items()
    )
    state = NodeState(desired_scene=plan.scene, active_scene=plan.scene, processes=after)
    return Snapshot(now.registry, state, World(seen, listeners))


@given(snapshots())
def test_a_plan_that_was_carried_out_leaves_nothing_to_resume(now: Snapshot) -> None:
    for name, order in ORDERS.items():
        found = order(now)
        if not isinstance(found, Plan) or name == "restore":
            continue
        then = carried_out(now, found)
        again = plan_next_resume(then, force=False, floor_bytes=1 << 60)
        assert isinstance(again, Plan)
        assert again.settled
        assert again.scene == found.scene
        assert not again.warnings
        if name == "activate":
            repeated = plan_activate(then, "one", floor_bytes=1 << 60)
            assert isinstance(repeated, Plan)
            assert repeated.settled


@given(snapshots())
def test_an_adopted_scene_is_settled_and_keeps_its_processes(now: Snapshot) -> None:
    found = plan_adopt(now, "one", {})
    if not isinstance(found, AdoptPlan):
        return
    state = adopt(now.state, "one", found.records)
    models = now.registry.models_of("one")
    kept = tuple(Keep(m.name, found.records[m.name].identity, m) for m in models)
    world = carried_out(now, Plan("adopt", "one", keep=kept)).world
    gone = {name: ModelView(name, Claim(Ownership.GONE)) for name in state.processes}
    views = {**world.models, **gone, **{k.model: world.models[k.model] for k in kept}}
    again = plan_activate(Snapshot(now.registry, state, replace(world, models=views)), "one")
    assert isinstance(again, Plan)
    assert again.settled
    assert [k.identity for k in again.keep] == [k.identity for k in kept]
