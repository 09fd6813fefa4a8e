"""How a command ended, as text lines and as a JSON document."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lumbridge_compute.core.events import Outcome
from lumbridge_compute.core.identity import Ownership
from lumbridge_compute.core.plan import AdoptPlan, Plan, Refusals
from lumbridge_compute.core.registry import Registry
from lumbridge_compute.core.report import living_pid, model_rows
from lumbridge_compute.core.report_plan import plan_document, refusal_document
from lumbridge_compute.core.report_status import row_document
from lumbridge_compute.core.world import ModelView, World
from lumbridge_compute.errors import Exit, OperatorError

_UNPLANNED = {
    Exit.BAD_INPUT: "bad-input",
    Exit.BUSY: "busy",
    Exit.INTERRUPTED: "interrupted",
}
"""Why a dry run has no plan and no reasons of one."""

_OURS = (Ownership.OWNED, Ownership.SURVIVORS)


def outcome_of(error: OperatorError) -> Outcome:
    """The outcome of a command that ended before it could look at anything."""
    return Outcome(Exit(error.exit), error=error.message, hint=error.hint)


def outcome_document(outcome: Outcome, registry: Registry | None = None) -> dict[str, Any]:
    """The document of every command that can change something, and of every failure.

    `models` is what was seen last, empty where nothing was looked at; `registry` tells which of
    them belong to the active Scene.
    """
    rows = model_rows(outcome.world, registry, outcome.active_scene) if outcome.world else ()
    refusals = outcome.refusals.reasons if outcome.refusals is not None else ()
    return {
        "ok": outcome.ok,
        "exit": int(outcome.exit),
        "scene": outcome.scene,
        "active_scene": outcome.active_scene,
        "restored": outcome.restored,
        "error": outcome.error,
        "hint": outcome.hint,
        "models": [row_document(row) for row in rows],
        "refusals": [refusal_document(reason) for reason in refusals],
        "warnings": _warnings(outcome),
    }


def dry_run_document(outcome: Outcome) -> dict[str, Any]:
    """The document of a dry run, whatever came of it."""
    if isinstance(outcome.plan, Plan):
        return plan_document(outcome.plan)
    if outcome.refusals is not None:
        return plan_document(outcome.refusals)
    document = plan_document(Refusals(outcome.scene, ()))
    document["refusals"] = [
        {
            "code": _UNPLANNED.get(outcome.exit, "failed"),
            "model": None,
            "message": outcome.error or "nothing was planned",
            "hint": outcome.hint,
        }
    ]
    return document


def render_failure(outcome: Outcome) -> list[str]:
    """What went wrong, each reason with its hint; empty when nothing did."""
    reasons: list[tuple[str, str | None]]
    if outcome.refusals is not None and outcome.refusals.reasons:
        reasons = [(r.message, r.hint) for r in outcome.refusals.reasons]
    elif outcome.error is not None:
        reasons = [(outcome.error, outcome.hint)]
    else:
        return []
    return [line for message, hint in reasons for line in render_error(message, hint)]


def render_error(message: str, hint: str | None) -> list[str]:
    """One sentence and its next step."""
    return [f"error: {message}", *([f"hint: {hint}"] if hint else [])]


def render_warnings(outcome: Outcome) -> list[str]:
    """One line a warning."""
    return [f"warning: {warning}" for warning in _warnings(outcome)]


def _warnings(outcome: Outcome) -> list[str]:
    said = list(outcome.notes)
    if isinstance(outcome.plan, Plan | AdoptPlan):
        said += outcome.plan.warnings
    if outcome.refusals is not None:
        said += outcome.refusals.warnings
    return list(dict.fromkeys(said))


def render_now_running(outcome: Outcome) -> str | None:
    """The last line: what runs now; None where that was not looked at."""
    if outcome.world is None:
        return None
    running = ", ".join(_running(outcome.world))
    if outcome.active_scene is not None:
        how = " (restored)" if outcome.restored else ""
        return f"now running: Scene {outcome.active_scene!r}{how}: {running or 'nothing of it'}"
    if not running:
        return "now running: nothing"
    return f"now running: no whole Scene, but {running}"


def _running(world: World) -> Iterable[str]:
    for name, view in world.models.items():
        if view.ownership in _OURS:
            yield f"{name} ({_where(view)})"


def _where(view: ModelView) -> str:
    pid = living_pid(view)
    members = ", ".join(str(member) for member in sorted(view.claim.members))
    parts = [f"pid {pid}" if pid is not None else f"survivors: pid {members}"]
    if view.checked is not None:
        parts.append(f"port {view.checked.port}")
    if not view.exact and view.health is not None:
        parts.append(view.health.name.value)
    return ", ".join(parts)
