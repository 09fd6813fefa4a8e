"""What a resume tries, in which order, and when it stops trying (DESIGN section 8, Resume)."""

from __future__ import annotations

from lumbridge_compute.core.digest import digest
from lumbridge_compute.core.plan import Plan, Refusal, Refusals, Snapshot
from lumbridge_compute.core.plan_scene import plan_resume, plan_stop_all
from lumbridge_compute.core.state import MOST_RESUME_FAILURES, ResumeFailures


def plan_next_resume(now: Snapshot, *, force: bool, floor_bytes: int = 0) -> Plan | Refusals:
    """What a resume tries first: an interrupted transition that is whole, else the desired Scene,
    else nothing at all."""
    state = now.state
    scene = state.transition_scene if transition_whole(now) else state.desired_scene
    if scene is None or state.deactivating:
        return plan_stop_all(now, "resume")
    if scene not in now.registry.scenes:
        return Refusals(scene, (_unknown_scene(scene),))
    plan = plan_resume(now, scene, floor_bytes=floor_bytes)
    settled = isinstance(plan, Plan) and plan.settled
    if not settled and not force and (reason := _given_up(now, scene)) is not None:
        return Refusals(scene, (reason,))
    return plan


def plan_fallback(now: Snapshot, *, floor_bytes: int = 0) -> Plan | Refusals:
    """The last known good Scene, where it is another one than the desired."""
    scene = now.state.last_known_good_scene
    if scene is None or scene == now.state.desired_scene:
        hint = "activate a Scene that works"
        message = "there is no other last known good Scene to fall back on"
        return Refusals(scene, (Refusal("no-fallback", None, message, hint),))
    if scene not in now.registry.scenes:
        return Refusals(scene, (_unknown_scene(scene),))
    return plan_resume(now, scene, floor_bytes=floor_bytes)


def next_resume_failures(now: Snapshot, scene: str) -> ResumeFailures:
    """What is remembered while a resume of `scene` is under way: one attempt more."""
    definition = digest(now.registry.models_of(scene))
    past = now.state.resume_failures
    same = past is not None and (past.scene, past.definition) == (scene, definition)
    return ResumeFailures(scene, definition, past.count + 1 if past is not None and same else 1)


def transition_whole(now: Snapshot) -> bool:
    """True when an interrupted transition had reached its target and nothing had failed."""
    scene = now.state.transition_scene
    if scene is None or now.state.last_error is not None or scene not in now.registry.scenes:
        return False
    return all(now.world.view(name).exact for name in now.registry.scenes[scene].models)


def _given_up(now: Snapshot, scene: str) -> Refusal | None:
    count = next_resume_failures(now, scene).count - 1
    if count < MOST_RESUME_FAILURES:
        return None
    return Refusal(
        "needs-operator",
        None,
        f"cannot resume {scene!r}: it has failed {count} times in a row and needs an operator"
        + (f" (last error: {now.state.last_error})" if now.state.last_error else ""),
        f"mend the cause, then `lumbridge-compute scene activate {scene}` or "
        "`lumbridge-compute scene resume --force`",
    )


def _unknown_scene(scene: str) -> Refusal:
    return Refusal(
        "unknown-scene",
        None,
        f"cannot resume {scene!r}: compute.yaml declares no such Scene any more",
        "declare it again, or activate another Scene",
    )
