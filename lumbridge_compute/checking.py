"""Is one model exactly healthy?  Listeners, answers, listeners once more (DESIGN section 7)."""

from __future__ import annotations

from lumbridge_compute.claims import claim_of
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
from lumbridge_compute.core.identity import Identity, Ownership
from lumbridge_compute.core.launch import (
    UnsetVariable,
    expanded_body,
    expanded_headers,
    expanded_probe_path,
)
from lumbridge_compute.core.ports import judge_listeners
from lumbridge_compute.core.registry import Model
from lumbridge_compute.core.site import Site
from lumbridge_compute.core.state import Record
from lumbridge_compute.effects import Effects

_LOOKS = 3


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
