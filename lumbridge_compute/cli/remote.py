"""A command carried out by the resident agent: its steps here, its work there."""

from __future__ import annotations

from contextlib import AsyncExitStack, suppress
from dataclasses import replace

import trio

from lumbridge_compute import __version__
from lumbridge_compute.cli.errand import Errand
from lumbridge_compute.cli.loop import cannot_begin, run_loop
from lumbridge_compute.client import Node
from lumbridge_compute.core.events import Event, EventKind, Outcome
from lumbridge_compute.errors import Exit, OperatorError
from lumbridge_compute.orders import Order

_LEAVING = "interrupted: the agent puts things back; once more leaves at once, unfinished"
_BEGIN_POLL_S = 0.05


def run_by_agent(errand: Errand) -> Outcome:
    """The outcome of the order.

    Raises NoAgent and AgentStuck where nothing was begun, AgentLost where the end is not known.
    """
    return run_loop(lambda: _run(errand))


async def _run(errand: Errand) -> Outcome:
    outcomes: list[Outcome] = []
    failures: list[OperatorError] = []

    async def listen(node: Node) -> None:
        outcomes.append(await _listen(errand, node))
        nursery.cancel_scope.cancel()

    async def carry_out(node: Node) -> None:
        try:
            outcomes.append(await node.carry_out(errand.order, errand.tell))
        except OperatorError as error:
            failures.append(error)
        nursery.cancel_scope.cancel()

    async with AsyncExitStack() as opened:
        try:
            node = await opened.enter_async_context(Node(errand.root))
        except OSError as error:
            raise cannot_begin(error) from error
        async with trio.open_nursery() as nursery:
            nursery.start_soon(listen, node)
            nursery.start_soon(carry_out, node)
    if failures:
        raise failures[0]
    return _with_versions(outcomes[0], node.agent_version)


async def _listen(errand: Errand, node: Node) -> Outcome:
    """Ask the agent to cancel at each signal; an outcome when this command leaves by itself."""
    interruption = errand.interruption
    answered = 0
    if not errand.caught:
        await trio.sleep_forever()
    with trio.open_signal_receiver(*errand.caught) as received:
        while True:
            while answered < interruption.count:
                answered += 1
                if errand.order.dry_run:
                    return _interrupted(errand.order)
                if not await _ask_to_cancel(errand, node) and answered > 1:
                    return _left(errand.order)
            await received.__anext__()
            interruption.interrupt()


async def _ask_to_cancel(errand: Errand, node: Node) -> bool:
    """False when the agent does not hear it."""
    if errand.interruption.count == 1:
        errand.tell(Event(EventKind.NOTE, detail=_LEAVING))
    with suppress(OperatorError), trio.move_on_after(2 * _BEGIN_POLL_S * 20):
        # Before the agent has the order, there is nothing to cancel.
        while not await node.cancel():  # noqa: ASYNC110 - it is the agent that gets it
            await trio.sleep(_BEGIN_POLL_S)
        return True
    return False


def _interrupted(order: Order) -> Outcome:
    return Outcome(Exit.INTERRUPTED, order.scene, error="interrupted before anything was changed")


def _left(order: Order) -> Outcome:
    return Outcome(
        Exit.DEGRADED,
        order.scene,
        error="left while the agent was at work and did not answer",
        hint="lumbridge-compute status",
    )


def _with_versions(outcome: Outcome, version: str | None) -> Outcome:
    if version in (None, __version__):
        return outcome
    note = f"the agent is version {version}, this command {__version__}: restart the agent"
    return replace(outcome, notes=(note, *outcome.notes))
