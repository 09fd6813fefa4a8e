"""The agent's tree: how it begins and ends, and what each child does when the machine changes."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from lumbridge_compute.client import AgentLost
from lumbridge_compute.core.events import Event, EventKind, Outcome
from lumbridge_compute.core.registry import Address, GatewaySpec, Registry
from lumbridge_compute.core.state import NodeState
from lumbridge_compute.errors import BadInput, Exit
from lumbridge_compute.watchdog.protocol import FloorEventKind
from tests.fakes.running import Nobody
from tests.fakes.sim_effects import Call, SimEffects
from tests.fakes.world import World
from tests.proof.facts import whole
from tests.proof.starts import PROGRAMS, REGISTRY, day, fresh, rebooted
from tests.resident.tree import CHILDREN, SimGuard, Tree, causes, kinds
from tests.system.node import free_port

MIB = 1 << 20
LEAVES_WITHIN_S = 10.0
OUTSIDE_IN = [*CHILDREN.values()]
"""The order of the drawing."""


@pytest.fixture(autouse=True)
def _no_service_manager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    monkeypatch.delenv("WATCHDOG_USEC", raising=False)


def history(world: World) -> list[dict[str, object]]:
    lines = (world.disk.read("history.jsonl") or b"").splitlines()
    return [json.loads(line) for line in lines]


def orders(tree: Tree) -> list[str]:
    """Each time that the node's lock was taken, and for what."""
    return [call.detail for call in tree.effects.calls if call.name == "try_lock"]


# how it begins and ends


def test_the_children_begin_from_the_outside_in_and_end_from_the_inside_out(tmp_path: Path) -> None:
    tree = Tree(day(0), tmp_path).run()
    assert tree.failure is None
    assert tree.record.begun == OUTSIDE_IN
    # The resume has ended by itself, and who was told to leave has done so by then.
    lasting = [name for name in reversed(OUTSIDE_IN) if name not in ("resume-once", "signals")]
    assert tree.record.ended == ["resume-once", "signals", *lasting]


def test_at_rest_it_leaves_at_once_with_the_models_as_they_are(tmp_path: Path) -> None:
    world = day(0)
    before, state = {b.model: b.pid for b in world.ours() if b.leads}, world.disk.read("state.yaml")
    tree = Tree(world, tmp_path).run()
    assert tree.failure is None
    assert tree.took_s < 1.0
    assert tree.pids() == before
    assert world.disk.read("state.yaml") == state
    assert not [call for call in tree.effects.calls if call.name == "signal_group"]


class Breaking(SimEffects):
    """Effects that fail in one child of the agent, with what nobody has foreseen."""

    child = ""
    armed = False

    def effect(self, name: str, detail: str = "") -> Call:
        if self.armed and trio.lowlevel.current_task().name.endswith(f".{self.child}"):
            raise ZeroDivisionError(self.child)
        return super().effect(name, detail)


@pytest.mark.parametrize("child", ["Transactions.run", "ProcessWatch._watch", "keep_logs"])
def test_a_child_that_fails_takes_the_agent_down_and_no_model(tmp_path: Path, child: str) -> None:
    def make(world: World) -> SimEffects:
        effects = Breaking(world, Nobody())
        effects.child = child
        return effects

    async def story(tree: Tree) -> None:
        await tree.resumed()
        assert isinstance(tree.effects, Breaking)
        tree.effects.armed = True
        if child == "ProcessWatch._watch":
            tree.end("ear", "killed by SIGKILL")
        if child == "Transactions.run":
            async with tree.client() as node:
                with pytest.raises(AgentLost):
                    await node.deactivate()
        await trio.sleep_forever()

    tree = Tree(day(0), tmp_path, make_effects=make).run(story)
    assert {str(each) for each in causes(tree.failure)} == {child}
    left = {"talk"} if child == "ProcessWatch._watch" else {"ear", "talk"}
    assert tree.pids().keys() == left
    assert not [call for call in tree.effects.calls if call.name == "signal_group"]


