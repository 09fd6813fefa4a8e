"""One resume when the agent begins, then done; its failure is recorded and ends nothing."""

from __future__ import annotations

import logging

from lumbridge_compute.gateway.driver import Gateways
from lumbridge_compute.orders import Command, Order
from lumbridge_compute.resident.transactions import Transactions

_log = logging.getLogger(__name__)


async def resume_once(transactions: Transactions, gateways: Gateways) -> None:
    """Resume; until it has ended, clients whom an upstream refuses are held, not turned away."""
    gateways.expect()
    order = Order(Command.RESUME, wait=True, by_agent=True)
    outcome = await transactions.carry_out(order)
    gateways.settle()
    if not outcome.ok:
        _log.warning("resume failed exit=%d error=%r", outcome.exit, outcome.error)
