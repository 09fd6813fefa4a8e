"""Gather a World: what the records are worth, who listens, and what answers."""

from __future__ import annotations

from collections.abc import Mapping

from lumbridge_compute.core.health import (
    EXACT,
    Answer,
    Health,
    HealthName,
    Request,
    judge_marker,
    judge_probe,
    judge_ready,
)
from lumbridge_compute.core.identity import Claim, Identity, Ownership, Process, compare
from lumbridge_compute.core.launch import (
    UnsetVariable,
    check_placeholders,
    expanded_body,
    expanded_headers,
    expanded_probe_path,
    launch_of,
)
from lumbridge_compute.core.ports import judge_listeners
from lumbridge_compute.core.registry import Model, Registry
from lumbridge_compute.core.state import Bound, Legacy, NodeState, Record
from lumbridge_compute.core.values import dataclass, field, replace
from lumbridge_compute.core.world import Listener, ModelView, World
from lumbridge_compute.effects import Effects

_LOOKS = 3


@dataclass(frozen=True, slots=True)
class Site:
    """Where the node lives: its root folder, absolute, and the environment for placeholders."""

    root: str
    environ: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Sighting:
    """A World without what only HTTP can tell; `pending` names the models still to be asked."""

    world: World
    pending: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Scan:
    """The process table, and who proves to belong to which record, at one moment."""

    boot_id: str
    table: Mapping[int, Process]
    carriers: Mapping[str, frozenset[int]]
    scopes: Mapping[str, frozenset[int]]
    listeners: tuple[Listener, ...] = ()
    own: frozenset[int] = frozenset()

    def proved(self, record: Bound) -> frozenset[int]:
        by_token = self.carriers.get(record.token or "", frozenset())
        return by_token | self.scopes.get(record.scope or "", frozenset())


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
    scan = _scan(effects, records)
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


async def check(  # noqa: PLR0913 - what is asked, and of whom
    effects: Effects,
    model: Model,
    record: Record | None,
    site: Site,
    identity: Identity | None,
    *,
    thorough: bool = True,
) -> Health:
    """Is `model` exactly healthy?  In the order of DESIGN section 7, ending at the first that is
    not.  With no `record` (a candidate's is a Legacy one) only the answer is judged.

    `identity` is whose it must be from beginning to end, None where nothing is recorded.
    `thorough` also finds strangers that hold a socket of the model beside it.
    """
    if record is None or identity is None:
        return await _asked(effects, model, site) or EXACT
    own = _own_listener if thorough else _leader_listens
    if (health := own(effects, model, record, identity)) is not None:
        return health
    if (health := await _asked(effects, model, site)) is not None:
        return health
    return own(effects, model, record, identity) or EXACT


def _leader_listens(
    effects: Effects, model: Model, record: Record, identity: Identity
) -> Health | None:
    """As `_own_listener`, by a few small reads where the leader itself listens, or nobody does."""
    pid = identity.pid
    now, row = effects.identify(pid), effects.process(pid)
    if now is not None and row is not None and identity.matches(now):
        listeners = effects.listeners({model.port}, among=(pid,))
        led = row.alive and row.group == pid and all(each.pids for each in listeners)
        if led:
            return judge_listeners(model, listeners, {pid}, owned=True)
    return _own_listener(effects, model, record, identity)


def _own_listener(
    effects: Effects, model: Model, record: Record, identity: Identity
) -> Health | None:
    """None when the process lives, is ours, and holds every listening socket of its port.

    Looked at again before a stranger is named: a child that was forked between the two scans
    holds the socket too, and is in neither.
    """
    health: Health | None = None
    for _ in range(_LOOKS):
        listeners = effects.listeners({model.port})
        claim, now, _ = claim_of(effects, record)
        if claim.leader is None or now is None or not identity.matches(now):
            return Health(HealthName.DEAD, f"{model.name!r} has ended, cause not known")
        if claim.ownership is Ownership.FOREIGN:
            return Health(HealthName.DEAD, f"{model.name!r} no longer leads its process group")
        health = judge_listeners(model, listeners, claim.members, owned=True)
        if health is None or not listeners:
            return health
    return health


