"""Gather a World: what the records are worth, who listens, and what answers."""

from __future__ import annotations

from collections.abc import Mapping

from lumbridge_compute.checking import check
from lumbridge_compute.claims import Scan, judge_record, may_signal, read_scan
from lumbridge_compute.core.health import Health, HealthName
from lumbridge_compute.core.identity import Claim, Ownership
from lumbridge_compute.core.launch import UnsetVariable, check_placeholders, launch_of
from lumbridge_compute.core.ports import judge_listeners
from lumbridge_compute.core.registry import Model, Registry
from lumbridge_compute.core.site import Site
from lumbridge_compute.core.state import Bound, Legacy, NodeState, Record
from lumbridge_compute.core.values import dataclass, replace
from lumbridge_compute.core.withheld import completed
from lumbridge_compute.core.world import Listener, ModelView, World
from lumbridge_compute.effects import Effects


@dataclass(frozen=True, slots=True)
class Sighting:
    """A World without what only HTTP can tell; `pending` names the models still to be asked."""

    world: World
    pending: tuple[str, ...]


def look(
    effects: Effects,
    registry: Registry,
    state: NodeState,
    site: Site,
    candidates: Mapping[str, int] | None = None,
) -> Sighting:
    """Look without asking: records, process table, listening sockets, memory.

    `candidates` are pids that stand in for records (adopt --pid).  With them, none included, what
    runs is judged by what is declared today, as which it would be recorded.
    """
    records = _records(state, candidates)
    scan = read_scan(effects, records)
    names = [*registry.models, *(name for name in records if name not in registry.models)]
    adopting = candidates is not None
    definitions = {
        name: _definition(name, records.get(name), registry, adopting=adopting) for name in names
    }
    listeners = effects.listeners({d.port for d in definitions.values() if d is not None})
    own = effects.own_pids(scan.table) if records else frozenset[int]()
    scan = replace(scan, listeners=listeners, own=own)
    views = {
        name: _view(effects, scan, name, records.get(name), definitions[name]) for name in names
    }
    for name in candidates or {}:
        if (old := state.processes.get(name)) is not None:
            views[name] = _replacing(effects, scan, views[name], old)
    world = World(
        models=views,
        listeners=listeners,
        memory=effects.memory(),
        unstartable=_unstartable(effects, registry, site),
        boot_id=scan.boot_id,
    )
    return Sighting(world, tuple(name for name in names if _to_be_asked(views[name], listeners)))


async def observe(
    effects: Effects,
    registry: Registry,
    state: NodeState,
    site: Site,
    candidates: Mapping[str, int] | None = None,
) -> World:
    """One snapshot, every model asked at the same time.  Raises OSError where we can't look."""
    import trio

    sighting = look(effects, registry, state, site, candidates)
    results: dict[str, ModelView] = dict(sighting.world.models)
    listeners = sighting.world.listeners
    records = _records(state, candidates)
    blind: list[OSError] = []

    async def ask(name: str) -> None:
        try:
            await judge(name)
        except OSError as error:
            blind.append(error)

    async def judge(name: str) -> None:
        view = results[name]
        assert view.checked is not None  # noqa: S101 - nothing without a definition is pending
        ours = view.ownership in (Ownership.OWNED, Ownership.LEGACY)
        record = records[name] if ours else None
        # Every holder was looked for a moment ago: again only where one is not ours.
        doubt = judge_listeners(view.checked, listeners, view.claim.members, owned=ours)
        health = await check(
            effects, view.checked, record, site, view.identity, thorough=doubt is not None
        )
        results[name] = replace(view, health=health) if ours else replace(view, stranger=health)

    async with trio.open_nursery() as nursery:
        for name in sighting.pending:
            nursery.start_soon(ask, name)
    if blind:
        raise blind[0]
    return replace(sighting.world, models=results)


def _records(state: NodeState, candidates: Mapping[str, int] | None) -> dict[str, Record]:
    return {**state.processes, **{name: Legacy(pid) for name, pid in (candidates or {}).items()}}


def _definition(
    name: str, record: Record | None, registry: Registry, *, adopting: bool
) -> Model | None:
    declared = registry.models.get(name)
    if not isinstance(record, Bound) or (adopting and declared is not None):
        return declared
    if declared is not None and record.definition.starts_like(declared):
        return declared
    return completed(record.definition, declared)


def _view(
    effects: Effects,
    scan: Scan,
    name: str,
    record: Record | None,
    definition: Model | None,
) -> ModelView:
    if record is None:
        return ModelView(name, checked=definition)
    claim, now = judge_record(effects, scan, record)
    view = ModelView(
        name,
        claim,
        identity=record.identity if isinstance(record, Bound) else now,
        checked=definition,
        health=_without_asking(name, claim, record, scan.boot_id),
        legacy_pid=record.pid if isinstance(record, Legacy) else None,
        hosts_us=bool(claim.members & scan.own),
    )
    view = replace(view, permitted=may_signal(effects, scan, claim))
    if claim.leader is None or now is None:
        return view
    view = replace(
        view,
        age_s=effects.age_s(claim.leader.start_ticks),
        restarting_unit=effects.restarting_unit(now.pid) if isinstance(record, Legacy) else None,
    )
    if definition is None or claim.ownership not in (Ownership.OWNED, Ownership.LEGACY):
        return view
    if any(listener.port == definition.port for listener in scan.listeners):
        return view
    return replace(view, health=judge_listeners(definition, (), claim.members, owned=True))


def _replacing(effects: Effects, scan: Scan, view: ModelView, old: Record) -> ModelView:
    """The view of a candidate, with what the record it stands in for is worth."""
    claim, _ = judge_record(effects, scan, old)
    same = isinstance(old, Legacy) or (view.identity and old.identity.matches(view.identity))
    return view if same else replace(view, replaced=claim)


def _without_asking(name: str, claim: Claim, record: Record, boot_id: str) -> Health | None:
    if claim.ownership is Ownership.SURVIVORS:
        pids = ", ".join(str(pid) for pid in sorted(claim.members))
        return Health(
            HealthName.DEAD, f"the first process of {name!r} has ended; still alive: pid {pids}"
        )
    if claim.ownership is not Ownership.GONE:
        return None
    if isinstance(record, Bound) and record.identity.boot_id != boot_id:
        return Health(HealthName.DEAD, f"{name!r} ended with the machine's last boot")
    return Health(HealthName.DEAD, f"{name!r} has ended, cause not known")


def _to_be_asked(view: ModelView, listeners: tuple[Listener, ...]) -> bool:
    if view.checked is None:
        return False
    if view.ownership in (Ownership.OWNED, Ownership.LEGACY) and view.health is not None:
        return False
    return any(listener.port == view.checked.port for listener in listeners)


def _unstartable(effects: Effects, registry: Registry, site: Site) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for name, model in registry.models.items():
        try:
            reasons = effects.unstartable(launch_of(model, site.root, site.environ))
            check_placeholders(model, site.root, site.environ)
        except UnsetVariable as error:
            reasons = (str(error),)
        if reasons:
            found[name] = reasons
    return found
