"""Every reason against a plan, and what an operator should know about it (DESIGN section 8)."""

from __future__ import annotations

from collections.abc import Iterable

from lumbridge_compute.core.health import HealthName
from lumbridge_compute.core.identity import Ownership
from lumbridge_compute.core.plan import MemoryEstimate, Refusal, Snapshot, Start, Stop
from lumbridge_compute.core.ports import holder_of
from lumbridge_compute.core.registry import Registry
from lumbridge_compute.core.state import NodeState
from lumbridge_compute.core.units import render_bytes
from lumbridge_compute.core.world import ModelView, World


def record_refusals(state: NodeState, world: World) -> Iterable[Refusal]:
    """Records that forbid every change: not proved ours, or not ours to signal."""
    for name in state.processes:
        view = world.view(name)
        if view.ownership is Ownership.LEGACY:
            yield Refusal(
                "legacy-record",
                name,
                f"cannot touch {name!r}: its record is a bare pid {view.legacy_pid}, which is "
                "alive but not proved to be ours",
                "bind it with `lumbridge-compute scene adopt NAME`, or drop the record with "
                f"`lumbridge-compute scene forget {name}`",
            )
        elif view.ownership is Ownership.FOREIGN:
            pid = view.identity.pid if view.identity else "?"
            yield Refusal(
                "foreign-record",
                name,
                f"cannot touch {name!r}: pid {pid} lives but no longer leads its own process group",
                f"drop the record with `lumbridge-compute scene forget {name}`, then end the "
                "process yourself if it should go",
            )
        elif not view.permitted:
            pid = view.identity.pid if view.identity else "?"
            yield Refusal(
                "not-permitted",
                name,
                f"cannot touch {name!r}: pid {pid} belongs to another user, whom this command may "
                "not signal",
                "run the command as the user who owns the model's processes",
            )


def stop_refusals(stop: Iterable[Stop], world: World) -> Iterable[Refusal]:
    """Stops that would end this very command."""
    for step in stop:
        if world.view(step.model).hosts_us:
            yield Refusal(
                "inside-model",
                step.model,
                f"cannot stop {step.model!r}: this command runs inside it",
                f"run it outside {step.model}",
            )


def start_refusals(start: Iterable[Start], registry: Registry, world: World) -> Iterable[Refusal]:
    """Starts whose program, folder or log can't be used."""
    for step in start:
        declared = registry.models.get(step.model)
        if declared is None or not declared.starts_like(step.definition):
            continue  # what was looked at is not what is started: a restore takes the old one
        for reason in world.unstartable.get(step.model, ()):
            yield Refusal(
                "not-startable",
                step.model,
                f"cannot start {step.model!r}: {reason}",
                f"mend that, or correct models.{step.model} in compute.yaml",
            )


def port_refusals(start: Iterable[Start], stop: Iterable[Stop], now: Snapshot) -> Iterable[Refusal]:
    """Ports of what starts that anyone but a process which this plan stops holds."""
    world, stopped = now.world, {step.model for step in stop}
    # What an unfinished transaction has started never proved its marker, and what it was stopping
    # goes anyway: a doubt about it would block the way back.
    doubted = now.state.transition_scene is None and not now.state.deactivating
    for step in start:
        port = step.definition.port
        for listener in world.listeners:
            if listener.port != port:
                continue
            holder = holder_of(listener, world)
            if holder is None or holder not in stopped:
                who = listener.who if holder is None else f"model {holder!r}, which stays"
                yield Refusal(
                    "port-conflict",
                    step.model,
                    f"cannot start {step.model!r}: port {port} is held by {who or 'a stranger'}",
                    f"free the port, or give models.{step.model}.port another number",
                )
            elif (
                doubted
                and (odd := _unexpected_marker(world.view(holder), now.registry)) is not None
            ):
                yield Refusal(
                    "unexpected-marker",
                    holder,
                    f"cannot replace {holder!r} on port {port}: {odd}",
                    "look at what it serves; `lumbridge-compute scene deactivate` stops it "
                    "whatever it serves",
                )


def _unexpected_marker(view: ModelView, registry: Registry) -> str | None:
    health = view.health
    if health is None or health.name is not HealthName.WRONG_MARKER:
        return None
    declared = registry.models.get(view.name)
    if declared is not None and declared.marker in health.reported:
        return None
    return health.detail


def memory_refusals(memory: MemoryEstimate | None) -> Iterable[Refusal]:
    """A plan that would leave less than the floor, where all of it is known."""
    if memory is None or memory.after_bytes is None or not memory.needs_bytes:
        return
    if memory.after_bytes < memory.floor_bytes:
        gives = memory.gives_bytes or 0
        yield Refusal(
            "memory",
            None,
            f"not enough memory: {render_bytes(memory.available_bytes)} available "
            f"+ {render_bytes(gives)} from what stops - {render_bytes(memory.needs_bytes)} needed "
            f"leaves {render_bytes(memory.after_bytes)}, the floor is "
            f"{render_bytes(memory.floor_bytes)}",
            "free memory, or correct `memory` of the models or `node.memory_floor` in compute.yaml",
        )


def unrecorded_servers(registry: Registry, world: World, target: set[str]) -> tuple[str, ...]:
    """Warnings: declared models outside the target that serve without a record of ours."""
    return tuple(
        f"{name!r} is not in the Scene but something without a record of ours serves it on port "
        f"{registry.models[name].port}"
        for name, view in world.models.items()
        if name in registry.models
        and name not in target
        and view.stranger is not None
        and view.stranger.exact
        and _held_by_others(registry.models[name].port, world)
    )


def _held_by_others(port: int, world: World) -> bool:
    """Two models may share port and marker: what answers may be the other one, ours."""
    return any(
        listener.port == port and holder_of(listener, world) is None for listener in world.listeners
    )


def stray_processes(state: NodeState, world: World) -> Iterable[str]:
    """Warnings: processes that a record may have left but that can't be proved ours."""
    for name in state.processes:
        if strays := world.view(name).claim.strays:
            pids = ", ".join(str(pid) for pid in sorted(strays))
            yield f"pid {pids} may be left of {name!r}, but is not proved to be ours: not touched"