def test_a_guard_that_fails_takes_the_agent_down_and_no_model(tmp_path: Path) -> None:
    class Broken(SimGuard):
        async def set_order(self, names: object) -> None:
            raise ZeroDivisionError("floor")

    floored = replace(REGISTRY, memory_floor_bytes=64 * MIB)
    tree = Tree(day(0), tmp_path, floored, open_guard=Broken)

    async def forever(_tree: Tree) -> None:
        await trio.sleep_forever()

    tree.run(forever)
    assert [str(each) for each in causes(tree.failure)] == ["floor"]
    assert tree.pids().keys() == {"ear", "talk"}


# SIGTERM in the middle of a transaction


@pytest.mark.parametrize(
    "moment",
    [
        EventKind.PLANNED,
        EventKind.STOPPING,
        EventKind.STOPPED,
        EventKind.SETTLING,
        EventKind.STARTING,
        EventKind.LOADING,
        EventKind.HEALTHY,
        EventKind.VERIFYING,
        EventKind.COMMITTED,
    ],
)
def test_told_to_leave_in_a_switch_it_leaves_a_proven_scene(
    tmp_path: Path, moment: EventKind
) -> None:
    async def story(tree: Tree) -> None:
        await tree.resumed()

        def hear(event: Event) -> None:
            if event.kind is moment:
                tree.leave()

        async with tree.client() as node:
            outcomes.append(await node.activate("night", on_event=hear))

    outcomes: list[Outcome] = []
    tree = Tree(day(0), tmp_path).run(story)
    (outcome,), state = outcomes, tree.state
    assert tree.failure is None
    assert tree.took_s <= LEAVES_WITHIN_S
    assert state.transition_scene is None
    assert state.active_scene is not None
    assert whole(tree.world, state, state.active_scene)
    wanted = ("night", Exit.DONE) if outcome.ok else ("day", Exit.INTERRUPTED)
    assert (state.active_scene, outcome.exit) == wanted
    assert tree.pids().keys() == set(REGISTRY.scenes[state.active_scene].models)


def test_what_the_time_does_not_allow_is_left_to_the_next_agent(tmp_path: Path) -> None:
    slow = replace(PROGRAMS["talk"], load_s=9.0)

    async def story(tree: Tree) -> None:
        await tree.resumed()

        def hear(event: Event) -> None:
            if event.kind is EventKind.VERIFYING:
                tree.leave()

        async with tree.client() as node:
            outcomes.append(await node.activate("night", on_event=hear))

    outcomes: list[Outcome] = []
    tree = Tree(day(0, talk=slow), tmp_path).run(story)
    assert tree.failure is None
    assert tree.took_s <= LEAVES_WITHIN_S
    assert outcomes[0].exit is Exit.DEGRADED
    assert (tree.state.transition_scene, tree.state.active_scene) == ("night", None)
    loading = tree.pids()["talk"]
    after = Tree(tree.world, tmp_path).run()
    assert after.state.active_scene == "day"
    assert whole(after.world, after.state, "day")
    assert after.pids()["talk"] == loading


def test_told_to_leave_in_its_own_resume_it_leaves_the_models_loading(tmp_path: Path) -> None:
    async def story(tree: Tree) -> None:
        await tree.until(lambda: "talk" in tree.pids())

    world = rebooted(0)
    world.programs["talk"] = replace(PROGRAMS["talk"], load_s=5.0)
    tree = Tree(world, tmp_path).run(story)
    assert tree.failure is None
    assert tree.took_s < 2.0
    loading = tree.pids()
    assert loading.keys() == {"ear", "talk"}
    after = Tree(world, tmp_path).run()
    assert after.pids() == loading
    assert whole(world, after.state, "day")


# resume-once


