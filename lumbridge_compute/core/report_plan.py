"""A plan, or the reasons against it, as text lines and as a JSON document."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lumbridge_compute.core.plan import AdoptPlan, MemoryEstimate, Plan, Refusal, Refusals
from lumbridge_compute.core.registry import Model
from lumbridge_compute.core.tables import render_table
from lumbridge_compute.core.units import render_bytes

_HEADER = ("ACTION", "MODEL", "PID", "PORT", "MARKER", "MEMORY")
_SPARE = ("MARKER", "MEMORY")


def plan_document(plan: Plan | Refusals) -> dict[str, Any]:
    """The document of a dry run; every list is empty when it is refused."""
    if isinstance(plan, Refusals):
        return {
            "scene": plan.scene,
            "allowed": False,
            "refusals": [refusal_document(reason) for reason in plan.reasons],
            "keep": [],
            "stop": [],
            "start": [],
            "restart": [],
            "warnings": list(plan.warnings),
        }
    stopped = {step.model: step.record.identity.pid for step in plan.stop}
    return {
        "scene": plan.scene,
        "allowed": True,
        "refusals": [],
        "keep": [{"model": kept.model, "pid": kept.identity.pid} for kept in plan.keep],
        "stop": [
            {"model": name, "pid": pid}
            for name, pid in stopped.items()
            if name not in plan.restarted
        ],
        "start": [
            _start_document(step.definition)
            for step in plan.start
            if step.model not in plan.restarted
        ],
        "restart": [
            {**_start_document(step.definition), "pid": stopped[step.model]}
            for step in plan.start
            if step.model in plan.restarted
        ],
        "forget": list(plan.forget),
        "warnings": list(plan.warnings),
        "memory": _memory_document(plan.memory),
    }


def refusal_document(reason: Refusal) -> dict[str, Any]:
    """One entry of `refusals`."""
    return {
        "code": reason.code,
        "model": reason.model,
        "message": reason.message,
        "hint": reason.hint,
    }


def _start_document(model: Model) -> dict[str, Any]:
    return {"model": model.name, "port": model.port, "marker": model.marker}


def _memory_document(memory: MemoryEstimate | None) -> dict[str, Any] | None:
    if memory is None:
        return None
    return {
        "available_bytes": memory.available_bytes,
        "gives_bytes": memory.gives_bytes,
        "needs_bytes": memory.needs_bytes,
        "after_bytes": memory.after_bytes,
        "floor_bytes": memory.floor_bytes,
    }


def render_plan(plan: Plan, width: int | None = None) -> list[str]:
    """The plan for a person: one line a model, then the memory."""
    rows = list(_plan_rows(plan))
    lines = [f"plan: {render_goal(plan)}"]
    lines += render_table(_HEADER, rows, width=width, spare=_SPARE) if rows else []
    if plan.forget:
        lines.append(f"forget: the records of {', '.join(plan.forget)}, which have ended")
    if plan.memory is not None:
        lines.append(f"memory: {render_estimate(plan.memory)}")
    return lines


def render_goal(plan: Plan | AdoptPlan) -> str:
    """What the plan is for: "activate Scene 'b'", and whether there is anything to do."""
    if isinstance(plan, AdoptPlan):
        return f"adopt Scene {plan.scene!r}"
    if plan.scene is None:
        goal = "stop everything" if plan.command == "deactivate" else plan.command
        return goal if plan.changes_processes else f"{goal}: nothing of ours runs"
    goal = f"{plan.command} Scene {plan.scene!r}"
    return goal if plan.changes_processes else f"{goal}: nothing to start or stop"


def _plan_rows(plan: Plan) -> Iterable[tuple[str, ...]]:
    restarted, footprints = plan.restarted, plan.measured
    for kept in plan.keep:
        action = "keep (loading)" if kept.loading else "keep"
        yield _row(action, kept.definition, kept.identity.pid, footprints)
    for stop in plan.stop:
        if stop.model not in restarted:
            yield _row("stop", stop.record.definition, stop.record.identity.pid, footprints)
    pids = {step.model: step.record.identity.pid for step in plan.stop}
    for start in plan.start:
        action = "restart" if start.model in restarted else "start"
        yield _row(action, start.definition, pids.get(start.model), footprints)


def _row(
    action: str, model: Model, pid: int | None, footprints: Mapping[str, int]
) -> tuple[str, ...]:
    shown_pid = "-" if pid is None else str(pid)
    memory = _memory_cell(model, footprints)
    return action, model.name, shown_pid, str(model.port), model.marker, memory


def _memory_cell(model: Model, footprints: Mapping[str, int]) -> str:
    if model.memory_bytes is not None:
        return render_bytes(model.memory_bytes)
    measured = footprints.get(model.name)
    return f"{render_bytes(measured)} measured" if measured is not None else "not known"


def render_estimate(memory: MemoryEstimate) -> str:
    """ "available + gives - needs = after, floor", with what is not known said to be so."""
    text = f"{render_bytes(memory.available_bytes)} available"
    if memory.gives_bytes != 0:
        text += f" + {_known(memory.gives_bytes)} given back"
    if memory.needs_bytes != 0:
        text += f" - {_known(memory.needs_bytes)} needed"
    if memory.after_bytes is not None and (memory.gives_bytes or memory.needs_bytes):
        text += f" = {render_bytes(memory.after_bytes)}"
    return f"{text}, {_floor(memory.floor_bytes)}"


def _known(size: int | None) -> str:
    return render_bytes(size) if size is not None else "(not known)"


def _floor(floor_bytes: int) -> str:
    return f"floor {render_bytes(floor_bytes)}" if floor_bytes else "no floor"
