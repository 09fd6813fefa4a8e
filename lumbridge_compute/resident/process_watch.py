"""A pidfd for each owned model: an unexpected death is recorded with its cause."""

from __future__ import annotations

import logging
from collections.abc import Callable

import trio
from trio_util import AsyncValue

from lumbridge_compute.core.identity import Identity
from lumbridge_compute.core.registry import Registry
from lumbridge_compute.core.state import Bound, FloorLatch, NodeState, record_loss, with_latch
from lumbridge_compute.effects import Effects, ProcessHandle
from lumbridge_compute.errors import OperatorError
from lumbridge_compute.journal import Journal
from lumbridge_compute.resident.floor_watch import FloorWatch
from lumbridge_compute.resident.transactions import Transactions

_LOG_LINES = 3
_log = logging.getLogger(__name__)


class ProcessWatch:
    """Watches what the state file records; looks again after each transaction.

    What dies during a transaction is that transaction's own matter.
    """

    def __init__(
        self,
        effects: Effects,
        registry: AsyncValue[Registry],
        transactions: Transactions,
        floor: FloorWatch,
    ) -> None:
        self._effects = effects
        self._registry = registry
        self._transactions = transactions
        self._floor = floor

    async def run(self) -> None:
        """Watch until cancelled, once the agent's own resume has ended.

        Until then the floor guards what ran before: a death is the resume's matter.
        """
        finished = self._transactions.finished
        await self._guard()
        await finished.wait_value(lambda value: value > 0)
        while True:
            seen = finished.value
            async with trio.open_nursery() as nursery:
                await self._watch_all(nursery)
                await finished.wait_value(lambda value, seen=seen: value != seen)
                nursery.cancel_scope.cancel()

    async def _guard(self) -> None:
        state = await self._state()
        handles = self._open(state)
        try:
            await self._floor.guard_all(state, self._registry.value, handles)
        finally:
            for handle in handles.values():
                handle.close()

    async def _watch_all(self, nursery: trio.Nursery) -> None:
        state = await self._state()
        handles = self._open(state)
        if self._transactions.running.value is None:
            await self._floor.guard_all(state, self._registry.value, handles)
        for name, record in state.processes.items():
            if isinstance(record, Bound) and not self._hosts_us(record.identity):
                nursery.start_soon(self._watch, name, record.identity, handles.get(name))

    def _open(self, state: NodeState) -> dict[str, ProcessHandle]:
        # A number of the past may be the agent's own by now, or its parent's: never a target.
        own = self._effects.own_pids()
        opened = {
            name: self._effects.open_process(record.identity)
            for name, record in state.processes.items()
            if isinstance(record, Bound) and record.identity.pid not in own
        }
        return {name: handle for name, handle in opened.items() if handle is not None}

    def _hosts_us(self, identity: Identity) -> bool:
        """The agent was started inside the model: it ends with it."""
        now = self._effects.identify(identity.pid)
        ours = identity.pid in self._effects.own_pids()
        return ours and now is not None and identity.matches(now)

    async def _state(self) -> NodeState:
        try:
            return await Journal(self._effects).load()
        except (OSError, OperatorError) as error:
            _log.warning("cannot watch the models cause=%r", str(error))
            return NodeState()

    async def _watch(self, name: str, identity: Identity, handle: ProcessHandle | None) -> None:
        cause = None
        if handle is not None:
            try:
                await handle.wait()
                self._effects.keep(handle)
                cause = handle.exit_cause()
            finally:
                handle.close()
        if self._transactions.running.value is None:
            await self._record(name, identity, cause or "cause not known")

    async def _record(self, name: str, identity: Identity, cause: str) -> None:
        sentence = self._floor.sentences().get(name)
        if sentence is None:
            tail = await self._effects.log_tail(name, _LOG_LINES)
            said = f"; its log ends: {' | '.join(tail)}" if tail else ""
            sentence = f"{name!r} ended unexpectedly ({cause}){said}"
        _log.error("a model has ended model=%s cause=%r", name, cause)
        latch = self._floor.latch(name)
        self._transactions.record(_loss(name, identity, sentence, latch))


def _loss(
    name: str, identity: Identity, sentence: str, latch: FloorLatch | None
) -> Callable[[NodeState], NodeState]:
    def change(state: NodeState) -> NodeState:
        record = state.processes.get(name)
        same = isinstance(record, Bound) and record.identity.matches(identity)
        if isinstance(record, Bound) and not same:
            return state  # somebody has started it again meanwhile
        if latch is not None:
            state = with_latch(state, latch)
        if not same or state.active_scene is None:
            return state
        return record_loss(state, sentence)

    return change