def _records(state: NodeState, candidates: Mapping[str, int] | None) -> dict[str, Record]:
    return {**state.processes, **{name: Legacy(pid) for name, pid in (candidates or {}).items()}}


def claim_of(
    effects: Effects, record: Record
) -> tuple[Claim, Identity | None, Mapping[int, Process]]:
    """What `record` is worth at this moment, the identity its PID has now, and the process table
    that it was judged by."""
    scan = _scan(effects, {"": record})
    return *_claim(effects, scan, record), scan.table


def _scan(effects: Effects, records: Mapping[str, Record]) -> _Scan:
    boot_id = effects.boot_id()
    ours = [
        record
        for record in records.values()
        if isinstance(record, Bound) and record.identity.boot_id == boot_id
    ]
    needed = ours or any(isinstance(record, Legacy) for record in records.values())
    tokens = {record.token for record in ours if record.token}
    scopes = {record.scope for record in ours if record.scope}
    return _Scan(
        boot_id,
        effects.processes() if needed else {},
        effects.carriers(tokens) if tokens else {},
        effects.scope_members(scopes) if scopes else {},
    )


def _claim(effects: Effects, scan: _Scan, record: Record) -> tuple[Claim, Identity | None]:
    if isinstance(record, Legacy):
        now = effects.identify(record.pid)
        if now is None:
            return Claim(Ownership.GONE), None
        found = compare(now, now, scan.table)
        if found.ownership is not Ownership.OWNED:
            return found, now
        return replace(found, ownership=Ownership.LEGACY), now
    if record.identity.boot_id != scan.boot_id:
        return Claim(Ownership.GONE), None
    now = effects.identify(record.identity.pid)
    return compare(record.identity, now, scan.table, proved=scan.proved(record)), now


def _definition(
    name: str, record: Record | None, registry: Registry, *, adopting: bool
) -> Model | None:
    declared = registry.models.get(name)
    if not isinstance(record, Bound) or (adopting and declared is not None):
        return declared
    if declared is not None and record.definition.starts_like(declared):
        return declared
    return record.definition


def _view(
    effects: Effects,
    scan: _Scan,
    name: str,
    record: Record | None,
    definition: Model | None,
) -> ModelView:
    if record is None:
        return ModelView(name, checked=definition)
    claim, now = _claim(effects, scan, record)
    view = ModelView(
        name,
        claim,
        identity=record.identity if isinstance(record, Bound) else now,
        checked=definition,
        health=_without_asking(name, claim, record, scan.boot_id),
        legacy_pid=record.pid if isinstance(record, Legacy) else None,
        hosts_us=bool(claim.members & scan.own),
    )
    view = replace(view, permitted=_permitted(effects, scan, claim))
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


def _replacing(effects: Effects, scan: _Scan, view: ModelView, old: Record) -> ModelView:
    """The view of a candidate, with what the record it stands in for is worth."""
    claim, _ = _claim(effects, scan, old)
    same = isinstance(old, Legacy) or (view.identity and old.identity.matches(view.identity))
    return view if same else replace(view, replaced=claim)


def _permitted(effects: Effects, scan: _Scan, claim: Claim) -> bool:
    """May we signal the leader, or each of its survivors?"""
    asked = {claim.leader.pid} if claim.leader is not None else claim.members
    found = [effects.identify(pid) for pid in asked - scan.own]
    return all(effects.permitted(identity) for identity in found if identity is not None)


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


async def _asked(effects: Effects, model: Model, site: Site) -> Health | None:
    try:
        headers = expanded_headers(model, site.root, site.environ)
        probe_path = expanded_probe_path(model, site.root, site.environ)
        body = expanded_body(model, site.root, site.environ)
    except UnsetVariable as error:
        return Health(HealthName.UNAUTHORIZED, str(error), settled=True)

    async def ask(path: str, content: bytes | None = None) -> Answer:
        return await effects.ask(
            Request(model.host, model.port, path, headers, content, model.health.request_timeout_s)
        )

    ready = model.health.ready
    if ready is not None and (health := judge_ready(await ask(ready))) is not None:
        return health
    health = judge_marker(model, await ask(model.health.path))
    if not health.exact:
        return health
    return judge_probe(await ask(probe_path, body)) if probe_path is not None else None
