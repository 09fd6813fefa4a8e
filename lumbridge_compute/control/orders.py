"""Orders as they come over the control socket, each with a number by which it is cancelled."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import trio

from lumbridge_compute.control.lines import Write
from lumbridge_compute.control.wire import WireError, from_plain, to_plain
from lumbridge_compute.core.events import Event
from lumbridge_compute.interruption import Interruption
from lumbridge_compute.orders import Order
from lumbridge_compute.resident.transactions import Transactions

_BACKLOG = 1024
"""Events kept for a client that does not keep up; the newest beyond it are dropped."""


class Orders:
    """Those of clients that are still there."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions
        self._numbers = itertools.count(1)
        self._given: dict[int, Interruption] = {}

    def next_number(self) -> int:
        return next(self._numbers)

    async def carry_out(
        self, number: int, order: Order, client_pid: int | None, write: Write
    ) -> None:
        """Write each step of `order`, and at last its outcome.  Cancelling this ends it only where
        it has not begun."""
        send, received = trio.open_memory_channel[Event](_BACKLOG)

        def emit(event: Event) -> None:
            with suppress(trio.WouldBlock, trio.BrokenResourceError, trio.ClosedResourceError):
                send.send_nowait(event)

        self._given[number] = interruption = Interruption()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_copy, received, write)
                with send:
                    outcome = await self._transactions.carry_out(
                        order, emit, client_pid, interruption
                    )
        finally:
            del self._given[number]
        await write({"outcome": to_plain(outcome)})

    def cancel(self, number: int | None) -> bool:
        """Cancel the order with this number, else (None) the one under way; False when there is
        none, or the client that gave it has left."""
        if number is None:
            return self._transactions.interrupt()
        interruption = self._given.get(number)
        return interruption is not None and self._transactions.interrupt(interruption)


def read_order(body: Mapping[str, Any]) -> tuple[Order, int | None]:
    """What a client wants, and for which process.  Raises WireError."""
    order = from_plain(Order, {**body, "by_agent": False}, "order")
    for model, pid in order.pids.items():
        if not 0 < pid < 2**22:
            raise WireError(f"order.pids.{model} wants the pid of a process, found {pid}")
    client_pid = body.get("client_pid")
    if client_pid is not None and (type(client_pid) is not int or not 0 < client_pid < 2**22):
        raise WireError(f"order.client_pid wants the pid of a process, found {client_pid!r}")
    return order, client_pid


async def _copy(events: trio.MemoryReceiveChannel[Event], write: Write) -> None:
    async for event in events:
        await write({"event": to_plain(event)})
