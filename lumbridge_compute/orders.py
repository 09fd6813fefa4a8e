"""What was asked of the node: one order under the lock, from snapshot to answer."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import trio

from lumbridge_compute.core.digest import process_digest
from lumbridge_compute.core.events import Event, EventKind, Outcome
from lumbridge_compute.core.identity import Ownership
from lumbridge_compute.core.nearest import nearest
from lumbridge_compute.core.plan import Refusals
from lumbridge_compute.core.plan_adopt import plan_adopt
from lumbridge_compute.core.plan_resume import ResumeMode
from lumbridge_compute.core.plan_scene import plan_activate, plan_stop_all
from lumbridge_compute.core.registry import Model, Registry
from lumbridge_compute.core.site import Site
from lumbridge_compute.core.state import Bound, NodeState, adopt, without_records
from lumbridge_compute.core.units import render_seconds
from lumbridge_compute.effects import HISTORY_FILE, Effects, Holder, NodeLock
from lumbridge_compute.errors import BadInput, Busy, Exit, OperatorError, Refused
from lumbridge_compute.interruption import Interrupted, Interruption
from lumbridge_compute.journal import Journal, NotWritten, cause_of
from lumbridge_compute.resuming import plan_as_resumed, planned, resume, stop_everything
from lumbridge_compute.steps import Steps
from lumbridge_compute.store.history import (
    HistoryEntry,
    Started,
    measured,
    parse_history,
    render_entry,
)
from lumbridge_compute.surroundings import Nothing, Surroundings
from lumbridge_compute.transaction import Failure, Transaction
from lumbridge_compute.way_back import end_degraded, roll_back

_LOCK_POLL_S = 0.1
_NAMELESS_LOOKS = 3
"""A holder writes its name right after it has the lock, and where its disk is full never."""

_WORTH_A_LINE = frozenset({Exit.FAILED_SAFELY, Exit.DEGRADED, Exit.INTERRUPTED})
_WORDS = {
    Exit.DONE: "committed",
    Exit.FAILED_SAFELY: "failed",
    Exit.DEGRADED: "degraded",
    Exit.INTERRUPTED: "interrupted",
    Exit.REFUSED: "refused",
    Exit.BAD_INPUT: "refused",
    Exit.BUSY: "refused",
}


class Command(enum.StrEnum):
    """The commands that may change the node."""

    ACTIVATE = "activate"
    RESUME = "resume"
    DEACTIVATE = "deactivate"
    ADOPT = "adopt"
    FORGET = "forget"


@dataclass(frozen=True, slots=True)
class Order:
    """One mutating command.  `name` is its Scene (activate, adopt) or model (forget).

    `by_agent`: the agent's own resume, which leaves alone what an operator's would retry.
    """

    command: Command
    name: str | None = None
    dry_run: bool = False
    wait: bool = False
    force: bool = False
    by_agent: bool = False
    pids: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        """In the operator's words."""
        return f"scene {self.command} {self.name or ''}".rstrip()

    @property
    def scene(self) -> str | None:
        """The Scene that was named, None where a model was or nothing."""
        return None if self.command is Command.FORGET else self.name

    @property
    def resume_mode(self) -> ResumeMode:
        if self.by_agent:
            return ResumeMode.AGENT
        return ResumeMode.FORCED if self.force else ResumeMode.OPERATOR


@dataclass(frozen=True, slots=True)
class Node:
    """Where an order is carried out.  `emit` is told each step; it must not raise or wait.

    `floor_bytes` overrides the floor of the registry.  `read_registry` reads compute.yaml anew and
    raises BadInput with all that is wrong with it.
    """

    effects: Effects
    site: Site
    read_registry: Callable[[], Registry]
    emit: Callable[[Event], None]
    floor_bytes: int | None = None
    surroundings: Surroundings = field(default_factory=Nothing)


async def run_order(node: Node, order: Order, interruption: Interruption) -> Outcome:
    """Carry out `order`; an Outcome for everything that an operator can cause."""
    try:
        if order.dry_run:
            return await _answer(node, order, interruption)
        lock = await _locked(node, order, interruption)
        try:
            return await _answer(node, order, interruption)
        finally:
            lock.release()
            node.surroundings.release()
    except (Interrupted, OperatorError, OSError) as error:
        return _outcome_of(error, order)


def _outcome_of(error: Interrupted | OperatorError | OSError, order: Order) -> Outcome:
    """The answer to an order that has changed nothing."""
    if isinstance(error, Interrupted):
        said = "interrupted before anything was changed"
        return Outcome(Exit.INTERRUPTED, order.scene, error=said)
    if isinstance(error, OperatorError):
        return Outcome(error.exit, order.scene, error=error.message, hint=error.hint)
    hint = "free the disk and descriptors that it needs, then repeat"
    return Outcome(Exit.REFUSED, order.scene, error=cause_of(error), hint=hint)


