"""Look at a node without changing anything: what `status` and its like read."""

from __future__ import annotations

import os
from collections.abc import Mapping

from lumbridge_compute import __version__
from lumbridge_compute.cli.call import REGISTRY_FILE
from lumbridge_compute.core.registry import GatewaySpec, Registry
from lumbridge_compute.core.report import AgentView, GatewayView, Holder, NodeStatus, Problem
from lumbridge_compute.core.site import Site
from lumbridge_compute.core.state import NodeState
from lumbridge_compute.core.values import dataclass
from lumbridge_compute.core.world import World
from lumbridge_compute.effects import HISTORY_FILE, STATE_FILE
from lumbridge_compute.errors import OperatorError
from lumbridge_compute.host.files import PRIVATE_FOLDER, open_private_folder
from lumbridge_compute.host.lock import AGENT_LOCK_NAME, LOCK_NAME, read_lock_holder
from lumbridge_compute.host_effects import HostEffects
from lumbridge_compute.observe import look, observe
from lumbridge_compute.store.registry_file import read_registry
from lumbridge_compute.store.state_file import parse_state

_LOOKS = 3
"""How often a node that changes under the look is looked at."""


def registry_of(root: str) -> Registry:
    """What compute.yaml says.  Raises BadInput with every fault."""
    return read_registry(os.path.join(root, REGISTRY_FILE))


def state_of(root: str) -> NodeState:
    """What the state file says.  Raises BadInput."""
    return parse_state(HostEffects(root).read_now(STATE_FILE))


def private_path(root: str, name: str) -> str:
    """The path of a file in the node's private folder."""
    return os.path.join(root, PRIVATE_FOLDER, name)


def read_status(root: str, environ: Mapping[str, str]) -> NodeStatus:
    """The node as it is now; what can't be read is a problem in it, not an error."""
    registry, registry_fault = _registry(root)
    holder, found, world = _see(root, environ, registry)
    faults = [fault for fault in (found.fault, registry_fault) if fault is not None]
    agent = read_agent(root)
    status = NodeStatus(
        root=root,
        version=__version__,
        world=world,
        registry=registry,
        state=found.state,
        holder=holder,
        agent=agent,
        gateways=_gateways(agent, registry),
        problems=tuple(faults),
    )
    return _with_costs(status)


def read_agent(root: str) -> AgentView:
    """The resident agent: who holds its lock, and what that one tells."""
    holder = _holder(root, AGENT_LOCK_NAME)
    if holder is None:
        return AgentView()
    from lumbridge_compute.cli.ask_agent import ask_agent

    told = ask_agent(root)
    if told is None and _holder(root, AGENT_LOCK_NAME) is None:
        return AgentView()  # it has left meanwhile
    version = told["version"] if told is not None else None
    return AgentView(running=True, pid=holder.pid, version=version, told=told)


def has_agent(root: str) -> bool:
    """Whether an agent is resident, whatever state it is in."""
    return _holder(root, AGENT_LOCK_NAME) is not None


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


@dataclass(frozen=True, slots=True)
class _Found:
    """What the state file holds: a state, or why it can't be read."""

    state: NodeState | None
    fault: Problem | None = None


def _registry(root: str) -> tuple[Registry | None, Problem | None]:
    try:
        return registry_of(root), None
    except OperatorError as error:
        return None, Problem(error.message, error.hint)


def _state(root: str) -> _Found:
    try:
        return _Found(state_of(root))
    except OperatorError as error:
        return _Found(None, Problem(error.message, error.hint))


def _see(
    root: str, environ: Mapping[str, str], registry: Registry | None
) -> tuple[Holder | None, _Found, World]:
    """The lock, the state and the world of one moment: seen again while a transaction goes on."""
    for attempt in range(_LOOKS):
        holder, found = _holder(root, LOCK_NAME), _state(root)
        world = _world(root, environ, registry or Registry({}, {}), found.state or NodeState())
        if attempt + 1 == _LOOKS or _state(root) == found:
            break
    return holder, found, world


def _world(root: str, environ: Mapping[str, str], registry: Registry, state: NodeState) -> World:
    effects, site = HostEffects(root), Site(root, environ)
    sighting = look(effects, registry, state, site)
    if not sighting.pending:
        return sighting.world
    import trio

    return trio.run(observe, effects, registry, state, site)


def _holder(root: str, name: str) -> Holder | None:
    try:
        with open_private_folder(root) as folder:
            found = read_lock_holder(name, folder=folder)
    except OSError:
        return None
    if found is None:
        return None
    return Holder(found.pid or None, found.command, found.age_s)


def _with_costs(status: NodeStatus) -> NodeStatus:
    path = private_path(status.root, HISTORY_FILE)
    if not os.path.exists(path):
        return status
    from lumbridge_compute.core.digest import process_digest
    from lumbridge_compute.core.values import replace
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