def test_it_resumes_once_and_does_not_bring_back_what_dies_later(tmp_path: Path) -> None:
    async def story(tree: Tree) -> None:
        await tree.resumed()
        assert tree.state.active_scene == "day"
        tree.end("talk", "killed by SIGKILL")
        await tree.until(lambda: tree.state.active_scene is None)
        await trio.sleep(3000)

    tree = Tree(rebooted(0), tmp_path).run(story)
    assert tree.failure is None
    assert orders(tree) == ["scene resume", "agent"]
    assert tree.record.begun.count("resume-once") == 1
    assert tree.pids().keys() == {"ear"}


def test_a_resume_that_fails_is_recorded_and_ends_nothing(tmp_path: Path) -> None:
    world = rebooted(0)
    for name in ("talk", "think"):
        world.programs[name] = replace(PROGRAMS[name], dies_after_s=0.01)

    async def story(tree: Tree) -> None:
        await tree.resumed()
        async with tree.client() as node:
            told = await node.agent()
            assert told["resumed"]
            assert told["transaction"] is None

    tree = Tree(world, tmp_path).run(story)
    assert tree.failure is None
    assert tree.state.last_error is not None
    assert tree.state.active_scene is None


# SIGHUP


def test_a_good_registry_is_taken_and_a_bad_one_leaves_the_old_in_force(tmp_path: Path) -> None:
    door = GatewaySpec(Address("127.0.0.1", free_port()), Address("127.0.0.1", 8001))
    first = replace(REGISTRY, memory_floor_bytes=64 * MIB)
    better = replace(REGISTRY, memory_floor_bytes=32 * MIB, gateways=(door,))

    async def story(tree: Tree) -> None:
        await tree.resumed()
        assert tree.guard is not None
        async with tree.client() as node:

            async def wait_for(fault: str | None, floor_bytes: int) -> list[str]:
                while True:
                    told = await node.agent()
                    if (told["registry_fault"], told["floor"]["bytes"]) == (fault, floor_bytes):
                        return [each["listen"] for each in told["gateways"]]
                    await trio.sleep(0.01)

            assert await wait_for(None, 64 * MIB) == []
            tree.registry = better
            signal.raise_signal(signal.SIGHUP)
            assert await wait_for(None, 32 * MIB) == [str(door.listen)]
            tree.registry = BadInput("compute.yaml:3:1: unknown key 'modles'")
            signal.raise_signal(signal.SIGHUP)
            said = "compute.yaml:3:1: unknown key 'modles'"
            assert await wait_for(said, 32 * MIB) == [str(door.listen)]
            assert (await node.activate("night")).exit is Exit.BAD_INPUT
            tree.registry = better
            signal.raise_signal(signal.SIGHUP)
            assert await wait_for(None, 32 * MIB) == [str(door.listen)]
        await tree.until(lambda: tree.guard is not None and tree.guard.floor_bytes == 32 * MIB)

    assert Tree(day(0), tmp_path, first).run(story).failure is None


def test_a_reload_waits_for_the_transaction_under_way(tmp_path: Path) -> None:
    faults: list[str | None] = []

    async def story(tree: Tree) -> None:
        await tree.resumed()

        def hear(event: Event) -> None:
            if event.kind is EventKind.STOPPING:
                tree.registry = BadInput("no")
                signal.raise_signal(signal.SIGHUP)

        async with tree.client() as node:
            await look(node.agent, [])
            assert (await node.activate("night", on_event=hear)).ok
            while not faults:
                await look(node.agent, faults)
                await trio.sleep(0.01)

    async def look(agent: Callable[[], Awaitable[object]], into: list[str | None]) -> None:
        told = await agent()
        assert isinstance(told, dict)
        if told["registry_fault"] is not None:
            into.append(told["registry_fault"])

    tree = Tree(day(0), tmp_path).run(story)
    assert tree.failure is None
    assert faults == ["no"]
    assert tree.state.active_scene == "night"


# the process watch and the floor


