"""The way back of a transaction: put the previous Scene back, or stop what was begun.

Under a shield with a deadline: a second interrupt ends it, nothing else.  DESIGN section 8, Failure
after the first change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from lumbridge_compute.core import state as writes
from lumbridge_compute.core.events import Event, EventKind, Outcome
from lumbridge_compute.core.plan import Plan, Refusals
from lumbridge_compute.core.plan_scene import plan_restore, plan_stop_all
from lumbridge_compute.core.registry import Model
from lumbridge_compute.core.state import Bound, NodeState
from lumbridge_compute.errors import Exit
from lumbridge_compute.journal import cause_of
from lumbridge_compute.steps import StepFailed
from lumbridge_compute.transaction import Failure, Previous, Transaction, render_reasons

_SPARE_S = 60.0
_LEAVING_S = 2.0


async def roll_back(transaction: Transaction, previous: Previous, failure: Failure) -> Outcome:
    """Put the previous Scene back, or stop the partial target where none was active.

    A whole target whose commit could not be written stays: resume commits it.
    """
    if failure.uncommitted:
        return await _uncommitted(transaction, failure.cause)
    if transaction.interruption.leaving:
        return await _leave(transaction, previous)
    transaction.emit(Event(EventKind.ROLLING_BACK, detail=failure.cause))
    with transaction.interruption.way_back(_limit_s(transaction, previous.definitions)):
        return await _way_back(transaction, previous, failure)
    return _left_unfinished(failure.cause)


async def give_up(transaction: Transaction, cause: str) -> Outcome:
    """After a failure with nothing to go back to: stop what is ours, record that nothing is
    active."""
    with transaction.interruption.way_back(_limit_s(transaction, ())):
        return await _give_up(transaction, cause)
    return _left_unfinished(cause)


async def end_degraded(transaction: Transaction, failure: Failure) -> Outcome:
    """After a failure that nothing can be done about now."""
    with transaction.interruption.way_back(_limit_s(transaction, ())):
        if failure.uncommitted:
            return await _uncommitted(transaction, failure.cause)
        return await _degraded(transaction, failure.cause)
    return _left_unfinished(failure.cause)


async def begin_fallback(transaction: Transaction, cause: str) -> Failure | None:
    """Record that the desired Scene has failed, and complete the stops that were begun."""
    if not await _record(transaction, lambda state: writes.rollback_begins(state, cause)):
        return Failure(f"{cause}; the state could not be written", degraded=True)
    try:
        await transaction.steps.finish_stops()
    except StepFailed as error:
        return Failure(f"{cause}; {error}", degraded=True)
    return None


async def _way_back(transaction: Transaction, previous: Previous, failure: Failure) -> Outcome:
    cause = failure.cause

    def begin(state: NodeState) -> NodeState:
        begun = writes.rollback_begins(state, cause)
        return writes.with_resume_failures(begun, previous.failures) if interrupted else begun

    interrupted = failure.interrupted
    if not await _record(transaction, begin):
        return await _degraded(transaction, cause, "the state could not be written")
    try:
        await transaction.steps.finish_stops()
        if failure.degraded:
            raise StepFailed("something outlived its stop, so nothing more is started")
        if previous.scene is None:
            return await _give_up(transaction, cause, interrupted=failure.interrupted)
        now = await transaction.gather()
        plan = plan_restore(now, previous.scene, previous.definitions)
        if isinstance(plan, Refusals):
            raise StepFailed(render_reasons(plan))
        transaction.steps.refuse_what_the_floor_stopped(plan)
        await transaction.steps.carry_out(plan)
        await transaction.journal.update(lambda state: _put_back(state, previous, plan, cause))
    except StepFailed as error:
        return await _degraded(transaction, cause, str(error))
    except OSError as error:
        return await _degraded(transaction, cause, cause_of(error))
    transaction.emit(Event(EventKind.RESTORED, detail=previous.scene))
    why = "see `lumbridge-compute logs MODEL` for what the model said"
    return Outcome(
        Exit.INTERRUPTED if failure.interrupted else Exit.FAILED_SAFELY,
        restored=True,
        error=f"{cause}; Scene {previous.scene!r} is restored and verified",
        hint="repeat the command when it suits" if failure.interrupted else why,
        world=transaction.steps.world,
    )


async def _give_up(transaction: Transaction, cause: str, *, interrupted: bool = False) -> Outcome:
    if not await _record(transaction, lambda state: writes.rollback_begins(state, cause)):
        return await _degraded(transaction, cause, "the state could not be written")
    try:
        await transaction.steps.finish_stops()
        plan = plan_stop_all(await transaction.gather(), "roll back")
        if isinstance(plan, Refusals):
            raise StepFailed(render_reasons(plan))
        await transaction.steps.carry_out(plan)
    except StepFailed as error:
        return await _degraded(transaction, cause, str(error))
    except OSError as error:
        return await _degraded(transaction, cause, cause_of(error))
    # Looked at before the last write: an interrupt after that would find nothing unfinished.
    world, forget = await transaction.seen(), plan.forget
    if not await _record(
        transaction,
        # Nothing of ours runs: a deactivation that was interrupted has come to its end, too.
        lambda state: writes.deactivate_end(
            writes.failed(writes.without_records(state, forget), cause)
        ),
    ):
        return await _degraded(transaction, cause, "the state could not be written")
    return Outcome(
        Exit.INTERRUPTED if interrupted else Exit.FAILED_SAFELY,
        error=f"{cause}; nothing is running",
        hint="see `lumbridge-compute status` and the model's log",
        world=world,
    )


async def _uncommitted(transaction: Transaction, cause: str) -> Outcome:
    # Where only the last sync has failed, the file says that it is committed.
    scene = transaction.journal.state.transition_scene or transaction.journal.state.active_scene
    return Outcome(
        Exit.DEGRADED,
        scene,
        restored=False,
        error=f"Scene {scene!r} runs exactly healthy, but it is not committed: {cause}",
        hint="make room on the disk, then run `lumbridge-compute scene resume`",
        world=await transaction.seen(),
    )


async def _leave(transaction: Transaction, previous: Previous) -> Outcome:
    """Stay as it is, recorded: the next resume waits for what is still loading.  An attempt
    that was not given its time is no failed one."""
    with transaction.interruption.way_back(_LEAVING_S, even_when_left=True):
        await _record(
            transaction, lambda state: writes.with_resume_failures(state, previous.failures)
        )
    return _left_unfinished("left before it was finished")


def _left_unfinished(cause: str) -> Outcome:
    return Outcome(
        Exit.DEGRADED,
        restored=False,
        error=f"{cause}; the way back was left unfinished",
        hint="run `lumbridge-compute scene resume` to finish it",
    )


async def _degraded(transaction: Transaction, cause: str, why: str | None = None) -> Outcome:
    """Not restored.  What runs stays recorded; a state that can't be written keeps the
    transition, which says as much."""
    both = f"{cause}; not restored: {why}" if why is not None else cause
    world = await transaction.seen()
    await _record(transaction, lambda state: writes.failed(state, both))
    return Outcome(
        Exit.DEGRADED,
        restored=False,
        error=both,
        hint="mend the cause, then run `lumbridge-compute scene resume`",
        world=world,
    )


async def _record(transaction: Transaction, change: Callable[[NodeState], NodeState]) -> bool:
    """Write on the way back, with the floor's latch where it has stopped what is wanted; a write
    that fails is tried once more, then False."""
    for _ in range(2):
        try:
            await transaction.journal.update(lambda state: transaction.latched(change(state)))
        except OSError:
            continue
        return True
    return False


def _limit_s(transaction: Transaction, definitions: Iterable[Model]) -> float:
    records = transaction.journal.state.processes.values()
    running = [record.definition for record in records if isinstance(record, Bound)]
    stops = sum(model.stop.grace_s for model in running)
    starts = sum(model.health.timeout_s for model in definitions)
    return stops + starts + _SPARE_S


def _put_back(state: NodeState, previous: Previous, plan: Plan, cause: str) -> NodeState:
    assert previous.scene is not None  # noqa: S101 - there is nothing to put back without one
    # What the plan found gone and then started anew has a record that is worth something.
    worthless = set(plan.forget) - {model.name for model in plan.target}
    state = writes.restored(writes.without_records(state, worthless), previous.scene, cause)
    return writes.reactivated(state, previous.desired) if state.deactivating else state
