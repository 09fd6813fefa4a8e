"""Whose are the listening sockets of a model's port?"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from lumbridge_compute.core.health import Health, HealthName
from lumbridge_compute.core.identity import Ownership
from lumbridge_compute.core.markers import printable
from lumbridge_compute.core.registry import Model, PortOwner
from lumbridge_compute.core.world import Listener, World

SHOWN_HOLDERS = 3


def judge_listeners(
    model: Model, listeners: Iterable[Listener], members: AbstractSet[int], *, owned: bool
) -> Health | None:
    """None when every listening socket of the port of `model` belongs to the model, else why not.

    `listeners` may hold other ports too; every address of the port counts, since a stranger on
    one of them answers some of the clients.  `members` are the PIDs proved to be the model's.
    A socket is the model's when all who hold it are; one that nobody is seen to hold is not.
    `owned` says whether the model's own process lives.
    """
    ours: list[Listener] = []
    strange: list[Listener] = []
    for listener in listeners:
        if listener.port == model.port:
            own = bool(listener.pids) and listener.pids <= members
            (ours if own else strange).append(listener)
    if not ours and not strange:
        return _nobody(model, owned=owned)
    if not strange or model.port_owner is PortOwner.ANY:
        return None
    holders = render_holders(strange)
    if ours or any(listener.pids & members for listener in strange):
        detail = f"port {model.port} is shared by '{model.name}' and {holders}"
        return Health(HealthName.SHARED_PORT, detail)
    detail = f"port {model.port} is held by {holders}, not by '{model.name}'"
    return Health(HealthName.FOREIGN_LISTENER, detail)


def holder_of(listener: Listener, world: World) -> str | None:
    """The model that holds `listener`, None when anyone else has a part in it."""
    for name, view in world.models.items():
        if view.ownership not in (Ownership.OWNED, Ownership.SURVIVORS):
            continue
        if listener.pids and listener.pids <= view.claim.members:
            return name
        checked = view.checked
        if (
            checked is not None
            and checked.port_owner is PortOwner.ANY
            and checked.port == listener.port
        ):
            return name
    return None


def render_holders(listeners: Iterable[Listener]) -> str:
    """Who holds `listeners`, each holder once: "pid 7 (nginx)", "user 33"."""
    names = list(dict.fromkeys(_holder(listener) for listener in listeners))
    shown = ", ".join(names[:SHOWN_HOLDERS])
    more = len(names) - SHOWN_HOLDERS
    return f"{shown} and {more} more" if more > 0 else shown


def _nobody(model: Model, *, owned: bool) -> Health:
    if owned:
        return Health(HealthName.STARTING, f"nobody listens on port {model.port} yet")
    return Health(HealthName.UNREACHABLE, f"nobody listens on port {model.port}")


def _holder(listener: Listener) -> str:
    if listener.who:
        return printable(listener.who, 120)
    if listener.pids:
        return ", ".join(f"pid {pid}" for pid in sorted(listener.pids)[:SHOWN_HOLDERS])
    return f"user {listener.uid}"
