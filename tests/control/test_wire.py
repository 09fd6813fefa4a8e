"""What goes over the control socket comes back as it was sent."""

from __future__ import annotations

import dataclasses
import json
import types
from collections.abc import Mapping
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumbridge_compute.control.orders import read_order
from lumbridge_compute.control.wire import HIDDEN, WireError, from_plain, to_plain
from lumbridge_compute.core.events import Event, EventKind, Outcome
from lumbridge_compute.core.identity import Identity
from lumbridge_compute.core.plan import Plan, Stop
from lumbridge_compute.core.registry import Model, Registry, Scene
from lumbridge_compute.core.report_outcome import (
    dry_run_document,
    outcome_document,
    render_failure,
    render_now_running,
    render_warnings,
)
from lumbridge_compute.core.report_plan import render_plan
from lumbridge_compute.core.state import Bound
from lumbridge_compute.core.world import World
from lumbridge_compute.errors import Exit
from lumbridge_compute.orders import Order

TEXT = st.text(max_size=8)
SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXT,
    int: st.integers(-(2**40), 2**40),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    types.NoneType: st.none(),
}


def values(kind: Any) -> st.SearchStrategy[Any]:  # noqa: PLR0911 - a case each
    """Values of a type as the classes of core declare them; hidden fields at their default."""
    if kind in SCALARS:
        return SCALARS[kind]
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return st.one_of([values(each) for each in args])
    if origin is tuple and args[-1] is not ...:
        return st.tuples(*[values(each) for each in args])
    if origin is tuple:
        return st.lists(values(args[0]), max_size=2).map(tuple)
    if origin is frozenset:
        return st.frozensets(values(args[0]), max_size=2)
    if origin is not None:
        return st.dictionaries(TEXT, values(args[1]), max_size=2)
    if dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind)
        told = {name: values(hint) for name, hint in hints.items() if name not in HIDDEN}
        make: Any = kind
        return st.builds(make, **told)
    return st.sampled_from(list(kind))


def over_the_wire(value: Any) -> Any:
    return from_plain(type(value), json.loads(json.dumps(to_plain(value))))


@given(values(Event))
def test_an_event_comes_back_as_it_was(event: Event) -> None:
    assert over_the_wire(event) == event


@given(values(Outcome))
def test_an_outcome_comes_back_as_it_was_and_is_rendered_alike(outcome: Outcome) -> None:
    back = over_the_wire(outcome)
    assert back == outcome
    for render in (render_failure, render_warnings, dry_run_document, render_now_running):
        assert render(back) == render(outcome)


@given(values(Plan))
def test_a_plan_that_came_over_is_rendered_alike(plan: Plan) -> None:
    back = over_the_wire(plan)
    if plan.restarted <= {step.model for step in plan.stop}:
        assert render_plan(back) == render_plan(plan)


@given(values(World))
def test_the_document_of_a_world_that_came_over_is_the_same(world: World) -> None:
    registry = Registry(
        {name: Model(name, ("x",), 1, name) for name in world.models},
        {"all": Scene("all", tuple(world.models))},
    )
    outcome = Outcome(Exit.DONE, "all", "all", world=world)
    assert outcome_document(over_the_wire(outcome), registry) == outcome_document(outcome, registry)


def test_what_a_process_is_proved_by_is_not_told() -> None:
    record = Bound(
        Identity("boot", 4242, 7), Model("m", ("x",), 1, "m"), token="secret", extra={"k": 1}
    )
    plan = Plan("activate", "s", stop=(Stop("m", record),))
    told = json.dumps(to_plain(Event(EventKind.PLANNED, plan=plan)))
    assert "secret" not in told
    assert "extra" not in told


def test_a_newer_side_may_say_more() -> None:
    assert from_plain(Event, {"kind": "note", "mood": "fine"}) == Event(EventKind.NOTE)


@pytest.mark.parametrize(
    ("plain", "said"),
    [
        ({}, "Event lacks 'kind'"),
        ({"kind": "dancing"}, "Event.kind: 'dancing' is not a valid EventKind"),
        ({"kind": ["note"]}, "Event.kind"),
        ({"kind": "note", "pid": "4"}, "Event.pid wants int, found str"),
        ({"kind": "note", "pid": True}, "Event.pid wants int, found bool"),
        ([], "Event wants an object, found list"),
        ({"kind": "planned", "plan": {"command": "x", "scene": None, "keep": {}}}, "wants a list"),
    ],
)
def test_what_is_not_of_the_type_is_named(plain: object, said: str) -> None:
    with pytest.raises(WireError) as caught:
        from_plain(Event, plain)
    assert said in str(caught.value)


@given(values(Order), st.none() | st.integers(1, 2**22 - 1))
def test_an_order_arrives_but_never_in_the_agents_own_name(
    order: Order, client_pid: int | None
) -> None:
    body = {**to_plain(order), "client_pid": client_pid}
    lawful = all(0 < pid < 2**22 for pid in order.pids.values())
    if not lawful:
        with pytest.raises(WireError):
            read_order(body)
        return
    read, pid = read_order(body)
    assert read == dataclasses.replace(order, by_agent=False)
    assert pid == client_pid


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"command": "dance"},
        {"command": "activate", "name": 7},
        {"command": "activate", "name": "x", "wait": 1},
        {"command": "adopt", "name": "x", "pids": {"m": 0}},
        {"command": "adopt", "name": "x", "pids": {"m": -1}},
        {"command": "adopt", "name": "x", "pids": {"m": 2**22}},
        {"command": "resume", "client_pid": "me"},
        {"command": "resume", "client_pid": 0},
    ],
)
def test_an_order_that_makes_no_sense_is_refused(body: Mapping[str, Any]) -> None:
    with pytest.raises(WireError):
        read_order(body)