def test_a_death_is_recorded_with_its_cause_and_its_last_words(tmp_path: Path) -> None:
    async def story(tree: Tree) -> None:
        await tree.resumed()
        tree.end("talk", "killed by SIGSEGV")
        await tree.until(lambda: tree.state.active_scene is None)

    tree = Tree(day(0), tmp_path).run(story)
    state = tree.state
    assert state.last_error is not None
    assert state.last_error.startswith("'talk' ended unexpectedly (killed by SIGSEGV)")
    assert "its last words" in state.last_error
    assert state.desired_scene == "day"
    assert "talk" in state.processes  # what becomes of the record is a transaction's matter


def test_a_number_of_the_past_that_is_the_agents_own_now_is_no_target(tmp_path: Path) -> None:
    world = day(0)
    talk = next(body for body in world.living() if body.leads and body.model == "talk")
    for body in list(world.living()):
        if body.start == talk.start:
            world.end(body, "killed by SIGKILL")

    async def story(tree: Tree) -> None:
        await tree.resumed()
        assert tree.effects.own.pid == talk.pid

    tree = Tree(world, tmp_path).run(story)
    assert tree.failure is None
    assert whole(world, tree.state, "day")


def test_a_child_that_fails_while_control_begins_does_not_hold_the_agent_up(
    tmp_path: Path,
) -> None:
    def make(world: World) -> SimEffects:
        effects = Breaking(world, Nobody())
        effects.child, effects.armed = "ProcessWatch.run", True
        return effects

    async def forever(_tree: Tree) -> None:
        await trio.sleep_forever()

    tree = Tree(day(0), tmp_path, make_effects=make, resumes=False).run(forever)
    assert [str(each) for each in causes(tree.failure)] == ["ProcessWatch.run"]


def test_a_death_while_a_command_alone_holds_the_lock_is_recorded_after_it(tmp_path: Path) -> None:
    async def story(tree: Tree) -> None:
        await tree.resumed()
        tree.world.locked_by = 77
        tree.end("talk", "exit code 1")
        await trio.sleep(20)
        assert tree.state.active_scene == "day"
        tree.world.locked_by = None
        await tree.until(lambda: tree.state.active_scene is None)

    assert Tree(day(0), tmp_path).run(story).failure is None


def floor_trips(tree: Tree, model: str) -> None:
    assert tree.guard is not None
    tree.guard.say(FloorEventKind.TERM, model)
    tree.end(model, "killed by SIGTERM")
    tree.guard.say(FloorEventKind.STOPPED, model)


def test_what_the_floor_stops_is_recorded_and_no_agent_starts_it_again(tmp_path: Path) -> None:
    floored = replace(REGISTRY, memory_floor_bytes=64 * MIB)

    async def story(tree: Tree) -> None:
        await tree.resumed()
        guard = tree.guard
        assert guard is not None
        await tree.until(lambda: guard.order)
        assert guard.guarded == tree.pids()
        assert set(guard.order) == {"ear", "talk"}
        floor_trips(tree, "talk")
        await tree.until(lambda: tree.state.floor_latch)
        await tree.until(lambda: any(line["command"] == "floor" for line in history(tree.world)))

    tree = Tree(day(0), tmp_path, floored).run(story)
    assert tree.failure is None
    assert tree.state.active_scene is None
    assert "the memory floor stopped 'talk': 1 MiB available" in (tree.state.last_error or "")
    after = Tree(tree.world, tmp_path, floored).run()
    assert after.failure is None
    assert "talk" not in after.pids()

    async def by_hand(tree: Tree) -> None:
        async with tree.client() as node:
            assert (await node.resume(wait=True)).ok

    last = Tree(tree.world, tmp_path, floored).run(by_hand)
    assert whole(last.world, last.state, "day")
    assert last.state.floor_latch is None


def test_a_floor_that_trips_in_a_switch_has_it_rolled_back(tmp_path: Path) -> None:
    async def story(tree: Tree) -> None:
        await tree.resumed()

        def hear(event: Event) -> None:
            if event.kind is EventKind.LOADING and "think" in tree.pids():
                assert tree.guard is not None
                assert tree.guard.order[0] == "think"
                floor_trips(tree, "think")

        async with tree.client() as node:
            outcomes.append(await node.activate("night", on_event=hear))

    outcomes: list[Outcome] = []
    tree = Tree(day(0), tmp_path, replace(REGISTRY, memory_floor_bytes=64 * MIB)).run(story)
    assert tree.failure is None
    assert outcomes[0].exit is Exit.FAILED_SAFELY
    assert "the memory floor stopped 'think'" in (outcomes[0].error or "")
    assert whole(tree.world, tree.state, "day")


