"""May `scene` be adopted as it runs?  Every reason against it (DESIGN section 8, Adopt)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from lumbridge_compute.core.identity import Ownership
from lumbridge_compute.core.plan import AdoptPlan, Refusal, Refusals, Snapshot
from lumbridge_compute.core.registry import Registry
from lumbridge_compute.core.state import Bound
from lumbridge_compute.core.world import ModelView, World


def plan_adopt(
    now: Snapshot,
    scene: str,
    given: Mapping[str, int],
    own_pids: frozenset[int] = frozenset(),
) -> AdoptPlan | Refusals:
    """`given` are the pids of --pid; `world` shows each candidate's process as the model's view."""
    registry, world = now.registry, now.world
    members = registry.scenes[scene].models
    reasons = [
        *_given_refusals(members, given, scene),
        *(reason for name in members for reason in _member_refusals(name, world, own_pids)),
        *_shared_pids(members, world),
        *_outsiders(now, scene),
    ]
    warnings = tuple(
        f"{name!r} runs in {unit}, whose restart policy would bring it back after a stop"
        for name in members
        if (unit := world.view(name).restarting_unit) is not None
    )
    if reasons:
        return Refusals(scene, tuple(reasons), warnings)
    records = {name: _record(name, now) for name in members}
    # Else a rollback to this Scene would take them for a part of it.
    forget = tuple(
        name
        for name in now.state.processes
        if name not in members and world.view(name).ownership is Ownership.GONE
    )
    return AdoptPlan(scene, records, warnings, forget)


def _record(name: str, now: Snapshot) -> Bound:
    identity = now.world.view(name).identity
    assert identity is not None  # noqa: S101 - _member_refusals lets no view without one pass
    old, definition = now.state.processes.get(name), now.registry.models[name]
    if isinstance(old, Bound) and old.identity.matches(identity):
        return replace(old, definition=definition)
    return Bound(identity, definition, extra=old.extra if old is not None else {})


def _given_refusals(
    members: tuple[str, ...], given: Mapping[str, int], scene: str
) -> Iterable[Refusal]:
    for name in given:
        if name not in members:
            yield Refusal(
                "not-in-scene",
                name,
                f"cannot adopt {name!r}: it is not a model of Scene {scene!r}",
                f"the Scene's models are {', '.join(members)}",
            )


def _member_refusals(name: str, world: World, own_pids: frozenset[int]) -> Iterable[Refusal]:
    view = world.view(name)
    pid_hint = f"start it, or name its process with `--pid {name}=PID`"
    if view.identity is None:
        said = f"pid {view.legacy_pid} is not alive" if view.legacy_pid else "it has no record"
        yield Refusal("no-process", name, f"cannot adopt {name!r}: {said}", pid_hint)
        return
    pid = view.identity.pid
    if view.replaced is not None and view.replaced.members:
        ours = ", ".join(str(each) for each in sorted(view.replaced.members))
        yield Refusal(
            "still-owned",
            name,
            f"cannot adopt pid {pid} as {name!r}: its recorded process is ours and still alive "
            f"(pid {ours})",
            "stop that one first, with `lumbridge-compute scene deactivate`",
        )
    if view.ownership in (Ownership.GONE, Ownership.SURVIVORS, Ownership.NONE):
        yield Refusal("no-process", name, f"cannot adopt {name!r}: pid {pid} has ended", pid_hint)
    elif pid == 1 or pid in own_pids:
        yield Refusal(
            "own-process",
            name,
            f"cannot adopt {name!r}: pid {pid} is this command, its parent or the init process",
            pid_hint,
        )
    elif view.ownership is Ownership.FOREIGN:
        yield Refusal(
            "not-a-leader",
            name,
            f"cannot adopt {name!r}: pid {pid} does not lead its own process group, so stopping it "
            "could reach others",
            "start it in a group of its own (`setsid COMMAND`), or name the group's leader",
        )
    else:
        yield from _serving_refusals(view, pid)


def _serving_refusals(view: ModelView, pid: int) -> Iterable[Refusal]:
    if not view.permitted:
        yield Refusal(
            "not-permitted",
            view.name,
            f"cannot adopt {view.name!r}: pid {pid} belongs to another user, whom this command may "
            "not signal",
            "run the command as that user",
        )
    if view.health is None or not view.health.exact:
        detail = view.health.detail if view.health else "it was not asked"
        yield Refusal(
            "not-healthy",
            view.name,
            f"cannot adopt {view.name!r}: {detail}",
            "wait until it serves exactly its marker, or correct its health section",
        )


def _shared_pids(members: tuple[str, ...], world: World) -> Iterable[Refusal]:
    first: dict[int, str] = {}
    for name in members:
        identity = world.view(name).identity
        if identity is None:
            continue
        if identity.pid in first:
            yield Refusal(
                "same-process",
                name,
                f"cannot adopt {name!r}: pid {identity.pid} is already {first[identity.pid]!r}",
                "give each model the pid of its own process",
            )
        first.setdefault(identity.pid, name)


def _outsiders(now: Snapshot, scene: str) -> Iterable[Refusal]:
    registry = now.registry
    members = registry.scenes[scene].models
    ports = {registry.models[name].port for name in members}
    for name, view in now.world.models.items():
        if name in members:
            continue
        recorded = name in now.state.processes
        if recorded and view.ownership in (Ownership.OWNED, Ownership.SURVIVORS):
            yield Refusal(
                "owned-outside",
                name,
                f"cannot adopt Scene {scene!r}: {name!r} is ours, still lives and is not in it",
                "switch with `lumbridge-compute scene activate` instead, or deactivate first",
            )
        elif name in registry.models and _serves_elsewhere(view, registry, ports):
            yield Refusal(
                "also-serving",
                name,
                f"cannot adopt Scene {scene!r}: {name!r}, which is not in it, serves on port "
                f"{registry.models[name].port}",
                "end that server, or adopt a Scene that contains it",
            )


def _serves_elsewhere(view: ModelView, registry: Registry, ports: set[int]) -> bool:
    seen = view.stranger or view.health
    serves = seen is not None and seen.exact
    return serves and registry.models[view.name].port not in ports
