"""One look at a node that changes nothing: what `status` shows, for a command and for the agent."""

from __future__ import annotations

import os
from collections.abc import Callable

from lumbridge_compute import __version__
from lumbridge_compute.core.registry import GatewaySpec, Registry
from lumbridge_compute.core.report import AgentView, GatewayView, Holder, NodeStatus, Problem
from lumbridge_compute.core.site import Site
from lumbridge_compute.core.state import NodeState
from lumbridge_compute.core.values import dataclass, replace
from lumbridge_compute.core.world import World
from lumbridge_compute.effects import HISTORY_FILE, STATE_FILE, Effects
from lumbridge_compute.errors import OperatorError
from lumbridge_compute.host.files import PRIVATE_FOLDER, open_private_folder
from lumbridge_compute.host.lock import LOCK_NAME, read_lock_holder
from lumbridge_compute.host_effects import HostEffects
from lumbridge_compute.observe import look, observe
from lumbridge_compute.store.state_file import parse_state

_LOOKS = 3
"""How often a node that changes under the look is looked at."""


@dataclass(frozen=True, slots=True)
class _Found:
    """What the state file holds: a state, or why it can't be read."""

    state: NodeState | None
    fault: Problem | None = None


class Look:
    """The node at one moment: call `again` until it says no, and each time it says yes, `ask`
    where models are `pending`; then `status` tells what was seen.

    What can't be read is a problem in the status, not an error.
    """

    def __init__(
        self,
        site: Site,
        read_registry: Callable[[], Registry],
        effects: Effects | None = None,
    ) -> None:
        self.pending = False
        self._site = site
        self._effects = effects if effects is not None else HostEffects(site.root)
        self._registry, self._registry_fault = _registry(read_registry)
        self._left = _LOOKS
        self._holder: Holder | None = None
        self._found = _Found(None)
        self._world = World({})

    def again(self) -> bool:
        """Look without asking, unless nothing has changed since the last look."""
        holder, found = read_holder(self._site.root, LOCK_NAME), _state(self._site.root)
        if self._left == 0 or (self._left < _LOOKS and found == self._found):
            return False
        self._left -= 1
        self._holder, self._found = holder, found
        sighting = look(self._effects, *self._known(), self._site)
        self._world, self.pending = sighting.world, bool(sighting.pending)
        return True

    async def ask(self) -> None:
        """Let each model answer for itself.  Raises OSError where we can't look."""
        self._world = await observe(self._effects, *self._known(), self._site)

    def status(self, agent: AgentView) -> NodeStatus:
        """What was seen, with what the `agent` tells."""
        faults = (self._found.fault, self._registry_fault)
        status = NodeStatus(
            root=self._site.root,
            version=__version__,
            world=self._world,
            registry=self._registry,
            state=self._found.state,
            holder=self._holder,
            agent=agent,
            gateways=_gateways(agent, self._registry),
            problems=tuple(fault for fault in faults if fault is not None),
        )
        return _with_costs(status)

    def _known(self) -> tuple[Registry, NodeState]:
        return self._registry or Registry({}, {}), self._found.state or NodeState()


def state_of(root: str) -> NodeState:
    """What the state file says.  Raises BadInput."""
    return parse_state(HostEffects(root).read_now(STATE_FILE))


def read_holder(root: str, name: str) -> Holder | None:
    """Who holds the lock `name` of the node; None when nobody does."""
    try:
        with open_private_folder(root) as folder:
            found = read_lock_holder(name, folder=folder)
    except OSError:
        return None
    if found is None:
        return None
    return Holder(found.pid or None, found.command, found.age_s)


def _gateways(agent: AgentView, registry: Registry | None) -> tuple[GatewayView, ...]:
    """Those that the agent serves, else those that are declared."""
    if agent.told is None:
        return tuple(GatewayView(spec) for spec in registry.gateways) if registry else ()
    from lumbridge_compute.store.registry_addresses import parse_address

    return tuple(
        GatewayView(
            GatewaySpec(parse_address(each["listen"]), parse_address(each["upstream"])),
            each["connections"],
            each["held"],
        )
        for each in agent.told["gateways"]
    )


def _registry(read: Callable[[], Registry]) -> tuple[Registry | None, Problem | None]:
    try:
        return read(), None
    except OperatorError as error:
        return None, Problem(error.message, error.hint)


def _state(root: str) -> _Found:
    try:
        return _Found(state_of(root))
    except OperatorError as error:
        return _Found(None, Problem(error.message, error.hint))


def _with_costs(status: NodeStatus) -> NodeStatus:
    path = os.path.join(status.root, PRIVATE_FOLDER, HISTORY_FILE)
    if not os.path.exists(path):
        return status
    from lumbridge_compute.core.digest import process_digest
    from lumbridge_compute.store.history import measured, read_history

    costs = measured(read_history(path))
    found = {
        name: cost
        for name, view in status.world.models.items()
        if view.checked is not None
        and (cost := costs.get((name, process_digest(view.checked)))) is not None
    }
    return replace(
        status,
        load_s={name: cost.load_s for name, cost in found.items()},
        measured={n: c.memory_bytes for n, c in found.items() if c.memory_bytes is not None},
    )
