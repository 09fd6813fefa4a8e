"""The agent was lost in the middle: what the command makes of state and world."""

from __future__ import annotations

from typing import Any

import pytest

from lumbridge_compute.cli.lost import judge_finding
from lumbridge_compute.core.health import EXACT, Health, HealthName
from lumbridge_compute.core.identity import Claim, Identity, Ownership, Process
from lumbridge_compute.core.registry import Model, Registry, Scene
from lumbridge_compute.core.report import NodeStatus
from lumbridge_compute.core.state import Bound, NodeState
from lumbridge_compute.core.world import ModelView, World
from lumbridge_compute.errors import Exit
from lumbridge_compute.orders import Command, Order

A, B = (Model(name, ("serve",), 8001, name) for name in "ab")
REGISTRY = Registry(
    {"a": A, "b": B}, {"day": Scene("day", ("a",)), "night": Scene("night", ("b",))}
)
TO_NIGHT = Order(Command.ACTIVATE, "night")


def node(running: Model | None, health: Health = EXACT, **state: Any) -> NodeStatus:
    """A node on which `running` lives and is recorded."""
    views, records = {}, {}
    if running is not None:
        claim = Claim(Ownership.OWNED, Process(9, 1, 9, 9, "S", 1), frozenset({9}))
        identity = Identity("boot", 9, 1)
        views = {running.name: ModelView(running.name, claim, identity, running, health)}
        records = {running.name: Bound(identity, running)}
    return NodeStatus(
        "/srv/node", "0.1.0", World(views), REGISTRY, NodeState(processes=records, **state)
    )


BUSY = Health(HealthName.BUSY, "silent")


@pytest.mark.parametrize(
    ("found", "order", "previous", "code"),
    [
        (node(B, active_scene="night"), TO_NIGHT, "day", Exit.DONE),
        (node(B, active_scene="night"), TO_NIGHT, None, Exit.DONE),
        (node(A, active_scene="day"), TO_NIGHT, "day", Exit.FAILED_SAFELY),
        (node(None), TO_NIGHT, None, Exit.FAILED_SAFELY),
        (node(None), TO_NIGHT, "day", Exit.DEGRADED),
        (node(B, transition_scene="night"), TO_NIGHT, "day", Exit.DEGRADED),
        (node(B, BUSY, active_scene="night"), TO_NIGHT, "day", Exit.DEGRADED),
        (node(A, BUSY, active_scene="day"), TO_NIGHT, "day", Exit.DEGRADED),
        (node(B), TO_NIGHT, None, Exit.DEGRADED),
        (node(A, active_scene="day"), Order(Command.ADOPT, "day"), None, Exit.DONE),
        (node(None), Order(Command.ADOPT, "day"), None, Exit.FAILED_SAFELY),
        (node(None), Order(Command.DEACTIVATE), "day", Exit.DONE),
        (node(None, deactivating=True), Order(Command.DEACTIVATE), "day", Exit.DEGRADED),
        (node(A, active_scene="day"), Order(Command.DEACTIVATE), "day", Exit.FAILED_SAFELY),
        (
            node(A, active_scene="day", desired_scene="day"),
            Order(Command.RESUME),
            None,
            Exit.DONE,
        ),
        (
            node(B, active_scene="night", desired_scene="day"),
            Order(Command.RESUME),
            "night",
            Exit.FAILED_SAFELY,
        ),
        (node(None), Order(Command.RESUME), None, Exit.DONE),
        (node(None), Order(Command.FORGET, "a"), None, Exit.DONE),
        (node(A), Order(Command.FORGET, "a"), None, Exit.DEGRADED),
    ],
)
def test_the_answer_is_what_is_found(
    found: NodeStatus, order: Order, previous: str | None, code: Exit
) -> None:
    outcome = judge_finding(found, order, previous, "the agent was lost")
    assert outcome.exit is code
    if code is Exit.DONE:
        assert outcome.error is None
        assert outcome.notes
    else:
        assert (outcome.error or "").startswith("the agent was lost; ")
        assert outcome.hint
    restored = code is Exit.FAILED_SAFELY and previous is not None
    assert outcome.restored is (True if restored else None)


def test_a_state_that_can_not_be_read_proves_nothing() -> None:
    found = NodeStatus("/srv/node", "0.1.0", World({}), REGISTRY, None)
    assert judge_finding(found, TO_NIGHT, "day", "lost").exit is Exit.DEGRADED
