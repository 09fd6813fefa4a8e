"""The table of writes: what each step changes of the five fields, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from lumbridge_compute.core import state as steps
from lumbridge_compute.core.identity import Identity
from lumbridge_compute.core.registry import Model
from lumbridge_compute.core.state import (
    MAX_LINE_CHARS,
    Bound,
    FloorLatch,
    Legacy,
    NodeState,
    ResumeFailures,
)

RECORD = Bound(Identity("boot", 42, 1000), Model("m", ("run",), 8001, "m"))
BEFORE = NodeState(
    desired_scene="D",
    active_scene="A",
    last_known_good_scene="L",
    transition_scene="X",
    last_error="E",
    processes={"m": RECORD},
    resume_failures=ResumeFailures("D", "digest", 2),
    floor_latch=FloorLatch("D", "boot", "noon"),
    extra={"kept": 1},
)
Step = Callable[[NodeState], NodeState]
Five = tuple[str | None, str | None, str | None, str | None, str | None]


def five(state: NodeState) -> Five:
    return (
        state.desired_scene,
        state.active_scene,
        state.last_known_good_scene,
        state.transition_scene,
        state.last_error,
    )


TABLE: dict[str, tuple[Step, Five]] = {
    #                                                        desired active good transition error
    "begin": (lambda s: steps.begin(s, "T"), ("D", None, "L", "T", None)),
    "rollback begins": (lambda s: steps.rollback_begins(s, "why"), ("D", "A", "L", "X", "why")),
    "a record enters": (lambda s: steps.with_record(s, "n", RECORD), ("D", "A", "L", "X", "E")),
    "a record leaves": (lambda s: steps.without_records(s, ["m"]), ("D", "A", "L", "X", "E")),
    "a process ends": (
        lambda s: steps.without_processes(s, [RECORD.identity]),
        ("D", "A", "L", "X", "E"),
    ),
    "commit": (lambda s: steps.commit(s, "T", "P"), ("T", "T", "P", None, None)),
    "commit of the same": (lambda s: steps.commit(s, "T", "T"), ("T", "T", "L", None, None)),
    "commit after none": (lambda s: steps.commit(s, "T", None), ("T", "T", "L", None, None)),
    "restored": (lambda s: steps.restored(s, "P", "why"), ("D", "P", "L", None, "why")),
    "failed": (lambda s: steps.failed(s, "why"), ("D", None, "L", None, "why")),
    "resumed on last known good": (
        lambda s: steps.resumed_on_last_known_good(s, "why"),
        ("D", "L", "L", None, "why"),
    ),
    "adopt": (lambda s: steps.adopt(s, "N", {}), ("N", "N", "L", None, None)),
    "deactivate begins": (steps.deactivate_begin, (None, None, "L", None, "E")),
    "deactivate ends": (steps.deactivate_end, ("D", "A", "L", None, "E")),
    "a loss": (lambda s: steps.record_loss(s, "why"), ("D", None, "L", "X", "why")),
}


@pytest.mark.parametrize("row", TABLE)
def test_a_step_writes_what_the_table_says(row: str) -> None:
    step, after = TABLE[row]
    assert five(step(BEFORE)) == after


@pytest.mark.parametrize("row", TABLE)
def test_no_step_drops_what_it_does_not_know(row: str) -> None:
    assert TABLE[row][0](BEFORE).extra == {"kept": 1}


@pytest.mark.parametrize("row", TABLE)
def test_no_step_changes_what_it_was_given(row: str) -> None:
    before = replace(BEFORE, processes=dict(BEFORE.processes))
    TABLE[row][0](before)
    assert before == BEFORE


@pytest.mark.parametrize("row", [row for row in TABLE if not row.startswith("a ")])
def test_processes_change_by_their_own_steps_alone(row: str) -> None:
    assert TABLE[row][0](BEFORE).processes == {"m": RECORD}


@pytest.mark.parametrize("row", TABLE)
def test_failures_and_latch_are_cleared_by_a_commit_and_an_adoption_alone(row: str) -> None:
    after = TABLE[row][0](BEFORE)
    cleared = row.startswith(("commit", "adopt"))
    assert (after.resume_failures is None) == cleared
    assert (after.floor_latch is None) == cleared


def test_the_first_scene_is_its_own_last_known_good() -> None:
    fresh = NodeState()
    assert steps.commit(fresh, "T", None).last_known_good_scene == "T"
    assert steps.adopt(fresh, "T", {}).last_known_good_scene == "T"


def test_a_deactivation_is_marked_until_it_ends() -> None:
    begun = steps.deactivate_begin(BEFORE)
    assert begun.deactivating
    assert not steps.deactivate_end(begun).deactivating
    assert not steps.begin(begun, "T").deactivating


def test_a_record_takes_the_place_of_the_older_one() -> None:
    newer = replace(RECORD, token="t")
    assert steps.with_record(BEFORE, "m", newer).processes == {"m": newer}
    assert steps.adopt(BEFORE, "N", {"m": newer, "n": RECORD}).processes == {
        "m": newer,
        "n": RECORD,
    }


def test_the_end_of_a_process_leaves_a_newer_record_alone() -> None:
    newer = Bound(Identity("boot", 43, 1000), RECORD.definition)
    state = replace(BEFORE, processes={"m": newer, "old": Legacy(42)})
    assert steps.without_processes(state, [RECORD.identity]).processes == state.processes


def test_dropping_what_is_not_there_changes_nothing() -> None:
    assert steps.without_records(BEFORE, ["other"]) == BEFORE


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("one\n  two\ttabs\r\n\n three", "one two tabs three"),
        ("", ""),
        ("x" * 5000, "x" * (MAX_LINE_CHARS - 3) + "..."),
    ],
)
def test_an_error_is_one_line_of_bounded_length(text: str, line: str) -> None:
    assert steps.failed(BEFORE, text).last_error == line
