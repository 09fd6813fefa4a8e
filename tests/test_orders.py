"""An order that finds the node's lock held names who holds it."""

from __future__ import annotations

from typing import Any, cast

import trio
import trio.testing

from lumbridge_compute.core.events import Event
from lumbridge_compute.core.site import Site
from lumbridge_compute.effects import Effects, Holder
from lumbridge_compute.errors import Exit
from lumbridge_compute.interruption import Interruption
from lumbridge_compute.orders import Command, Node, Order, run_order

NAMELESS, NAMED = Holder(7, "", 4.7), Holder(7, "scene resume", 0.1)


class Held:
    """A lock whose holders are told one after another, the last one for ever."""

    def __init__(self, *holders: Holder) -> None:
        self.holders = list(holders)

    def try_lock(self, _command: str) -> Holder:
        return self.holders.pop(0) if len(self.holders) > 1 else self.holders[0]


def node(held: Held, events: list[Event]) -> Node:
    return Node(cast(Effects, held), Site("/node", {}), cast(Any, None), events.append)


async def test_a_holder_that_has_not_written_its_name_yet_is_looked_at_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    held = Held(NAMELESS, NAMED)
    outcome = await run_order(node(held, []), Order(Command.DEACTIVATE), Interruption())
    assert outcome.exit is Exit.BUSY
    assert "'scene resume' holds the node's lock (pid 7, for 0.1 s)" in (outcome.error or "")


async def test_a_holder_without_a_name_is_told_by_its_pid(
    autojump_clock: trio.testing.MockClock,
) -> None:
    outcome = await run_order(node(Held(NAMELESS), []), Order(Command.DEACTIVATE), Interruption())
    assert outcome.exit is Exit.BUSY
    assert "'another command' holds the node's lock (pid 7" in (outcome.error or "")
    assert trio.current_time() < 1


async def test_who_waits_says_once_for_whom(autojump_clock: trio.testing.MockClock) -> None:
    events: list[Event] = []
    with trio.move_on_after(5):
        await run_order(
            node(Held(NAMELESS, NAMED), events), Order(Command.RESUME, wait=True), Interruption()
        )
    assert ["scene resume" in (each.detail or "") for each in events] == [True]
