"""What a node is like now, as a value, and the one word for it (DESIGN section 12)."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from lumbridge_compute.core.health import HealthName
from lumbridge_compute.core.identity import Ownership
from lumbridge_compute.core.ports import holder_of
from lumbridge_compute.core.registry import GatewaySpec, Registry
from lumbridge_compute.core.state import NodeState
from lumbridge_compute.core.values import dataclass, field
from lumbridge_compute.core.world import Memory, ModelView, World

if TYPE_CHECKING:
    from lumbridge_compute.core.documents import AgentDocument

_LIVING = frozenset({Ownership.OWNED, Ownership.SURVIVORS, Ownership.FOREIGN, Ownership.LEGACY})


class Verdict(enum.StrEnum):
    """The one word for the node."""

    EXACT = "exact"
    TRANSITION = "transition"
    DEGRADED = "degraded"
    IDLE = "idle"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that could not be read, with the next step."""

    message: str
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds the lock of mutating commands; `age_s` since it was taken."""

    pid: int | None
    command: str
    age_s: float | None = None

    def __str__(self) -> str:
        who = f"pid {self.pid}" if self.pid is not None else "another process"
        return f"{who} ({self.command})" if self.command else who


@dataclass(frozen=True, slots=True)
class AgentView:
    """The resident agent: `pid` by its lock, the rest by its own word.

    `told` is what it told of itself, None where it did not answer: then it is stuck.
    """

    running: bool = False
    pid: int | None = None
    version: str | None = None
    told: AgentDocument | None = None

    @property
    def stuck(self) -> bool:
        return self.running and self.told is None


@dataclass(frozen=True, slots=True)
class GatewayView:
    """One gateway; without an agent nobody serves it, so nothing is connected."""

    spec: GatewaySpec
    connections: int = 0
    held: int = 0


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """Everything that `status` shows.

    `registry` and `state` are None where they can't be read (`problems` says why).  `load_s` is
    how long each model took to become healthy, `measured` what it cost of available memory.
    """

    root: str
    version: str
    world: World
    registry: Registry | None = None
    state: NodeState | None = None
    holder: Holder | None = None
    agent: AgentView = field(default_factory=AgentView)
    gateways: tuple[GatewayView, ...] = ()
    problems: tuple[Problem, ...] = ()
    load_s: Mapping[str, float] = field(default_factory=dict)
    measured: Mapping[str, int] = field(default_factory=dict)

    @property
    def memory(self) -> Memory | None:
        return self.world.memory

    @property
    def floor_bytes(self) -> int | None:
        """The floor in force: an agent may have been given another one than the registry's."""
        if self.agent.told is not None:
            return self.agent.told["floor"]["bytes"]
        return self.registry.memory_floor_bytes if self.registry is not None else None


def judge(status: NodeStatus) -> Verdict:
    """The verdict, in the order in which one thing outweighs another."""
    state, registry = status.state, status.registry
    if state is None or registry is None:
        return Verdict.UNKNOWN
    if state.transition_scene is not None or state.deactivating:
        return Verdict.TRANSITION if status.holder is not None else Verdict.DEGRADED
    if state.active_scene is not None:
        exact = scene_exact(state.active_scene, registry, status.world)
        return Verdict.EXACT if exact else Verdict.DEGRADED
    if state.desired_scene is not None or any(living(status.world, state)):
        return Verdict.DEGRADED
    return Verdict.IDLE


def passes_check(status: NodeStatus) -> bool:
    """What `status --check` asks: as wanted, or idle with nothing wanted."""
    verdict = judge(status)
    if verdict is Verdict.IDLE:
        return True
    state = status.state
    return (
        verdict is Verdict.EXACT and state is not None and state.active_scene == state.desired_scene
    )


def scene_exact(scene: str, registry: Registry, world: World) -> bool:
    """True when every model of `scene` is exactly healthy; False for an unknown Scene."""
    declared = registry.scenes.get(scene)
    return declared is not None and all(world.view(name).exact for name in declared.models)


def living(world: World, state: NodeState) -> Iterable[str]:
    """The recorded models of which something lives, ours or not proved to be."""
    return (name for name in state.processes if world.view(name).ownership in _LIVING)


@dataclass(frozen=True, slots=True)
class ModelRow:
    """One model as `status` and the result of a command show it.

    `pid` is that of a living process, never a number that may belong to someone else by now.
    """

    name: str
    port: int | None
    marker: str | None
    pid: int | None
    ownership: Ownership
    health: HealthName | None
    detail: str | None
    in_active_scene: bool
    definition_changed: bool
    declared_bytes: int | None = None


def model_rows(
    world: World, registry: Registry | None, active_scene: str | None
) -> tuple[ModelRow, ...]:
    """One row a model: those of the active Scene in start order, then what lives, then the rest."""
    scene = registry.scenes.get(active_scene or "") if registry is not None else None
    active = scene.models if scene is not None else ()
    names = [*registry.models] if registry is not None else []
    names += [name for name in world.models if name not in names]
    rank = {name: i for i, name in enumerate(active)}

    def order(name: str) -> tuple[int, int]:
        if name in rank:
            return 0, rank[name]
        return (2 if world.view(name).ownership is Ownership.NONE else 1), names.index(name)

    return tuple(_row(name, world, registry, name in rank) for name in sorted(names, key=order))


def _row(name: str, world: World, registry: Registry | None, active: bool) -> ModelRow:  # noqa: FBT001 - a private helper with one call
    view = world.view(name)
    declared = registry.models.get(name) if registry is not None else None
    definition = view.checked or declared
    health, detail = _health(view, world)
    return ModelRow(
        name=name,
        port=definition.port if definition else None,
        marker=definition.marker if definition else None,
        pid=living_pid(view),
        ownership=view.ownership,
        health=health,
        detail=detail,
        in_active_scene=active,
        definition_changed=registry is not None
        and view.ownership in (Ownership.OWNED, Ownership.SURVIVORS)
        and view.checked != declared,
        declared_bytes=definition.memory_bytes if definition else None,
    )


def living_pid(view: ModelView) -> int | None:
    """The pid of the model's first process while it lives, else None."""
    if view.claim.leader is not None:
        return view.claim.leader.pid
    return view.legacy_pid if view.ownership is Ownership.LEGACY else None


def _health(view: ModelView, world: World) -> tuple[HealthName | None, str | None]:
    if view.health is not None:
        return view.health.name, view.health.detail
    if view.ownership is not Ownership.NONE or view.checked is None:
        return None, None
    port = view.checked.port
    strangers = [
        listener
        for listener in world.listeners
        if listener.port == port and holder_of(listener, world) is None
    ]
    if not strangers:
        return None, None
    who = strangers[0].who or "a stranger"
    detail = f"port {port} is held by {who}, which is in no record"
    if view.stranger is not None and view.stranger.exact:
        detail += f", and answers as {view.checked.marker!r}"
    return HealthName.FOREIGN_LISTENER, detail


def adoptable(status: NodeStatus) -> str | None:
    """The largest Scene that runs already without records, where nothing else is wanted."""
    if status.registry is None or status.state is None or status.state.processes:
        return None
    scenes = [
        scene
        for scene in status.registry.scenes.values()
        if all(
            (stranger := status.world.view(name).stranger) is not None and stranger.exact
            for name in scene.models
        )
    ]
    return max(scenes, key=lambda scene: len(scene.models)).name if scenes else None
