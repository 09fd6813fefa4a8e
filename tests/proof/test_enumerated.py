"""A sample of the enumeration; scripts/prove tries all of it."""

from __future__ import annotations

import random
import zlib
from dataclasses import replace

import pytest

from lumbridge_compute.core.events import Outcome
from lumbridge_compute.interruption import Interruption
from lumbridge_compute.orders import Command, Node, Order, run_order
from tests.fakes.faults import Fault, Kind
from tests.fakes.running import SITE, run_work
from tests.fakes.sim_effects import SimEffects, SimSurroundings
from tests.proof.enumerator import ORDERS, Story, Telling, second_stories, stories, tell
from tests.proof.facts import ours, state_of
from tests.proof.report import render_told
from tests.proof.starts import STARTS
from tests.proof.witness import Checks

ONCE, TWICE = 3, 1


@pytest.mark.parametrize("start", STARTS)
def test_every_command_keeps_every_promise_where_nothing_goes_wrong(start: str) -> None:
    for order in ORDERS:
        told = tell(Story(start, order))
        assert not told.violations, render_told(told)


@pytest.mark.parametrize("start", STARTS)
def test_a_sample_of_single_faults_breaks_no_promise(start: str) -> None:
    chance = random.Random(zlib.crc32(start.encode()))
    for story in _sample(chance, start, ONCE):
        told = tell(story)
        assert not told.violations, render_told(told)


@pytest.mark.parametrize("start", STARTS)
def test_a_sample_of_second_deaths_breaks_no_promise(start: str) -> None:
    chance = random.Random(zlib.crc32(start.encode()) + 1)
    for story in _sample(chance, start, TWICE):
        seconds = list(second_stories(story)) if story.faults else []
        for second in chance.sample(seconds, min(1, len(seconds))):
            told = tell(second)
            assert not told.violations, render_told(told)


def test_a_story_goes_the_same_way_each_time() -> None:
    story = Story("day", "activate-night", (Fault(Kind.MODEL_DIES, 60),))
    first, again = tell(story), tell(story)
    assert [run.calls for _, run in first.runs] == [run.calls for _, run in again.runs]
    assert len(first.runs[0][1].calls) > 60


def test_a_story_is_told_again_by_its_words() -> None:
    faults = (Fault(Kind.KILL, 7, after=True), Fault(Kind.POWER, 12))
    assert tuple(Fault.parse(str(fault)) for fault in faults) == faults


# Cases that the enumeration found, each with what broke.


def test_a_restored_model_keeps_its_record_where_the_old_one_was_found_gone() -> None:
    """The interrupt came between the death of talk and the write that drops its record."""
    for number in range(45, 56):
        told = tell(Story("day", "activate-night", (Fault(Kind.INTERRUPT, number),)))
        assert not told.violations, render_told(told)


def test_a_look_that_fails_for_want_of_descriptors_says_nothing_about_processes() -> None:
    """It was a traceback where it came inside a nursery, and exit 3 after the first change."""
    for kind in (Kind.EMFILE, Kind.EMFILE_EVER):
        for number in range(35, 200, 9):
            told = tell(Story("day", "activate-night", (Fault(kind, number),)))
            assert not told.violations, render_told(told)


def test_a_deactivation_with_nothing_active_that_is_interrupted_is_finished() -> None:
    told = tell(Story("crashed_whole", "deactivate", (Fault(Kind.INTERRUPT, 52),)))
    assert not told.violations, render_told(told)


def test_forget_says_so_where_its_write_is_not_sure_to_last() -> None:
    calls = Telling(Story("reused_pid", "forget-talk")).run("command", ORDERS["forget-talk"]).calls
    for call in calls:
        if call.name == "fsync_folder":
            fault = Fault(Kind.EIO, call.number)
            told = tell(Story("reused_pid", "forget-talk", (fault,)))
            assert not told.violations, render_told(told)
            outcome = told.runs[0][1].outcome
            assert outcome is not None
            assert outcome.exit == 4


