"""A running transaction: events folded into a board, and both as text lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from lumbridge_compute.core.events import Event, EventKind
from lumbridge_compute.core.plan import Plan
from lumbridge_compute.core.report_plan import render_goal
from lumbridge_compute.core.units import render_bytes, render_seconds


@dataclass(frozen=True, slots=True)
class Line:
    """What one model is doing since `since_s`; `began_s` is when its start or stop began."""

    kind: EventKind | None
    since_s: float
    began_s: float
    plan: str = ""
    pid: int | None = None
    expected_s: float | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Board:
    """All that is known of the transaction: one line a model in the order of the plan.

    `goal` is what all of it is for, `headline` what is done at the moment.
    """

    goal: str = "looking"
    headline: str = "looking"
    lines: Mapping[str, Line] = field(default_factory=dict)
    available_bytes: int | None = None


_OF_MODELS = frozenset(
    {
        EventKind.STOPPING,
        EventKind.STOPPED,
        EventKind.STARTING,
        EventKind.LOADING,
        EventKind.HEALTHY,
    }
)
_GOALS = frozenset({EventKind.PLANNED, EventKind.ROLLING_BACK})
_BEGINS = frozenset({EventKind.STOPPING, EventKind.STARTING})


def fold(board: Board, event: Event, now_s: float) -> Board:
    """The board after `event`, which happened at `now_s`."""
    if event.available_bytes is not None:
        board = replace(board, available_bytes=event.available_bytes)
    if event.kind in _OF_MODELS and event.model is not None:
        line = _next_line(board.lines.get(event.model), event, now_s)
        changed = {**board.lines, event.model: line}
        return replace(board, headline=board.goal, lines=changed)
    headline = _headline(event)
    goal = headline if event.kind in _GOALS else board.goal
    planned = _planned(event.plan, now_s) if event.plan is not None else {}
    lines = {**board.lines, **planned}
    return replace(board, goal=goal, headline=headline, lines=lines)


def _planned(plan: Plan, now_s: float) -> dict[str, Line]:
    words = {kept.model: "kept" for kept in plan.keep}
    words |= {step.model: "to be stopped" for step in plan.stop}
    words |= {step.model: "to be started" for step in plan.start}
    words |= dict.fromkeys(plan.restarted, "to be restarted")
    return {model: Line(None, now_s, now_s, word) for model, word in words.items()}


def _next_line(old: Line | None, event: Event, now_s: float) -> Line:
    if old is None or event.kind in _BEGINS:
        old = Line(None, now_s, now_s, old.plan if old is not None else "")
    return replace(
        old,
        kind=event.kind,
        since_s=now_s,
        pid=event.pid if event.pid is not None else old.pid,
        expected_s=event.expected_s if event.expected_s is not None else old.expected_s,
        detail=event.detail,
    )


def render_board(board: Board, now_s: float) -> list[str]:
    """The board at `now_s`: what goes on, one line a model, and the memory."""
    width = max((len(name) for name in board.lines), default=0)
    lines = [board.headline]
    lines += [f"  {name:<{width}}  {_doing(line, now_s)}" for name, line in board.lines.items()]
    if board.available_bytes is not None:
        lines.append(f"  memory: {render_bytes(board.available_bytes)} available")
    return lines


def _doing(line: Line, now_s: float) -> str:
    elapsed = render_seconds(max(0.0, now_s - line.began_s))
    pid = f", pid {line.pid}" if line.pid is not None else ""
    match line.kind:
        case None:
            return line.plan
        case EventKind.STOPPING:
            return f"stopping {elapsed}"
        case EventKind.STOPPED:
            return f"stopped after {render_seconds(line.since_s - line.began_s)}"
        case EventKind.HEALTHY:
            return f"exactly healthy after {render_seconds(line.since_s - line.began_s)}{pid}"
        case _:
            expected = f" of about {render_seconds(line.expected_s)}" if line.expected_s else ""
            detail = f": {line.detail}" if line.detail else ""
            return f"loading {elapsed}{expected}{pid}{detail}"


def render_event(event: Event) -> str:
    """One event as one line."""
    if event.kind not in _OF_MODELS or event.model is None:
        return _headline(event)
    return f"{event.model}: {_happened(event)}"


def _happened(event: Event) -> str:
    facts = [f"pid {event.pid}"] if event.pid is not None else []
    if event.expected_s is not None:
        facts.append(f"took about {render_seconds(event.expected_s)} before")
    if event.available_bytes is not None:
        facts.append(f"{render_bytes(event.available_bytes)} available")
    said = "exactly healthy" if event.kind is EventKind.HEALTHY else event.kind.value
    detail = f": {event.detail}" if event.detail else ""
    return f"{said}{detail}" + (f" ({', '.join(facts)})" if facts else "")


_HEADLINES = {
    EventKind.SETTLING: "waiting for memory to come back",
    EventKind.VERIFYING: "checking everything once more",
    EventKind.COMMITTED: "Scene {detail!r} is active",
    EventKind.RESTORED: "Scene {detail!r} is restored and verified",
    EventKind.ROLLING_BACK: "rolling back: {detail}",
    EventKind.FAILED: "failed: {detail}",
}


def _headline(event: Event) -> str:
    if event.plan is not None:
        return render_goal(event.plan)
    subject = f"{event.model}: " if event.model is not None else ""
    phrase = _HEADLINES.get(event.kind, subject + "{detail}")
    return phrase.format(detail=event.detail or "")
