"""Make the desired Scene true again, else the last known good one (DESIGN section 8, Resume)."""

from __future__ import annotations

from dataclasses import replace

from lumbridge_compute.core.events import Outcome
from lumbridge_compute.core.plan import Plan, Refusals, Snapshot
from lumbridge_compute.core.plan_resume import (
    ResumeMode,
    next_resume_failures,
    plan_fallback,
    plan_next_resume,
)
from lumbridge_compute.core.state import record_loss
from lumbridge_compute.errors import Exit
from lumbridge_compute.interruption import Interrupted
from lumbridge_compute.journal import cause_of
from lumbridge_compute.transaction import Failure, Previous, Transaction, render_reasons
from lumbridge_compute.way_back import begin_fallback, end_degraded, give_up, roll_back

_BLOCKS_EVERY_SCENE = frozenset(
    {
        "legacy-record",
        "foreign-record",
        "not-permitted",
        "inside-model",
        "needs-operator",
        "floor-latch",
    }
)


async def resume(transaction: Transaction, mode: ResumeMode) -> Outcome:
    """One resume, from snapshot to answer.  Raises Interrupted before the first change."""
    if mode is ResumeMode.AGENT and (cause := _stopped_by_floor(transaction)) is not None:
        return await _leave_stopped(transaction, cause)
    now = await transaction.snapshot()
    plan = plan_next_resume(now, mode, floor_bytes=transaction.floor_bytes)
    if isinstance(plan, Refusals):
        return await _resume_refused(transaction, plan, now)
    transaction.announce(plan)
    if plan.scene is None:
        return await stop_everything(transaction, plan, now)
    return await _resume_scene(transaction, plan, now)


def plan_as_resumed(transaction: Transaction, now: Snapshot, mode: ResumeMode) -> Plan | Refusals:
    """The very plan that `resume` would begin with."""
    plan = plan_next_resume(now, mode, floor_bytes=transaction.floor_bytes)
    if isinstance(plan, Plan) or _blocks(plan):
        return plan
    fallback = plan_fallback(now, floor_bytes=transaction.floor_bytes)
    if isinstance(fallback, Refusals):
        return plan
    return replace(fallback, warnings=(render_reasons(plan), *fallback.warnings))


async def stop_everything(transaction: Transaction, plan: Plan, now: Snapshot) -> Outcome:
    """Nothing is wanted: stop all that is ours; nothing is written where all is so already."""
    state = now.state
    claims = (state.desired_scene, state.active_scene, state.transition_scene)
    if not plan.stop and not state.deactivating and not any(claims):
        return transaction.done(plan, now.world)
    failure = await transaction.stop_all(plan)
    if failure is None:
        return transaction.done(plan, now.world)
    if failure.interrupted:
        return await roll_back(transaction, transaction.previous(now), failure)
    return await end_degraded(transaction, failure)


def _stopped_by_floor(transaction: Transaction) -> str | None:
    """The floor may be faster than the agent's own resume, which would start its victim again."""
    stopped = transaction.steps.surroundings.stopped_by_floor()
    scene = transaction.registry.scenes.get(transaction.journal.state.desired_scene or "")
    victims = [name for name in (scene.models if scene is not None else ()) if name in stopped]
    return stopped[victims[0]] if victims else None


async def _leave_stopped(transaction: Transaction, cause: str) -> Outcome:
    """As where the floor acts at rest: the victim is recorded, the others stay as they are."""
    await transaction.journal.update(lambda state: transaction.latched(record_loss(state, cause)))
    transaction.changed = True
    return Outcome(
        Exit.DEGRADED,
        transaction.journal.state.desired_scene,
        error=cause,
        hint="make room, then run `lumbridge-compute scene resume`",
    )


async def _resume_scene(transaction: Transaction, plan: Plan, now: Snapshot) -> Outcome:
    state, scene = now.state, plan.scene
    previous = transaction.previous(now)
    if plan.settled:
        if state.active_scene == scene and state.transition_scene is None:
            return transaction.done(plan, now.world)
        if (failure := await transaction.commit_settled(plan, previous)) is not None:
            return replace(await end_degraded(transaction, failure), scene=scene)
        return transaction.done(plan, now.world)
    counted = scene == state.desired_scene and scene is not None
    failures = next_resume_failures(now, scene) if counted and scene is not None else None
    failure = await transaction.attempt(plan, previous, failures)
    if failure is None:
        return transaction.done(plan, now.world)
    if failure.interrupted or failure.degraded or failure.uncommitted:
        return replace(await roll_back(transaction, previous, failure), scene=scene)
    return replace(await _after_failure(transaction, scene, failure), scene=scene)


async def _resume_refused(transaction: Transaction, refusals: Refusals, now: Snapshot) -> Outcome:
    fallback = plan_fallback(now, floor_bytes=transaction.floor_bytes)
    if _blocks(refusals) or isinstance(fallback, Refusals):
        return planned(refusals, now)
    await transaction.journal.prove_writable()
    transaction.announce(fallback)
    outcome = await _carry_out_fallback(transaction, fallback, render_reasons(refusals))
    return replace(outcome, scene=refusals.scene)


async def _after_failure(transaction: Transaction, failed: str | None, failure: Failure) -> Outcome:
    broken = await begin_fallback(transaction, failure.cause)
    if broken is not None:
        return await end_degraded(transaction, broken)
    try:
        now = await transaction.snapshot()
    except Interrupted:
        return await _interrupted(transaction, failure.cause)
    except OSError as error:
        return await end_degraded(transaction, Failure(f"{failure.cause}; {cause_of(error)}"))
    if failed != now.state.desired_scene:
        # An interrupted transition fell apart during its last check: what is desired comes next,
        # nothing at all included.
        return await resume(transaction, ResumeMode.FORCED)
    plan = plan_fallback(now, floor_bytes=transaction.floor_bytes)
    if isinstance(plan, Refusals):
        return await give_up(transaction, failure.cause)
    return await _carry_out_fallback(transaction, plan, failure.cause)


async def _carry_out_fallback(transaction: Transaction, plan: Plan, cause: str) -> Outcome:
    failure = await transaction.fall_back(plan, cause)
    if failure is None:
        world = transaction.steps.world
        return Outcome(
            Exit.FAILED_SAFELY,
            restored=True,
            error=f"{cause}; the last known good Scene {plan.scene!r} runs instead, verified",
            hint="mend the cause, then run `lumbridge-compute scene resume`",
            world=world,
        )
    if failure.interrupted:
        return await _interrupted(transaction, cause)
    if failure.degraded or failure.uncommitted:
        return await end_degraded(transaction, failure)
    return await give_up(transaction, f"{cause}; then {failure.cause}")


async def _interrupted(transaction: Transaction, cause: str) -> Outcome:
    nothing = Previous(None, (), None, transaction.journal.state.resume_failures)
    return await roll_back(transaction, nothing, Failure(cause, interrupted=True))


def _blocks(refusals: Refusals) -> bool:
    return any(reason.code in _BLOCKS_EVERY_SCENE for reason in refusals.reasons)


def planned(plan: Plan | Refusals, now: Snapshot) -> Outcome:
    """The answer of a dry run, or of a plan that is refused."""
    if isinstance(plan, Plan):
        return Outcome(Exit.DONE, plan.scene, plan=plan, world=now.world, notes=plan.warnings)
    return Outcome(
        Exit.REFUSED,
        plan.scene,
        error=render_reasons(plan),
        hint=plan.reasons[0].hint,
        refusals=plan,
        world=now.world,
        notes=plan.warnings,
    )
