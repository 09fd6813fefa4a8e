"""In what situation a command finds the node, by names that can be counted."""

from __future__ import annotations

from collections.abc import Iterator

from lumbridge_compute.core.state import MOST_RESUME_FAILURES, Bound, Legacy, NodeState
from lumbridge_compute.effects import STATE_FILE
from tests.fakes.world import World
from tests.proof.facts import exact, ours, parsed, whole


def circumstances(world: World) -> set[str]:
    """Everything that is so on this node now."""
    state = parsed(world.disk.read(STATE_FILE))
    found = set(_around(world))
    if state is None:
        return found | {"damaged"}
    return found | set(_remembered(world, state)) | set(_running(world, state))


NAMES = (
    "damaged",
    "registry broken",
    "registry edited under its processes",
    "a Scene is gone from the registry",
    "stranger on a port",
    "idle",
    "active",
    "exact",
    "degraded",
    "partly alive",
    "switch pending",
    "whole and not committed",
    "way back pending",
    "deactivation pending",
    "needs an operator",
    "floor-latched",
    "after a reboot",
    "PID reused",
    "legacy",
    "survivors",
    "dying slowly",
    "loading",
    "lost its record",
    "another Scene is desired",
)


def _around(world: World) -> Iterator[str]:
    ports = {model.port for model in world.registry.models.values()}
    if world.registry_fault is not None:
        yield "registry broken"
    if len(world.registry.scenes) < 2:
        yield "a Scene is gone from the registry"
    if any(ports & body.listens for body in world.living() if not body.start):
        yield "stranger on a port"
    if any(body.start and body.model is None for body in world.living()):
        yield "lost its record"


def _remembered(world: World, state: NodeState) -> Iterator[str]:
    failures = state.resume_failures
    if state.transition_scene is not None:
        yield "switch pending" if state.last_error is None else "way back pending"
        if state.last_error is None and whole(world, state, state.transition_scene):
            yield "whole and not committed"
    if state.deactivating:
        yield "deactivation pending"
    if failures is not None and failures.count >= MOST_RESUME_FAILURES:
        yield "needs an operator"
    if state.floor_latch is not None and state.floor_latch.boot_id == world.boot_id:
        yield "floor-latched"
    if state.active_scene is not None and state.active_scene != state.desired_scene:
        yield "another Scene is desired"


def _running(world: World, state: NodeState) -> Iterator[str]:
    scene, mine = state.active_scene, list(ours(world))
    if scene is not None:
        yield "active"
        yield "exact" if whole(world, state, scene) else "degraded"
    elif not mine and state.desired_scene is None:
        yield "idle"
    if any(body.terms for body in mine):
        yield "dying slowly"
    if any(body.leads and not body.listens for body in mine):
        yield "loading"
    well = [exact(world, state, name) for name in state.processes]
    if any(well) and not all(well):
        yield "partly alive"
    for name, record in state.processes.items():
        yield from _of_record(world, name, record)


def _of_record(world: World, name: str, record: Bound | Legacy) -> Iterator[str]:
    if isinstance(record, Legacy):
        yield "legacy"
        return
    declared = world.registry.models.get(name)
    if declared is None or not record.definition.starts_like(declared):
        yield "registry edited under its processes"
    if record.identity.boot_id != world.boot_id:
        yield "after a reboot"
    elif world.body_of(record.identity) is None and record.identity.pid in world.bodies:
        yield "PID reused"
    leaders = world.leaders
    if world.body_of(record.identity) is None and any(
        record.identity.matches(leaders[body.start]) for body in ours(world)
    ):
        yield "survivors"
