"""Ctrl-C at every effect of a command: the first puts everything back, the second leaves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
from _pytest.mark import ParameterSet

from lumbridge_compute.core.state import NodeState
from lumbridge_compute.errors import Exit
from tests.fakes.faults import Fault, Kind
from tests.proof.enumerator import LASTING, ORDERS, Story, Telling
from tests.proof.facts import ours, state_of, whole
from tests.proof.report import render_told

COMMANDS = (
    ("day", "activate-night"),
    ("rebooted", "resume"),
    ("rebooted", "resume-agent"),
    ("crashed_stopping", "resume"),
    ("night", "deactivate"),
)

AGENTS = (("rebooted", "resume-agent"), ("crashed_loading", "resume-agent"))


def _moments(
    commands: Iterable[tuple[str, str]] = COMMANDS, *, lasting: bool = False
) -> Iterator[ParameterSet]:
    """Every effect of the first command; of the others, or all if `lasting`, those that last: each
    `await` lies between two."""
    for number, (start, order) in enumerate(commands):
        for call in Telling(Story(start, order)).run("command", ORDERS[order]).calls:
            if call.name in LASTING or (number == 0 and not lasting):
                fault = Fault(Kind.INTERRUPT, call.number)
                yield pytest.param(start, order, fault, id=f"{start}-{order}-{fault}-{call.name}")


@pytest.mark.parametrize(("start", "order", "fault"), list(_moments()))
def test_an_interrupt_puts_the_node_back_or_comes_too_late(
    start: str, order: str, fault: Fault
) -> None:
    telling = Telling(Story(start, order, (fault,)))
    run = telling.run("command", ORDERS[order], (fault,))
    told = telling.told()
    assert not told.violations, render_told(told)
    assert run.outcome is not None
    state, world = state_of(telling.world), telling.world
    if run.outcome.exit is Exit.DONE:
        return  # the witness has seen to it that the target is verified
    assert run.outcome.exit is Exit.INTERRUPTED, render_told(told)
    if run.outcome.error == "interrupted before anything was changed":
        assert state == _first(start), render_told(told)
    elif state.active_scene is None:
        assert not list(ours(world)), render_told(told)
    else:
        assert state.active_scene == _first(start).active_scene
        assert whole(world, state, state.active_scene), render_told(told)


@pytest.mark.parametrize(("start", "order", "fault"), list(_moments(lasting=True)))
def test_a_second_interrupt_leaves_at_once_and_resume_converges(
    start: str, order: str, fault: Fault
) -> None:
    twice = Fault(Kind.INTERRUPT_TWICE, fault.number, fault.after)
    telling = Telling(Story(start, order, (twice,)))
    run = telling.run("command", ORDERS[order], (twice,))
    assert run.outcome is not None
    assert run.outcome.exit in (Exit.DONE, Exit.INTERRUPTED, Exit.DEGRADED)
    if run.outcome.exit is Exit.DEGRADED:
        state = state_of(telling.world)
        assert state.transition_scene is not None or state.deactivating, run.outcome.error
    telling.converge()
    told = telling.told()
    assert not told.violations, render_told(told)


@pytest.mark.parametrize(("start", "order", "fault"), list(_moments(AGENTS, lasting=True)))
def test_an_agent_that_leaves_at_once_leaves_what_the_next_resume_finishes(
    start: str, order: str, fault: Fault
) -> None:
    leave = Fault(Kind.LEAVE, fault.number, fault.after)
    telling = Telling(Story(start, order, (leave,)))
    run = telling.run("command", ORDERS[order], (leave,))
    assert run.outcome is not None
    telling.converge()
    told = telling.told()
    assert not told.violations, render_told(told)


@pytest.mark.parametrize("number", range(0, 120, 7))
def test_the_way_back_itself_can_be_interrupted_anywhere(number: int) -> None:
    first = Fault(Kind.INTERRUPT, 120)
    second = Fault(Kind.INTERRUPT, 121 + number)
    telling = Telling(Story("day", "activate-night", (first, second)))
    telling.run("command", ORDERS["activate-night"], (first, second))
    telling.converge()
    told = telling.told()
    assert not told.violations, render_told(told)


def _first(start: str) -> NodeState:
    return state_of(Telling(Story(start, "resume")).world)
