"""What is true on a simulated machine, said in the words of the invariants."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from lumbridge_compute.core.identity import Identity
from lumbridge_compute.core.state import Bound, NodeState
from lumbridge_compute.effects import STATE_FILE
from lumbridge_compute.errors import BadInput
from lumbridge_compute.store.state_file import parse_state
from tests.fakes.bodies import Body, Phase
from tests.fakes.world import World


@lru_cache(maxsize=4096)
def parsed(data: bytes | None) -> NodeState | None:
    """The state in `data`; None where it can't be read."""
    try:
        return parse_state(data)
    except BadInput:
        return None


def state_of(world: World) -> NodeState:
    """What the state file says now; an empty state where it can't be read."""
    return parsed(world.disk.read(STATE_FILE)) or NodeState()


def recorded(state: NodeState, identity: Identity) -> bool:
    """True when `state` has a record of exactly that process, or a legacy one of its PID."""
    return any(
        record.identity.matches(identity)
        if isinstance(record, Bound)
        else record.pid == identity.pid
        for record in state.processes.values()
    )


def leader_identity(world: World, body: Body) -> Identity:
    """Of the process that the record of `body` names."""
    return world.leaders[body.start]


def provable(world: World, body: Body) -> bool:
    """True where the record alone proves `body` ours: it lives itself, it carries the token, it
    sits in the scope, or it is in the group of a leader that lives."""
    if body.leads or body.token is not None or body.scope is not None:
        return True
    leader = world.body_of(leader_identity(world, body))
    in_group = leader is not None and leader.group_inode == body.group_inode
    return in_group and leader is not None and leader.phase is Phase.RUNNING


def ours(world: World) -> Iterator[Body]:
    """Every living process past its gate that can be proved ours."""
    return (body for body in world.ours() if provable(world, body))


def serves_exactly(world: World, body: Body, record: Bound) -> bool:
    """True when nobody but the process of `record` answers on its port, with its marker."""
    model = record.definition
    holders = world.listeners(model.port)
    alone = bool(holders) and all(each.start == body.start for each in holders)
    program = body.program
    said = body.marker if program is None or program.marker is None else program.marker
    silent = program is not None and program.silent
    leads = world.identity(body) == record.identity and body.alive
    return leads and alone and body.serves and said == model.marker and not silent


def exact(world: World, state: NodeState, name: str) -> bool:
    """True when the recorded process of `name` is exactly healthy at this moment."""
    record = state.processes.get(name)
    if not isinstance(record, Bound):
        return False
    body = world.body_of(record.identity)
    return body is not None and serves_exactly(world, body, record)


def whole(world: World, state: NodeState, scene: str) -> bool:
    """True when every model of `scene` is exactly healthy at this moment."""
    declared = world.registry.scenes.get(scene)
    return declared is not None and all(exact(world, state, name) for name in declared.models)