def test_a_commit_that_may_or_may_not_be_written_is_no_refusal() -> None:
    """Nothing had to be started, the folder could not be synced, and not be read again."""
    orders = (("crashed_way_back", "activate-night"), ("crashed_stopping", "resume"))
    for start, order in orders:
        for call in Telling(Story(start, order)).run("command", ORDERS[order]).calls:
            if call.name == "fsync_folder":
                for kind in (Kind.EIO, Kind.EIO_EVER, Kind.EMFILE_EVER):
                    told = tell(Story(start, order, (Fault(kind, call.number),)))
                    assert not told.violations, render_told(told)
                    outcome = told.runs[0][1].outcome
                    assert outcome is not None
                    assert outcome.exit == 4


@pytest.mark.parametrize("kind", [Kind.ENOSPC, Kind.ENOSPC_EVER], ids=str)
def test_a_begin_that_can_not_be_written_is_a_refusal(kind: Kind) -> None:
    """The disk took the probe write and not the begin: it was exit 4 with nothing changed."""
    for order in ("activate-night", "deactivate"):
        calls = Telling(Story("day", order)).run("command", ORDERS[order]).calls
        _probe, begin, *_ = (call for call in calls if call.name == "create")
        told = tell(Story("day", order, (Fault(kind, begin.number),)))
        assert not told.violations, render_told(told)
        outcome = told.runs[0][1].outcome
        assert outcome is not None
        assert outcome.exit == 3
        assert "cannot write the state" in (outcome.error or "")


def test_a_stranger_on_the_port_of_what_has_stopped_is_not_waited_for() -> None:
    """It failed the stop: a node that was asked to be idle was called degraded."""
    noted = 0
    calls = Telling(Story("day", "deactivate")).run("command", ORDERS["deactivate"]).calls
    for call in calls:
        told = tell(Story("day", "deactivate", (Fault(Kind.STRANGER, call.number),)))
        assert not told.violations, render_told(told)
        outcome = told.runs[0][1].outcome
        assert outcome is not None
        assert outcome.exit == 0, render_told(told)
        noted += any("not ours, not touched" in note for note in outcome.notes)
    assert noted


def test_adopt_judges_by_the_definition_that_it_records() -> None:
    telling = Telling(Story("changed_definition", "adopt-day"))
    run = telling.run("command", Order(Command.ADOPT, "day"))
    assert run.outcome is not None
    assert run.outcome.exit == 3
    assert "talk-v0" in (run.outcome.error or "")
    assert state_of(telling.world).processes


def test_an_agents_own_resume_leaves_what_its_floor_was_faster_to_stop() -> None:
    """The next agent started it again by itself."""
    world, order = STARTS["rebooted"](0), ORDERS["resume-agent"]

    async def work(effects: SimEffects, interruption: Interruption) -> Outcome:
        effects.floor_victims["talk"] = "the memory floor has stopped 'talk'"
        around = SimSurroundings(effects)
        node = Node(effects, SITE, world.read_registry, lambda _event: None, None, around)
        return await run_order(node, order, interruption)

    outcome = run_work(world, work, lambda effects: Checks(effects, order)).outcome
    assert outcome is not None
    assert (outcome.exit, outcome.error) == (4, "the memory floor has stopped 'talk'")
    state = state_of(world)
    assert state.floor_latch is not None
    assert state.active_scene is None
    again = Telling(Story("rebooted", "resume-agent"), world).run("next agent", order)
    assert again.outcome is not None
    assert again.outcome.exit == 3
    assert not list(ours(world))


def _sample(chance: random.Random, start: str, count: int) -> list[Story]:
    seed = chance.randrange(1000)
    orders = [chance.choice(list(ORDERS)) for _ in range(count)]
    return [
        replace(chance.choice(list(stories(start, order, seed))), seed=seed) for order in orders
    ]
