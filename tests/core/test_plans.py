"""Plans: each case file shows a registry, a state and a world, and what must come of an order."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from lumbridge_compute.core.plan import AdoptPlan, Plan, Refusals
from lumbridge_compute.core.state import Bound
from tests.core.case_values import BadCase
from tests.core.plan_cases import (
    CASES,
    case_files,
    complete,
    parse_case,
    render_outcome,
)

ORDERS = {"activate", "resume", "fallback", "restore", "deactivate", "adopt"}


@pytest.mark.parametrize("path", case_files(), ids=lambda p: str(p.relative_to(CASES)))
def test_plan(path: Path) -> None:
    case = parse_case(path.read_text(encoding="utf-8"))
    before = copy.deepcopy(case.now)
    found = case.plan()
    assert render_outcome(case, found) == complete(case.expected)
    assert case.now == before, "planning must not change what it is given"
    if isinstance(found, Plan):
        assert all(case.now.state.processes[step.model] == step.record for step in found.stop)
        if found.command in ("activate", "resume"):
            assert all(
                step.definition == case.now.registry.models[step.model] for step in found.start
            )
    if isinstance(found, AdoptPlan):
        assert all(r.definition == case.now.registry.models[n] for n, r in found.records.items())
    if isinstance(found, Refusals):
        assert all("\n" not in reason.message + reason.hint for reason in found.reasons)
        assert all(reason.hint for reason in found.reasons)


def test_every_order_has_its_folder_of_cases() -> None:
    assert {path.parent.name for path in case_files()} == ORDERS
    assert len(case_files()) >= 60


@pytest.mark.parametrize("path", case_files(), ids=lambda p: str(p.relative_to(CASES)))
def test_a_case_is_in_the_folder_of_its_order(path: Path) -> None:
    order = next(
        line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("order:")
    )
    assert order.split()[1] == path.parent.name


BUSY = "resume/busy-is-kept-at-any-age.yaml"


def test_a_busy_process_is_given_its_whole_timeout_at_any_age() -> None:
    plan = parse_case((CASES / BUSY).read_text(encoding="utf-8")).plan()
    assert isinstance(plan, Plan)
    assert [kept.age_s for kept in plan.keep] == [0]


WHOLE = """
about: A model that is not there is started.
registry: {models: {a: 8001}, scenes: {one: [a]}}
state: {records: {a: 41}}
world: {models: {a: gone}}
order: activate one
plan: {start: [a], forget: [a]}
"""


def test_the_case_that_is_spoilt_below_is_whole() -> None:
    case = parse_case(WHOLE)
    assert render_outcome(case, case.plan()) == complete(case.expected)
    assert isinstance(case.now.state.processes["a"], Bound)


@pytest.mark.parametrize(
    ("part", "spoilt"),
    [
        ("about:", "abuot:"),
        ("state:", "states:"),
        ("a: 8001", "a: {port: 8001, makrer: b}"),
        ("a: 8001", "a: {marker: b}"),
        ("one: [a]", "one: [b]"),
        ("a: 41", "a: {pid: 41, token: t, tokn: t}"),
        ("a: 41", "a: {legacy: 41, pid: 41}"),
        ("a: 41", "a: {pid: 41, was: {comand: x}}"),
        ("a: gone", "a: {is: gone, heatlh: exact}"),
        ("a: gone", "a: owned exact really"),
        ("a: gone", "b: gone"),
        ("{models: {a: gone}}", "{}"),
        ("{models: {a: gone}}", "{models: {a: gone}, ports: {8001: b}}"),
        ("{models: {a: gone}}", "{models: {a: gone}, footprints: {b: 1}}"),
        ("order: activate one", "order: activate"),
        ("order: activate one", "order: reactivate one"),
        ("order: activate one", "order: activate one\nown_pids: [1]"),
        ("{start: [a], forget: [a]}", "{start: [a], forgets: [a]}"),
        ("plan: {start: [a], forget: [a]}", "refused: [{code: x}]"),
        ("plan: {start: [a], forget: [a]}", "refused: [{code: x, says: y, hnt: z}]"),
        ("plan: {start: [a], forget: [a]}", "plan: {}\nrefused: []"),
        ("plan: {start: [a], forget: [a]}", ""),
        ("{start: [a], forget: [a]}", "{start: [a], start: [b]}"),
    ],
)
def test_a_case_with_a_slip_is_refused(part: str, spoilt: str) -> None:
    text = WHOLE.replace(part, spoilt)
    assert text != WHOLE
    with pytest.raises(BadCase):
        parse_case(text)


@pytest.mark.parametrize(
    "wrong",
    [
        "plan: {start: [a]}",
        "plan: {start: [a], forget: [a], keep: [a]}",
        "plan: {start: [a], forget: [a], settled: yes}",
        "plan: {start: [a], forget: [a], scene: two}",
        "plan: {start: [a], forget: [a], memory: {needs: 1}}",
        "plan: {start: [a], forget: [a]}\nwarnings: [something]",
        "refused: [{code: memory, says: not enough}]",
        "adopted: {a: 41}",
    ],
)
def test_a_case_that_expects_something_else_fails(wrong: str) -> None:
    case = parse_case(WHOLE.replace("plan: {start: [a], forget: [a]}", wrong))
    assert render_outcome(case, case.plan()) != complete(case.expected)