# orders and events


def test_orders_are_carried_out_one_at_a_time_and_every_reader_hears_all_in_order(
    tmp_path: Path,
) -> None:
    told: dict[str, list[Event]] = {name: [] for name in ("night", "day")}
    heard: list[list[Event]] = [[], [], []]

    async def listen(tree: Tree, into: list[Event]) -> None:
        async with tree.client() as node, aclosing(node.events()) as events:
            async for event in events:
                into.append(event)  # noqa: PERF401 - kept also when this is cancelled

    async def switch(tree: Tree, scene: str) -> None:
        async with tree.client() as node:
            assert (await node.activate(scene, wait=True, on_event=told[scene].append)).ok

    async def story(tree: Tree) -> None:
        await tree.resumed()
        async with trio.open_nursery() as readers:
            for into in heard:
                readers.start_soon(listen, tree, into)
            await trio.sleep(1)
            async with trio.open_nursery() as switches:
                switches.start_soon(switch, tree, "night")
                await tree.until(lambda: told["night"])
                async with tree.client() as node:
                    refused = await node.deactivate()
                assert refused.exit is Exit.BUSY
                assert "busy with 'scene activate night'" in (refused.error or "")
                switches.start_soon(switch, tree, "day")
            await tree.until(
                lambda: all(kinds(each).count(EventKind.COMMITTED) == 2 for each in heard)
            )
            readers.cancel_scope.cancel()

    tree = Tree(day(0), tmp_path).run(story)
    assert tree.failure is None
    assert orders(tree) == ["scene resume", "scene activate night", "scene activate day"]
    waiting, *steps = told["day"]
    assert "waiting: the agent" in (waiting.detail or "")
    for each in heard:
        assert each == [*told["night"], *steps]
    first, second = [call.number for call in tree.effects.calls if call.name == "unlock"][1:]
    begins = [call.number for call in tree.effects.calls if call.name == "try_lock"][2]
    assert first < begins < second


# the service manager


@asynccontextmanager
async def manager(
    monkeypatch: pytest.MonkeyPatch, path: Path, said: list[str]
) -> AsyncIterator[None]:
    """Takes what the agent tells, as systemd would."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.bind(
            str(path)
        )  # trio would do it in a thread, for which the mock clock does not wait
        bound.settimeout(0)
        sock = trio.socket.from_stdlib_socket(bound)
        monkeypatch.setenv("NOTIFY_SOCKET", str(path))

        async def receive() -> None:
            while True:
                said.extend((await sock.recv(4096)).decode().splitlines())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            yield
            nursery.cancel_scope.cancel()


def test_the_service_manager_hears_when_it_serves_what_it_does_and_that_it_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    world = rebooted(0)
    world.programs["talk"] = replace(PROGRAMS["talk"], load_s=5.0)

    async def story(tree: Tree) -> None:
        await tree.resumed()
        await tree.until(lambda: said[-1] == "STATUS=at rest")

    Tree(world, tmp_path, around=lambda: manager(monkeypatch, tmp_path / "notify", said)).run(story)
    ready, resuming = said.index("READY=1"), _index(said, "STATUS=scene resume, for")
    assert ready < resuming < said.index("STATUS=at rest", resuming) < said.index("STOPPING=1")
    assert said.count("READY=1") == 1


def _index(said: list[str], start: str) -> int:
    return next(number for number, line in enumerate(said) if line.startswith(start))


def test_an_empty_node_is_served_and_left(tmp_path: Path) -> None:
    tree = Tree(fresh(0), tmp_path, Registry({}, {})).run()
    assert tree.failure is None
    assert tree.state == NodeState()
