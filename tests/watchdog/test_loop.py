"""The loop with a memory, a clock and a signaller that the test holds."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from lumbridge_compute.core.floor import FloorPolicy, Past
from lumbridge_compute.core.units import GIB
from lumbridge_compute.watchdog.loop import FloorLoop, Senses, Signaller, Target, obey
from lumbridge_compute.watchdog.protocol import (
    FloorEvent,
    FloorEventKind,
    parse_message,
    render_past,
)

TOTAL = 64 * GIB
K = FloorEventKind


class FakeSignaller(Signaller):
    """Victims end when the test says so."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, int]] = []
        self.released: list[str] = []
        self.dead: set[str] = set()
        self.refuses: set[str] = set()

    def send(self, target: Target, number: int) -> bool:
        if target.name in self.refuses:
            raise PermissionError(1, "Operation not permitted")
        self.sent.append((target.name, number))
        return target.name not in self.dead

    def lives(self, target: Target) -> bool:
        return target.name not in self.dead

    def release(self, target: Target) -> None:
        self.released.append(target.name)


class World:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.available: int | None = 32 * GIB
        self.signaller = FakeSignaller()
        self.events: list[FloorEvent] = []
        self.pasts: list[Past] = []
        self.loop = self.new_loop()

    def new_loop(self) -> FloorLoop:
        senses = Senses(lambda: (self.available, TOTAL), lambda: self.now_s, self.signaller)
        loop = FloorLoop(senses, tell=self.events.append, keep=self.pasts.append)
        loop.policy = FloorPolicy(3 * GIB)
        for number, name in enumerate(("a", "b")):
            loop.add(Target(name, os.open("/dev/null", os.O_RDONLY), 100 + number))
        loop.set_order(("a", "b"))
        return loop

    def run(self, seconds: float) -> None:
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self.now_s += self.loop.look()

    def kinds(self) -> list[FloorEventKind]:
        return [event.kind for event in self.events if event.kind is not K.SAMPLE]


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.loop.close()


def test_term_then_kill_then_the_next_each_with_its_figures(world: World) -> None:
    world.available = 2 * GIB
    world.run(10.5)
    assert world.signaller.sent == [("a", signal.SIGTERM), ("a", signal.SIGKILL)]
    assert world.signaller.released == ["a"]
    world.signaller.dead.add("a")
    world.available = 5 * GIB
    world.run(1.5)
    assert world.kinds() == [K.TERM, K.KILL, K.STOPPED]
    term, _, stopped = (event for event in world.events if event.kind is not K.SAMPLE)
    assert (term.victim, term.grace_s, term.available_bytes) == ("a", 10, 2 * GIB)
    assert stopped.exit_s == pytest.approx(10.5, abs=0.1)
    assert (stopped.back_bytes, stopped.detail) == (3 * GIB, "KILL")


def test_a_dead_target_is_never_chosen(world: World) -> None:
    world.signaller.dead.add("a")
    world.available = GIB // 2
    world.run(0.01)
    assert world.signaller.sent == [("b", signal.SIGKILL)]


def test_a_target_outside_the_order_or_removed_is_never_chosen(world: World) -> None:
    world.loop.set_order(("a",))
    world.loop.remove("a")
    world.available = GIB // 2
    world.run(1)
    assert world.signaller.sent == []
    assert world.kinds() == [K.HELPLESS]


def test_a_victim_that_is_let_go_of_while_it_ends_is_waited_for(world: World) -> None:
    world.available = GIB // 2
    world.run(0.01)
    world.loop.remove("a")
    world.available = int(0.9 * GIB)
    world.run(0.9)
    assert world.kinds() == [K.KILL]
    world.run(0.2)
    assert world.kinds() == [K.KILL, K.STOPPED, K.KILL]
    assert world.signaller.sent == [("a", signal.SIGKILL), ("b", signal.SIGKILL)]


def test_a_refused_signal_is_told_and_the_next_is_taken(world: World) -> None:
    world.signaller.refuses.add("a")
    world.available = GIB // 2
    world.run(0.05)
    assert world.signaller.sent == [("b", signal.SIGKILL)]
    assert world.kinds() == [K.REFUSED, K.KILL]
    assert world.events[0].detail == "Operation not permitted"


def test_helpless_is_told_once(world: World) -> None:
    world.signaller.dead.update(("a", "b"))
    world.available = GIB // 2
    world.run(5)
    assert world.kinds() == [K.HELPLESS]


@pytest.mark.parametrize("absurd", [None, 0, -1, TOTAL + 1])
def test_blind_and_sight_again_are_told_once_each(world: World, absurd: int | None) -> None:
    world.run(1)
    world.available = absurd
    world.run(5)
    assert world.kinds() == [K.BLIND]
    assert world.signaller.sent == []
    world.available = 32 * GIB
    world.run(5)
    assert world.kinds() == [K.BLIND, K.SEES]


def test_at_rest_it_looks_four_times_and_tells_once_in_two_seconds(world: World) -> None:
    assert world.loop.look() == 0.25
    world.run(20)
    assert 9 <= len(world.events) <= 12


def test_a_successor_goes_on_where_the_first_stopped(world: World) -> None:
    world.available = 2 * GIB
    world.run(4)
    obey(successor := world.new_loop(), parse_message(render_past(world.pasts[-1])), -1)
    world.loop.close()
    world.loop = successor
    world.run(7)
    assert world.signaller.sent == [("a", signal.SIGTERM), ("a", signal.SIGKILL)]


def test_an_unknown_message_is_refused(world: World) -> None:
    with pytest.raises(ValueError, match="cannot obey 'dance'"):
        obey(world.loop, parse_message(b"dance"), -1)
    with pytest.raises(ValueError, match="no descriptor"):
        obey(world.loop, parse_message(b"add name=a pid=9 group=1"), -1)
