"""How a story can begin: each start is a function from a seed to a world."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from lumbridge_compute.core.digest import digest
from lumbridge_compute.core.registry import HealthCheck, Model, Registry, Scene, StopPolicy
from lumbridge_compute.core.state import (
    Bound,
    FloorLatch,
    Legacy,
    NodeState,
    Record,
    ResumeFailures,
)
from lumbridge_compute.effects import STATE_FILE
from tests.fakes.bodies import Engine, Program
from tests.fakes.world import World

PORTS = {"talk": 8001, "think": 8001, "ear": 8002, "voice": 8003}


def model(name: str, **changes: object) -> Model:
    declared = Model(
        name,
        ("serve", "${port}", "${marker}"),
        PORTS[name],
        f"{name}-v1",
        health=HealthCheck(timeout_s=12.0, request_timeout_s=1.0),
        stop=StopPolicy(grace_s=1.0),
    )
    return replace(declared, **changes)  # type: ignore[arg-type]


MODELS = {name: model(name) for name in PORTS}
REGISTRY = Registry(
    MODELS,
    {
        "day": Scene("day", ("ear", "talk")),
        "night": Scene("night", ("ear", "think", "voice")),
    },
)

TALK = Program(
    load_s=0.03, term_s=0.2, engine=Engine.IN_GROUP, outlives=True, keeps_token=False, loses_terms=1
)
"""Its engine lives on after it and has lost its token; the first TERM has no effect."""
THINK = Program(load_s=0.05, warm_s=0.04, term_s=0.1, engine=Engine.ESCAPED, engine_listens=True)
"""It listens before it is ready; its engine has left the session, and holds the port too."""
EAR = Program(load_s=0.02, ignores_term=True, shares_port=True)
VOICE = Program(load_s=0.02, term_s=0.05, shares_port=True)
PROGRAMS = {"talk": TALK, "think": THINK, "ear": EAR, "voice": VOICE}


def make(seed: int, **programs: Program) -> World:
    """A machine on which nothing of ours runs yet."""
    return World(REGISTRY, {**PROGRAMS, **programs}, seed)


def run(world: World, *names: str, loading: tuple[str, ...] = ()) -> dict[str, Record]:
    """These models run, those of `loading` have just begun."""
    records: dict[str, Record] = {name: world.run_model(MODELS[name]) for name in names}
    records.update((name, world.run_model(MODELS[name], loading=True)) for name in loading)
    return records


def day(seed: int, **programs: Program) -> World:
    """The Scene day is active, and night was the one before."""
    world = make(seed, **programs)
    records = run(world, "ear", "talk")
    world.write_state(NodeState("day", "day", "night", processes=records))
    return world


def fresh(seed: int) -> World:
    return make(seed)


def night(seed: int) -> World:
    world = make(seed)
    records = run(world, "ear", "think", "voice")
    world.write_state(NodeState("night", "night", "day", processes=records))
    return world


def day_with_scopes(seed: int) -> World:
    world = make(seed)
    world.scopes = True
    records = run(world, "ear", "talk")
    world.write_state(NodeState("day", "day", "day", processes=records))
    return world


def day_with_churn(seed: int) -> World:
    """Each PID that becomes free is at once a stranger's."""
    world = day(seed)
    world.churn = True
    return world


def survivors(seed: int) -> World:
    """The first process of talk is dead; its engine carries the token."""
    talk = replace(TALK, keeps_token=True)
    world = day(seed, talk=talk)
    _kill_leader(world, "talk")
    return world


def escaped_survivors(seed: int) -> World:
    """The same of think, whose engine has left the session and holds the port."""
    world = make(seed, think=replace(THINK, outlives=True))
    records = run(world, "ear", "think", "voice")
    world.write_state(NodeState("night", "night", "day", processes=records))
    _kill_leader(world, "think")
    return world


def reused_pid(seed: int) -> World:
    """talk is dead and a stranger has its PID and leads a group."""
    world = day(seed, talk=replace(TALK, engine=Engine.NONE))
    world.churn = True
    _kill_leader(world, "talk")
    world.churn = False
    return world


def reused_pid_with_survivors(seed: int) -> World:
    """The first process of think is dead, a stranger has its PID, and its engine lives on."""
    world = make(seed, think=replace(THINK, outlives=True))
    records = run(world, "ear", "think", "voice")
    world.write_state(NodeState("night", "night", "day", processes=records))
    world.churn = True
    _kill_leader(world, "think")
    world.churn = False
    return world


def rebooted(seed: int) -> World:
    """All has ended with the last boot, and the PIDs are others' by now."""
    world = day(seed)
    world.reboot()
    for _ in range(4):
        world.stranger()
    return world


def crashed_stopping(seed: int) -> World:
    """A switch to night was cut off before talk had stopped."""
    world = make(seed)
    records = run(world, "ear", "talk")
    world.write_state(NodeState("day", None, "day", "night", processes=records))
    return world


def crashed_loading(seed: int) -> World:
    """A switch to night was cut off while think was loading."""
    world = make(seed)
    records = run(world, "ear", loading=("think",))
    world.write_state(NodeState("day", None, "day", "night", processes=records))
    return world


def crashed_whole(seed: int) -> World:
    """A switch to night was cut off just before its commit."""
    world = make(seed)
    records = run(world, "ear", "think", "voice")
    world.write_state(NodeState("day", None, "day", "night", processes=records))
    return world


def crashed_way_back(seed: int) -> World:
    """A rollback was cut off: night is whole, and yet it has failed."""
    world = make(seed)
    records = run(world, "ear", "think", "voice")
    world.write_state(NodeState("day", None, "day", "night", "it has failed", processes=records))
    return world