async def _locked(node: Node, order: Order, interruption: Interruption) -> NodeLock:
    told, nameless = False, 0
    with interruption.forward():
        while isinstance(lock := node.effects.try_lock(str(order)), Holder):
            if not lock.command and nameless < _NAMELESS_LOOKS:
                nameless += 1
            elif not order.wait:
                raise Busy(f"cannot {order.command}: {_render_holder(lock)}", "repeat with --wait")
            elif not told:
                node.emit(Event(EventKind.NOTE, detail=f"waiting: {_render_holder(lock)}"))
                told = True
            await trio.sleep(_LOCK_POLL_S)
        return lock
    raise Interrupted


def _render_holder(holder: Holder) -> str:
    age = f", for {render_seconds(holder.age_s)}" if holder.age_s is not None else ""
    client = f" on behalf of pid {holder.client_pid}" if holder.client_pid else ""
    command = holder.command or "another command"
    return f"{command!r} holds the node's lock (pid {holder.pid}{client}{age})"


async def _answer(node: Node, order: Order, interruption: Interruption) -> Outcome:
    transaction = await _open(node, order, interruption)
    began = node.effects.now()
    try:
        outcome = await _carried_out(transaction, order)
        if not order.dry_run:
            await _remember(transaction, order, outcome, node.effects.now() - began)
    finally:
        transaction.steps.close()
    return replace(
        outcome,
        active_scene=transaction.journal.state.active_scene,
        notes=(*outcome.notes, *transaction.warnings, *transaction.steps.notes),
    )


async def _open(node: Node, order: Order, interruption: Interruption) -> Transaction:
    """Registry and state are read here, under the lock, and nowhere else."""
    journal = Journal(node.effects)
    await journal.load()
    registry = node.read_registry()
    costs = measured(await _history(node.effects))
    steps = Steps(node.effects, node.site, registry, journal, node.emit, node.surroundings)
    if not order.by_agent:
        steps.may_start |= node.surroundings.stopped_by_floor().keys()
    floor = node.floor_bytes if node.floor_bytes is not None else registry.memory_floor_bytes
    transaction = Transaction(
        node.effects, node.site, registry, journal, steps, interruption, node.emit, floor or 0
    )
    for name, model in _running_or_declared(registry, journal.state).items():
        if (cost := costs.get((name, process_digest(model)))) is not None:
            steps.expected_s[name] = cost.load_s
            if cost.memory_bytes is not None:
                transaction.footprints[name] = cost.memory_bytes
    return transaction


async def _history(effects: Effects) -> tuple[HistoryEntry, ...]:
    """The past is a help, and never a reason to stop."""
    with contextlib.suppress(OSError, OperatorError):
        return parse_history(await effects.read(HISTORY_FILE) or b"")
    return ()


def _running_or_declared(registry: Registry, state: NodeState) -> dict[str, Model]:
    """What runs decides what a stop gives back, what is declared what a start needs."""
    recorded = {n: r.definition for n, r in state.processes.items() if isinstance(r, Bound)}
    return {**registry.models, **recorded}


async def _carried_out(transaction: Transaction, order: Order) -> Outcome:
    try:
        return await _dispatch(transaction, order)
    except (Interrupted, OperatorError, OSError) as error:
        if not transaction.changed:
            return _outcome_of(error, order)
        cause = cause_of(error) if isinstance(error, OSError) else str(error) or "interrupted"
        if order.command in (Command.ADOPT, Command.FORGET):
            said = f"{cause}; it may be done all the same"
            return Outcome(
                Exit.DEGRADED, order.scene, error=said, hint="mend the disk, then repeat"
            )
        return await end_degraded(transaction, Failure(cause))


async def _dispatch(transaction: Transaction, order: Order) -> Outcome:
    match order.command:
        case Command.ACTIVATE:
            return await _activate(transaction, order)
        case Command.RESUME:
            return await _resume(transaction, order)
        case Command.DEACTIVATE:
            return await _deactivate(transaction, order)
        case Command.ADOPT:
            return await _adopt(transaction, order)
        case Command.FORGET:
            return await _forget(transaction, order)


