"""A node's status as text lines and as a JSON document."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from lumbridge_compute.core.identity import Ownership
from lumbridge_compute.core.registry import Registry
from lumbridge_compute.core.report import (
    AgentView,
    GatewayView,
    ModelRow,
    NodeStatus,
    Verdict,
    adoptable,
    judge,
    living,
    living_pid,
    model_rows,
)
from lumbridge_compute.core.state import MOST_RESUME_FAILURES, NodeState
from lumbridge_compute.core.tables import render_table
from lumbridge_compute.core.units import render_bytes, render_seconds
from lumbridge_compute.core.world import World

if TYPE_CHECKING:
    from lumbridge_compute.core.documents import (
        AgentStateDocument,
        ModelDocument,
        StatusDocument,
    )

_COMMAND = "lumbridge-compute"
_HEADER = ("MODEL", "OWNERSHIP", "PID", "PORT", "MARKER", "HEALTH", "NEEDS", "MEASURED", "LOADS IN")
_SPARE = ("LOADS IN", "MEASURED", "NEEDS", "MARKER")


def status_document(status: NodeStatus) -> StatusDocument:
    """The document of `status --json`; `problems` says what could not be read."""
    state = status.state or NodeState()
    return {
        "root": status.root,
        "version": status.version,
        "agent": {
            "running": status.agent.running,
            "pid": status.agent.pid,
            "version": status.agent.version,
        },
        "state": {
            "desired_scene": state.desired_scene,
            "active_scene": state.active_scene,
            "last_known_good_scene": state.last_known_good_scene,
            "transition_scene": state.transition_scene,
            "last_error": state.last_error,
        },
        "verdict": judge(status).value,
        "models": [
            {
                **row_document(row),
                "declared_memory_bytes": row.declared_bytes,
                "measured_memory_bytes": status.measured.get(row.name),
                "measured_load_s": _rounded(status.load_s.get(row.name)),
            }
            for row in _rows(status)
        ],
        "memory": {
            "available_bytes": status.memory.available_bytes if status.memory else None,
            "total_bytes": status.memory.total_bytes if status.memory else None,
            "floor_bytes": status.floor_bytes,
        },
        "gateways": [
            {
                "listen": str(gateway.spec.listen),
                "upstream": str(gateway.spec.upstream),
                "connections": gateway.connections,
                "held": gateway.held,
            }
            for gateway in status.gateways
        ],
        "agent_state": _agent_state(status.agent),
        "problems": [{"message": p.message, "hint": p.hint} for p in status.problems],
    }


def _agent_state(agent: AgentView) -> AgentStateDocument | None:
    """What the agent tells of itself; None without one."""
    if not agent.running:
        return None
    told = agent.told
    return {
        "stuck": agent.stuck,
        "transaction": told["transaction"] if told else None,
        "waiting": told["waiting"] if told else None,
        "floor": told["floor"] if told else None,
        "registry_fault": told["registry_fault"] if told else None,
    }


def _rounded(seconds: float | None) -> float | None:
    return round(seconds, 3) if seconds is not None else None


def row_document(row: ModelRow) -> ModelDocument:
    """One entry of `models`."""
    return {
        "name": row.name,
        "port": row.port,
        "marker": row.marker,
        "pid": row.pid,
        "ownership": row.ownership.value,
        "health": row.health.value if row.health is not None else None,
        "detail": row.detail,
        "in_active_scene": row.in_active_scene,
        "definition_changed": row.definition_changed,
    }


def render_status(status: NodeStatus, width: int | None = None) -> list[str]:
    """The status for a person: the verdict first; at most `width` columns of table."""
    rows = _rows(status)
    return [
        *_headline(status),
        *(["", *_model_table(status, rows, width)] if rows else []),
        *_row_notes(rows),
        "",
        *_facts(status),
    ]


def _rows(status: NodeStatus) -> tuple[ModelRow, ...]:
    active = status.state.active_scene if status.state is not None else None
    return model_rows(status.world, status.registry, active)


def _headline(status: NodeStatus) -> list[str]:
    verdict = judge(status)
    sentence, hint = _explain(status, verdict)
    lines = [f"{verdict}: {sentence}"]
    lines += [f"problem: {problem.message}" for problem in status.problems[1:]]
    return lines + ([f"hint: {hint}"] if hint else [])


def _explain(status: NodeStatus, verdict: Verdict) -> tuple[str, str | None]:
    """Why it is so, and the next step where there is one."""
    state = status.state
    if verdict is Verdict.UNKNOWN or state is None:
        first = status.problems[0]
        return first.message, first.hint
    if verdict is Verdict.TRANSITION:
        return _explain_transition(status, state), None
    if verdict is Verdict.IDLE:
        scene = adoptable(status)
        if scene is None:
            return "nothing is active and nothing is desired", None
        hint = f"Scene {scene!r} seems to run already: {_COMMAND} scene adopt {scene}"
        return "nothing is active and nothing is desired", f"{hint} --pid MODEL=PID"
    if verdict is Verdict.EXACT:
        return _explain_exact(state)
    return _explain_degraded(status, state)


def _explain_transition(status: NodeStatus, state: NodeState) -> str:
    holder = status.holder
    age = f" for {render_seconds(holder.age_s)}" if holder and holder.age_s is not None else ""
    if state.deactivating:
        return f"{holder} has been stopping everything{age}"
    if state.last_error is not None:
        return (
            f"{holder} is rolling back the switch to Scene {state.transition_scene!r}{age}: "
            f"{state.last_error}"
        )
    return f"{holder} has been switching to Scene {state.transition_scene!r}{age}"


def _explain_exact(state: NodeState) -> tuple[str, str | None]:
    scene = state.active_scene or ""
    sentence = f"Scene {scene!r} runs, every model exactly healthy"
    if state.desired_scene == scene:
        return sentence, None
    if state.desired_scene is None:
        return f"{sentence}, but nothing is desired", f"{_COMMAND} scene activate {scene}"
    return f"{sentence}, but Scene {state.desired_scene!r} is desired", _resume_hint(state)


def _explain_degraded(status: NodeStatus, state: NodeState) -> tuple[str, str | None]:
    world, registry = status.world, status.registry
    assert registry is not None  # noqa: S101 - judge() says unknown without one
    if state.transition_scene is not None:
        interrupted = f"the switch to Scene {state.transition_scene!r} was interrupted"
        return f"{interrupted} and nobody goes on with it", _resume_hint(state)
    if state.deactivating:
        return "a deactivation was interrupted", f"{_COMMAND} scene deactivate"
    if state.active_scene is not None:
        return _explain_broken(state, registry, world)
    if state.desired_scene is not None:
        legacy = _legacy_hint(state, world, state.desired_scene)
        sentence = f"Scene {state.desired_scene!r} is desired but no Scene is active"
        return sentence, legacy or _resume_hint(state)
    names = ", ".join(f"{name!r}{_pid_of(name, world)}" for name in living(world, state))
    legacy = _legacy_hint(state, world, "NAME")
    return f"nothing is desired, but still alive: {names}", legacy or f"{_COMMAND} scene deactivate"


def _explain_broken(state: NodeState, registry: Registry, world: World) -> tuple[str, str | None]:
    scene = state.active_scene or ""
    declared = registry.scenes.get(scene)
    if declared is None:
        sentence = f"the active Scene {scene!r} is not in compute.yaml"
        return sentence, "put it back, or switch to one that is (`scene list` names them)"
    broken = [name for name in declared.models if not world.view(name).exact]
    said = ", ".join(f"{name!r} is {_state_word(name, world)}" for name in broken)
    sentence = f"Scene {scene!r} is recorded as active but {said}"
    return sentence, _legacy_hint(state, world, scene) or _resume_hint(state)


def _state_word(name: str, world: World) -> str:
    view = world.view(name)
    if view.ownership is Ownership.NONE:
        return "without a record"
    if view.ownership is Ownership.OWNED and view.health is not None:
        return view.health.name.value
    return view.ownership.value


def _legacy_hint(state: NodeState, world: World, scene: str) -> str | None:
    for name in state.processes:
        ownership = world.view(name).ownership
        if ownership is Ownership.LEGACY:
            return (
                f"{name!r} is recorded by its pid alone: bind it with `{_COMMAND} scene adopt "
                f"{scene}`, or drop the record with `{_COMMAND} scene forget {name}`"
            )
        if ownership is Ownership.FOREIGN:
            return f"{_COMMAND} scene forget {name}"
    return None


def _resume_hint(state: NodeState) -> str:
    failures = state.resume_failures
    forced = failures is not None and failures.count >= MOST_RESUME_FAILURES
    return f"{_COMMAND} scene resume{' --force' if forced else ''}"


def _pid_of(name: str, world: World) -> str:
    pid = living_pid(world.view(name))
    return f" (pid {pid})" if pid is not None else ""


def _model_table(status: NodeStatus, rows: Iterable[ModelRow], width: int | None) -> list[str]:
    cells = [_cells(row, status) for row in rows]
    return render_table(_HEADER, cells, width=width, spare=_SPARE)


def _cells(row: ModelRow, status: NodeStatus) -> tuple[str, ...]:
    measured, load_s = status.measured.get(row.name), status.load_s.get(row.name)
    return (
        row.name,
        "-" if row.ownership is Ownership.NONE else row.ownership.value,
        _shown(row.pid),
        _shown(row.port),
        _shown(row.marker),
        row.health.value if row.health is not None else "-",
        render_bytes(row.declared_bytes) if row.declared_bytes is not None else "-",
        render_bytes(measured) if measured is not None else "-",
        render_seconds(load_s) if load_s is not None else "-",
    )


def _shown(value: object) -> str:
    return "-" if value is None else str(value)


def _row_notes(rows: Iterable[ModelRow]) -> Iterable[str]:
    for row in rows:
        if row.detail is not None:
            yield f"  {row.name}: {row.detail}"
        if row.definition_changed:
            yield f"  {row.name}: compute.yaml has changed since it was started"


def _facts(status: NodeStatus) -> Iterable[str]:
    yield _memory_line(status)
    state = status.state
    if state is not None:
        if state.last_known_good_scene is not None:
            yield f"last known good: Scene {state.last_known_good_scene!r}"
        if state.last_error is not None:
            yield f"last error: {state.last_error}"
        if state.resume_failures is not None:
            failed = state.resume_failures
            yield f"resume has failed {failed.count} times in a row, last with {failed.scene!r}"
        if state.floor_latch is not None:
            latch = state.floor_latch
            yield f"memory floor: stopped Scene {latch.scene!r} at {latch.at}; held back this boot"
    for gateway in status.gateways:
        yield f"gateway: {_gateway_line(gateway, status.agent)}"
    if status.agent.running:
        yield from _agent_lines(status.agent, status.version)


def _gateway_line(gateway: GatewayView, agent: AgentView) -> str:
    addresses = f"{gateway.spec.listen} -> {gateway.spec.upstream}"
    if not agent.running:
        return f"{addresses} (not served: no agent runs)"
    if agent.stuck:
        return addresses
    held = f", {gateway.held} held" if gateway.held else ""
    plural = "" if gateway.connections == 1 else "s"
    return f"{addresses}, {gateway.connections} connection{plural}{held}"


def _agent_lines(agent: AgentView, version: str) -> Iterable[str]:
    """What it does, and whatever of it an operator should not overlook."""
    pid = f"pid {agent.pid}" if agent.pid is not None else "pid not known"
    told = agent.told
    if told is None:
        yield f"agent: {pid} holds its lock and does not answer: it is stuck"
        return
    doing = told["transaction"]
    if doing is None:
        doing_line = "at rest" if told["resumed"] else "before its resume"
    else:
        what = f"scene {doing['command']} {doing['name'] or ''}".rstrip()
        waiting = f", {told['waiting']} waiting" if told["waiting"] else ""
        doing_line = f"{what}, for {render_seconds(doing['age_s'])}{waiting}"
    differs = f", this command is {version}" if agent.version != version else ""
    yield f"agent: {pid}, version {agent.version}{differs}; {doing_line}"
    if told["registry_fault"] is not None:
        yield f"agent: compute.yaml as it is now is refused: {told['registry_fault']}"
    floor = told["floor"]
    if floor["blind"] is not None:
        yield f"memory floor: BLIND, nothing is guarded: {floor['blind']}"
    elif floor["bytes"] and floor["sampler_pid"] is None:
        yield f"memory floor: watched by the agent itself, not by its sampler: {floor['cause']}"


def _memory_line(status: NodeStatus) -> str:
    if status.memory is None:
        return "memory: cannot be read"
    floor = f"floor {render_bytes(status.floor_bytes)}" if status.floor_bytes else "no floor"
    available, total = status.memory.available_bytes, status.memory.total_bytes
    return f"memory: {render_bytes(available)} available of {render_bytes(total)}, {floor}"
