"""Ends an agent that nobody can find any more: its lock file was removed, or the folder with it."""

from __future__ import annotations

from collections.abc import Callable

from trio_util import periodic

from lumbridge_compute.errors import Exit, OperatorError
from lumbridge_compute.resident.transactions import Transactions

PERIOD_S = 2.0


class AgentUnseen(OperatorError):
    """Commands and other agents take the node for one without an agent."""

    exit = Exit.DEGRADED


async def watch_lock(holds_lock: Callable[[], bool], transactions: Transactions) -> None:
    """Look at the lock now and then, between transactions, until cancelled.

    Raises AgentUnseen once `holds_lock` says that the lock keeps nobody out.
    """
    async for _ in periodic(PERIOD_S):
        if transactions.running.value is None and not holds_lock():
            raise AgentUnseen(
                "cannot stay the agent of this node: its folder .kuda was removed or replaced, and "
                "who looks there does not see this agent; the models are as they are",
                "put the folder back before an agent begins: it names the processes that are ours",
            )
