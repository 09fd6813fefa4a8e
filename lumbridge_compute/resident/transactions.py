"""The serial child: one order at a time, each in its own cancel scope."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

import trio
from trio_util import AsyncValue

from lumbridge_compute.core.events import Event, EventKind, Outcome
from lumbridge_compute.core.state import NodeState
from lumbridge_compute.core.units import render_seconds
from lumbridge_compute.effects import Holder
from lumbridge_compute.errors import Exit, OperatorError
from lumbridge_compute.interruption import Interruption
from lumbridge_compute.journal import Journal
from lumbridge_compute.orders import Node, Order, run_order
from lumbridge_compute.resident.news import News

LEAVE_S = 8.0
"""How long a transaction may take to put things back once the agent has to leave."""

_LOCK_POLL_S = 0.1
_log = logging.getLogger(__name__)

_Job = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Running:
    """The order under way: for which process, and since when on trio's clock."""

    order: Order
    client_pid: int | None
    since_s: float

    def __str__(self) -> str:
        return str(self.order)


@dataclass(slots=True, eq=False)
class _Ticket:
    """One order from its arrival to its answer."""

    order: Order
    emit: Callable[[Event], None]
    client_pid: int | None
    interruption: Interruption
    answered: trio.Event = field(default_factory=trio.Event)
    outcome: Outcome | None = None

    def answer(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.answered.set()


class Transactions:
    """Takes orders and carries them out in turn.  `finished` counts those that have ended."""

    def __init__(self, node: Node, news: News) -> None:
        self.running: AsyncValue[Running | None] = AsyncValue(None)
        self.finished = AsyncValue(0)
        self.leaving = False
        self._node = node
        self._news = news
        self._waiting: list[_Ticket] = []
        self._interruption = Interruption()
        self._send, self._receive = trio.open_memory_channel[_Job](math.inf)

    @property
    def waiting(self) -> int:
        """How many orders wait for their turn."""
        return len(self._waiting)

    async def run(self) -> None:
        """One job after another, until cancelled."""
        async for job in self._receive:
            await job()

    async def carry_out(
        self,
        order: Order,
        emit: Callable[[Event], None] = lambda _event: None,
        client_pid: int | None = None,
        interruption: Interruption | None = None,
    ) -> Outcome:
        """The answer to `order`; `emit` is told each step.

        `interruption` is what `interrupt` takes.  Cancelling this withdraws an order that has not
        begun; one that has goes on, and only `interrupt` ends it.
        """
        if order.dry_run:
            return await run_order(self._node_for(order, emit, client_pid), order, Interruption())
        if self.leaving:
            return _leaving(order)
        if (busy := self._busy()) is not None:
            if not order.wait:
                return _refused(order, busy)
            emit(Event(EventKind.NOTE, detail=f"waiting: {busy}"))
        ticket = _Ticket(order, emit, client_pid, interruption or Interruption())
        self._waiting.append(ticket)
        self._send.send_nowait(lambda: self._run_one(ticket))
        try:
            await ticket.answered.wait()
        finally:
            self._withdraw(ticket)
        assert ticket.outcome is not None  # noqa: S101 - an answer is an outcome
        return ticket.outcome

    def interrupt(self, interruption: Interruption | None = None) -> bool:
        """Cancel the order with this `interruption`, else the one under way; a second time: leave
        it at once.  False when there is none."""
        if interruption in (None, self._interruption):
            if self.running.value is None:
                return False
            self._interruption.interrupt()
            return True
        for ticket in self._waiting:
            if ticket.interruption is interruption:
                self._withdraw(ticket)
                ticket.answer(_withdrawn(ticket.order))
                return True
        return False

    async def leave(self) -> None:
        """End what is under way so that the agent can go: an activation is put back as far as the
        time allows, the agent's own resume is left where it is."""
        self.leaving = True
        for ticket in (*self._waiting,):
            self._withdraw(ticket)
            ticket.answer(_leaving(ticket.order))
        running = self.running.value
        if running is None:
            return
        if running.order.by_agent:
            self._interruption.leave()
        else:
            self._interruption.interrupt()
        with trio.move_on_after(LEAVE_S):
            await self.running.wait_value(None)
            return
        self._interruption.leave()
        await self.running.wait_value(None)

    def record(self, change: Callable[[NodeState], NodeState]) -> None:
        """Write `change` once no transaction is under way.  What can't be written is logged."""

        async def job() -> None:
            effects = self._node.effects
            while isinstance(lock := effects.try_lock("agent"), Holder):  # noqa: ASYNC110 - a flock tells nobody
                await trio.sleep(_LOCK_POLL_S)
            try:
                journal = Journal(effects)
                await journal.load()
                await journal.update(change)
            finally:
                lock.release()

        async def logged() -> None:
            try:
                await job()
            except (OSError, OperatorError) as error:
                _log.error("cannot record what happened cause=%r", str(error))

        self._send.send_nowait(logged)

    async def _run_one(self, ticket: _Ticket) -> None:
        if ticket not in self._waiting:
            return
        self._waiting.remove(ticket)
        order, client_pid = ticket.order, ticket.client_pid
        self._interruption = ticket.interruption
        self.running.value = running = Running(order, client_pid, trio.current_time())
        _log.info("transaction begins order=%r client=%s", str(running), client_pid)
        try:
            node = self._node_for(order, ticket.emit, client_pid)
            outcome = await run_order(node, order, self._interruption)
            _log.info(
                "transaction ends order=%r exit=%d error=%r",
                str(running),
                outcome.exit,
                outcome.error,
            )
            ticket.answer(outcome)
        finally:
            self.running.value = None
            self.finished.value += 1

    def _withdraw(self, ticket: _Ticket) -> None:
        if ticket in self._waiting:
            self._waiting.remove(ticket)

    def _node_for(
        self, order: Order, emit: Callable[[Event], None], client_pid: int | None
    ) -> Node:
        def tell(event: Event) -> None:
            emit(event)
            if not order.dry_run:
                self._news.tell(event)

        effects = self._node.effects.for_client(client_pid)
        return replace(self._node, effects=effects, emit=tell)

    def _busy(self) -> str | None:
        """What the agent has under way or is about to begin, and for whom."""
        running = self.running.value
        if running is not None:
            what, client_pid = str(running), running.client_pid
            age = f", for {render_seconds(trio.current_time() - running.since_s)}"
        elif self._waiting:
            what, client_pid, age = str(self._waiting[0].order), self._waiting[0].client_pid, ""
        else:
            return None
        client = f" on behalf of pid {client_pid}" if client_pid else ""
        return f"the agent (pid {os.getpid()}) is busy with {what!r}{client}{age}"


def _refused(order: Order, busy: str) -> Outcome:
    error = f"cannot {order.command}: {busy}"
    return Outcome(Exit.BUSY, order.scene, error=error, hint="repeat with --wait")


def _withdrawn(order: Order) -> Outcome:
    return Outcome(Exit.INTERRUPTED, order.scene, error="interrupted before anything was changed")


def _leaving(order: Order) -> Outcome:
    return Outcome(
        Exit.BUSY,
        order.scene,
        error=f"cannot {order.command}: the agent is leaving",
        hint="repeat when it is back, or with no agent",
    )
