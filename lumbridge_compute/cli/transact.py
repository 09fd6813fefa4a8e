"""The commands that may change the node: signals, progress, and how it ended."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from types import FrameType

import trio

from lumbridge_compute.cli.call import Call
from lumbridge_compute.cli.errand import Errand
from lumbridge_compute.cli.failure import own_fault
from lumbridge_compute.cli.guard import check_descriptors, check_owner
from lumbridge_compute.cli.loop import run_loop
from lumbridge_compute.cli.node import has_agent, registry_of, state_of
from lumbridge_compute.cli.progress import Progress
from lumbridge_compute.core.events import Event, EventKind, Outcome
from lumbridge_compute.core.plan import Plan
from lumbridge_compute.core.registry import Registry
from lumbridge_compute.core.report_outcome import (
    dry_run_document,
    outcome_document,
    outcome_of,
    render_failure,
    render_now_running,
    render_warnings,
)
from lumbridge_compute.core.report_plan import render_plan
from lumbridge_compute.core.site import Site
from lumbridge_compute.errors import BadInput, Exit, OperatorError
from lumbridge_compute.host.spawn import normalise_signals
from lumbridge_compute.interruption import Interruption
from lumbridge_compute.orders import Command, Node, Order, run_order

_INTERRUPTING = frozenset({signal.SIGINT, signal.SIGTERM})
_LEAVING = "interrupted: putting things back; once more leaves at once, with the work unfinished"


def run_transaction(call: Call) -> int:
    """The exit code of the transaction, whatever becomes of the streams."""
    order = order_of(call)
    gc.enable()
    interruption = Interruption()
    caught = _take_signals(interruption)
    try:
        outcome = _carry_out(call, order, interruption, caught)
    except OperatorError as error:
        outcome = outcome_of(error)
    # From here on nothing is left to put back: a stream that takes nothing must not hold us.
    for number in caught:
        signal.signal(number, lambda *_: os._exit(int(outcome.exit)))
    _print(call, order, outcome)
    call.out.fault = None
    return int(outcome.exit)


def order_of(call: Call) -> Order:
    """What the options ask for.  Raises BadInput."""
    options = call.options
    pairs: list[tuple[str, int]] = getattr(options, "pid", None) or []
    if len(dict(pairs)) < len(pairs):
        raise BadInput("cannot give two processes to one model", "give one --pid for each model")
    command = Command(call.command.removeprefix("scene "))
    return Order(
        command,
        getattr(options, "name", None),
        dry_run=getattr(options, "dry_run", False),
        wait=getattr(options, "wait", False),
        force=getattr(options, "force", False),
        pids=dict(pairs),
    )


def _carry_out(
    call: Call, order: Order, interruption: Interruption, caught: list[signal.Signals]
) -> Outcome:
    root = call.root()
    check_descriptors()
    if not order.dry_run:
        check_owner(root, f"{call.command} {order.name or ''}".strip())
    progress = _open_progress(call) if not order.dry_run else None
    tell: Callable[[Event], None] = progress.tell if progress is not None else _ignore
    errand = Errand(root, order, tell, interruption, caught)
    try:
        if (outcome := _by_agent(call, errand)) is not None:
            return outcome
        effects, site = call.open_effects(root), Site(root, call.environ)
        node = Node(effects, site, lambda: registry_of(root), tell)
        return run_loop(lambda: _run(node, order, interruption, caught))
    except OperatorError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, the node may be half changed
        return outcome_of(own_fault(error, Exit.DEGRADED, call.err, verbose=call.options.verbose))
    finally:
        if progress is not None:
            progress.close()


def _by_agent(call: Call, errand: Errand) -> Outcome | None:
    """What the resident agent makes of it; None where this command has to do it itself."""
    root, order = errand.root, errand.order
    if not has_agent(root):
        return None
    from lumbridge_compute.cli.remote import run_by_agent
    from lumbridge_compute.client import AgentLost, AgentStuck, NoAgent

    previous = _active_scene(root)
    try:
        return run_by_agent(errand)
    except NoAgent:
        return None
    except AgentStuck:
        if not order.dry_run:
            raise
        call.err.write_lines(["warning: the agent does not answer; this is planned without it"])
        return None
    except AgentLost as lost:
        if order.dry_run:
            raise
        from lumbridge_compute.cli.lost import answer_by_finding

        errand.tell(Event(EventKind.NOTE, detail=f"{lost.message}; looking what is so"))
        return answer_by_finding(root, call.environ, order, previous, lost.message)


def _active_scene(root: str) -> str | None:
    with suppress(OperatorError):
        return state_of(root).active_scene
    return None


async def _run(
    node: Node, order: Order, interruption: Interruption, caught: Sequence[signal.Signals]
) -> Outcome:
    async def listen() -> None:
        with trio.open_signal_receiver(*caught) as received:
            async for _ in received:
                interruption.interrupt()
                if interruption.count == 1:
                    node.emit(Event(EventKind.NOTE, detail=_LEAVING))

    async with trio.open_nursery() as nursery:
        if caught:
            nursery.start_soon(listen)
        outcome = await run_order(node, order, interruption)
        nursery.cancel_scope.cancel()
    return outcome


def _take_signals(interruption: Interruption) -> list[signal.Signals]:
    """Signals that interrupt, less those that whoever started us wants ignored.

    They count from now on, not only once trio listens; a lost terminal never ends us.
    """
    caught = [number for number in _INTERRUPTING if signal.getsignal(number) != signal.SIG_IGN]
    normalise_signals()

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        interruption.interrupt()

    for number in caught:
        signal.signal(number, interrupt)
    signal.signal(signal.SIGHUP, lambda *_: None)
    return caught


def _open_progress(call: Call) -> Progress | None:
    if call.options.quiet:
        return None
    live = call.err.isatty() and call.environ.get("TERM", "dumb") != "dumb"
    return Progress(call.err, live=live, stamps=call.options.verbose)


def _ignore(_event: Event) -> None:
    pass


def _print(call: Call, order: Order, outcome: Outcome) -> None:
    if not call.options.quiet:
        call.err.write_lines(render_warnings(outcome))
    call.err.write_lines(render_failure(outcome))
    if order.dry_run:
        _print_dry_run(call, outcome)
    elif call.json:
        registry, active_scene = _recorded(call)
        if outcome.world is None:
            # It ended before it looked at anything, so what was recorded stands.
            outcome = replace(outcome, active_scene=active_scene)
        call.print_document(outcome_document(outcome, registry))
    elif (line := render_now_running(outcome)) is not None:
        call.out.write_lines([line])


def _print_dry_run(call: Call, outcome: Outcome) -> None:
    if call.json:
        call.print_document(dry_run_document(outcome))
    elif isinstance(outcome.plan, Plan):
        call.out.write_lines(render_plan(outcome.plan, call.out.width()))


def _recorded(call: Call) -> tuple[Registry | None, str | None]:
    """The registry and the active Scene, as far as they can be read."""
    registry = None
    active_scene = _active_scene(call.root())
    with suppress(OperatorError):
        registry = registry_of(call.root())
    return registry, active_scene