async def _activate(transaction: Transaction, order: Order) -> Outcome:
    scene = _known_scene(transaction.registry, order)
    now = await transaction.snapshot()
    plan = plan_activate(now, scene, floor_bytes=transaction.floor_bytes)
    if order.dry_run or isinstance(plan, Refusals):
        return planned(plan, now)
    transaction.announce(plan)
    previous = transaction.previous(now)
    if plan.settled:
        if (failure := await transaction.commit_settled(plan, previous)) is not None:
            return replace(await end_degraded(transaction, failure), scene=scene)
    elif (failure := await transaction.attempt(plan, previous)) is not None:
        return replace(await roll_back(transaction, previous, failure), scene=scene)
    return transaction.done(plan, now.world)


async def _resume(transaction: Transaction, order: Order) -> Outcome:
    if order.dry_run:
        now = await transaction.snapshot()
        return planned(plan_as_resumed(transaction, now, order.resume_mode), now)
    return await resume(transaction, order.resume_mode)


async def _deactivate(transaction: Transaction, order: Order) -> Outcome:
    now = await transaction.snapshot()
    plan = plan_stop_all(now, "deactivate")
    if order.dry_run or isinstance(plan, Refusals):
        return planned(plan, now)
    transaction.announce(plan)
    return await stop_everything(transaction, plan, now)


async def _adopt(transaction: Transaction, order: Order) -> Outcome:
    scene = _known_scene(transaction.registry, order)
    now = await transaction.snapshot(order.pids)
    plan = plan_adopt(now, scene, order.pids, transaction.effects.own_pids())
    if isinstance(plan, Refusals):
        return planned(plan, now)
    await _write(
        transaction, lambda state: adopt(without_records(state, plan.forget), scene, plan.records)
    )
    world = await transaction.seen()
    return Outcome(Exit.DONE, scene, world=world, notes=plan.warnings)


async def _forget(transaction: Transaction, order: Order) -> Outcome:
    name, journal = order.name or "", transaction.journal
    if name not in journal.state.processes:
        near = nearest(name, journal.state.processes)
        hint = f"did you mean {near!r}?" if near else "see `lumbridge-compute status`"
        raise BadInput(f"cannot forget {name!r}: there is no record of it", hint)
    now = await transaction.snapshot()
    view = now.world.view(name)
    if view.ownership in (Ownership.OWNED, Ownership.SURVIVORS):
        pids = ", ".join(str(pid) for pid in sorted(view.claim.members))
        raise Refused(
            f"cannot forget {name!r}: it is ours and still alive (pid {pids})",
            "stop it with `lumbridge-compute scene deactivate` or switch to another Scene",
        )
    await _write(transaction, lambda state: without_records(state, [name]))
    lives = view.claim.members | view.claim.strays
    notes = tuple(f"pid {pid} of {name!r} still lives, now unrecorded" for pid in sorted(lives))
    return Outcome(Exit.DONE, world=await transaction.seen(), notes=notes)


async def _write(transaction: Transaction, change: Callable[[NodeState], NodeState]) -> None:
    """The one change of an order that touches no process.  Raises NotWritten, with `changed` set
    where the file may hold it all the same."""
    before = transaction.journal.state
    try:
        await transaction.journal.update(change)
    except NotWritten as error:
        transaction.changed = not error.kept
        raise
    transaction.changed = transaction.journal.state != before


def _known_scene(registry: Registry, order: Order) -> str:
    name = order.name or ""
    if name in registry.scenes:
        return name
    near = nearest(name, registry.scenes)
    known = ", ".join(registry.scenes) or "none"
    hint = f"did you mean {near!r}?" if near else f"the Scenes are: {known}"
    raise BadInput(f"cannot {order.command} {name!r}: compute.yaml declares no such Scene", hint)


async def _remember(
    transaction: Transaction, order: Order, outcome: Outcome, duration_s: float
) -> None:
    """One line of history, and logs within their bounds.  Neither may change the answer."""
    effects = transaction.effects
    with contextlib.suppress(OSError):
        for name in {**transaction.registry.models, **transaction.journal.state.processes}:
            await effects.trim_log(name)
        if transaction.changed or outcome.exit in _WORTH_A_LINE:
            await effects.append_history(
                render_entry(_entry(transaction, order, outcome, duration_s))
            )


def _entry(
    transaction: Transaction, order: Order, outcome: Outcome, duration_s: float
) -> HistoryEntry:
    declared = _running_or_declared(transaction.registry, transaction.journal.state)
    started = {
        name: Started(process_digest(declared[name]), each.load_s, each.memory_bytes)
        for name, each in transaction.steps.measured.items()
        if name in declared
    }
    return HistoryEntry(
        transaction.effects.timestamp(),
        order.command,
        _WORDS[outcome.exit] if not outcome.restored else "restored",
        scene=outcome.scene,
        exit=int(outcome.exit),
        duration_s=duration_s,
        error=outcome.error,
        started=started,
    )