def crashed_deactivating(seed: int) -> World:
    world = make(seed)
    records = run(world, "ear", "talk")
    world.write_state(NodeState(None, None, "day", processes=records, deactivating=True))
    return world


def degraded(seed: int) -> World:
    """day is desired and nothing is active; night was good, and half of it lives."""
    world = make(seed)
    records = run(world, "ear", "voice")
    world.write_state(NodeState("day", None, "night", None, "it broke", processes=records))
    return world


def wrong_marker(seed: int) -> World:
    """talk says it is another model."""
    return day(seed, talk=replace(TALK, marker="talk-v0"))


def target_crashes(seed: int) -> World:
    """think, which night needs, dies while it loads."""
    return day(seed, think=replace(THINK, dies_after_s=0.03))


def target_lies(seed: int) -> World:
    """voice, which night needs, says it is another model."""
    return day(seed, voice=replace(VOICE, marker="voice-v0"))


def fresh_target_lies(seed: int) -> World:
    """The same on a node on which nothing was ever active."""
    return make(seed, voice=replace(VOICE, marker="voice-v0"))


def target_is_silent(seed: int) -> World:
    return day(seed, voice=replace(VOICE, silent=True))


def target_on_our_port(seed: int) -> World:
    """Something shares the port of voice, and says what voice should say."""
    world = day(seed)
    world.stranger(port=8003, marker="voice-v1")
    return world


def shared_port(seed: int) -> World:
    """A stranger shares the port of ear, and says what ear should say."""
    world = day(seed)
    world.stranger(port=8002, marker="ear-v1")
    return world


def desired_is_broken(seed: int) -> World:
    """talk dies at every start; night was good before; the machine has rebooted."""
    world = day(seed, talk=replace(TALK, dies_after_s=0.02))
    world.reboot()
    return world


def both_broken(seed: int) -> World:
    """Neither Scene can start any more; the machine has rebooted."""
    world = day(seed, ear=replace(EAR, dies_after_s=0.01))
    world.reboot()
    return world


def failing_often(seed: int) -> World:
    """Resume has failed three times in a row."""
    world = desired_is_broken(seed)
    definition = digest(REGISTRY.models_of("day"))
    failures = ResumeFailures("day", definition, 3)
    world.write_state(NodeState("day", None, "day", None, "it broke", resume_failures=failures))
    return world


def latched(seed: int) -> World:
    """The floor has stopped talk in this boot."""
    world = make(seed)
    records = run(world, "ear")
    latch = FloorLatch("day", world.boot_id, "2026-01-01T00:00:00Z")
    state = NodeState("day", None, "day", None, "the floor", records, floor_latch=latch)
    world.write_state(state)
    return world


def changed_definition(seed: int) -> World:
    """talk runs as it was declared yesterday, with another marker."""
    world = make(seed)
    old = model("talk", marker="talk-v0")
    records = run(world, "ear")
    records["talk"] = world.run_model(old)
    world.write_state(NodeState("day", "day", "day", processes=records))
    return world


def changed_shared(seed: int) -> World:
    """ear, which both Scenes have, runs as it was declared yesterday."""
    world = make(seed)
    records: dict[str, Record] = {"ear": world.run_model(model("ear", marker="ear-v0"))}
    records.update(run(world, "talk"))
    world.write_state(NodeState("day", "day", "night", processes=records))
    return world


def legacy(seed: int) -> World:
    """The predecessor's state: bare PIDs."""
    world = make(seed)
    records = {name: world.run_model(MODELS[name], adopted=True) for name in ("ear", "talk")}
    bare: Mapping[str, Record] = {n: Legacy(r.identity.pid) for n, r in records.items()}
    world.write_state(NodeState("day", "day", "night", processes=bare))
    return world


def adopted(seed: int) -> World:
    """day was adopted: no token proves its processes."""
    world = make(seed)
    records: dict[str, Record] = {
        name: world.run_model(MODELS[name], adopted=True) for name in ("ear", "talk")
    }
    world.write_state(NodeState("day", "day", "night", processes=records))
    return world


def damaged(seed: int) -> World:
    """The state file is cut off in the middle."""
    world = day(seed)
    data = world.disk.read(STATE_FILE) or b""
    world.disk.put(STATE_FILE, data[: len(data) // 2])
    return world


def left_temporaries(seed: int) -> World:
    """Writes that were cut off have left their files."""
    world = crashed_loading(seed)
    world.disk.put(f"{STATE_FILE}.abc.tmp", b"half a st")
    return world


STARTS: dict[str, Callable[[int], World]] = {
    each.__name__: each
    for each in (
        fresh,
        day,
        night,
        day_with_scopes,
        day_with_churn,
        survivors,
        escaped_survivors,
        reused_pid,
        reused_pid_with_survivors,
        rebooted,
        crashed_stopping,
        crashed_loading,
        crashed_whole,
        crashed_way_back,
        crashed_deactivating,
        degraded,
        wrong_marker,
        target_crashes,
        target_lies,
        fresh_target_lies,
        target_is_silent,
        target_on_our_port,
        shared_port,
        desired_is_broken,
        both_broken,
        failing_often,
        latched,
        changed_definition,
        changed_shared,
        legacy,
        adopted,
        damaged,
        left_temporaries,
    )
}


def _kill_leader(world: World, name: str) -> None:
    for body in list(world.living()):
        if body.leads and body.model == name:
            world.end(body, "killed by SIGKILL")


def bound(record: Record) -> Bound:
    assert isinstance(record, Bound)
    return record
