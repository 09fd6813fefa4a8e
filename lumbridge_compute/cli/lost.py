"""The agent was lost before it told the outcome: answer by what is found (DESIGN section 9).

Nothing is changed here.  A new agent's resume is waited for, then state and world are read.
"""

from __future__ import annotations

import select
import time
from collections.abc import Mapping

from lumbridge_compute.cli.node import read_agent, read_status
from lumbridge_compute.core.events import Outcome
from lumbridge_compute.core.report import NodeStatus, living, scene_exact
from lumbridge_compute.core.state import NodeState
from lumbridge_compute.errors import Exit
from lumbridge_compute.orders import Command, Order

PATIENCE_S = 15.0
_POLL_S = 0.2


def answer_by_finding(
    root: str, environ: Mapping[str, str], order: Order, previous: str | None, cause: str
) -> Outcome:
    """The outcome of `order`, whose agent was lost for `cause`; `previous` was active before it."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        resumed = _resumed(root)
        status = read_status(root, environ)
        outcome = judge_finding(status, order, previous, cause)
        if outcome.ok or resumed or time.monotonic() > deadline:
            return outcome
        select.select([], [], [], _POLL_S)


def judge_finding(status: NodeStatus, order: Order, previous: str | None, cause: str) -> Outcome:
    """0 where what was asked is recorded and true, 1 where what was before is, else 4."""
    world, state = status.world, status.state
    active = state.active_scene if state is not None else None
    common = Outcome(Exit.DONE, order.scene, active_scene=active, world=world)
    if state is None:
        return _with(common, Exit.DEGRADED, f"{cause}; and the state can't be read")
    if _is_done(order, state, status):
        note = f"{cause}; what was asked is so, and recorded"
        return Outcome(Exit.DONE, order.scene, active, world=world, notes=(note,))
    if previous is not None and _exact(previous, state, status):
        said = f"{cause}; Scene {previous!r} runs as before, verified"
        return _with(common, Exit.FAILED_SAFELY, said, restored=True)
    if previous is None and _idle(state, status):
        return _with(common, Exit.FAILED_SAFELY, f"{cause}; nothing runs, as before")
    return _with(common, Exit.DEGRADED, f"{cause}; what was asked is not so, nor what was before")


def _with(outcome: Outcome, code: Exit, error: str, *, restored: bool | None = None) -> Outcome:
    return Outcome(
        code,
        outcome.scene,
        outcome.active_scene,
        restored,
        error,
        "lumbridge-compute status",
        world=outcome.world,
    )


def _is_done(order: Order, state: NodeState, status: NodeStatus) -> bool:
    match order.command:
        case Command.ACTIVATE | Command.ADOPT:
            return order.name is not None and _exact(order.name, state, status)
        case Command.RESUME:
            desired = state.desired_scene
            return _idle(state, status) if desired is None else _exact(desired, state, status)
        case Command.DEACTIVATE:
            return state.desired_scene is None and _idle(state, status)
        case Command.FORGET:
            return order.name not in state.processes


def _exact(scene: str, state: NodeState, status: NodeStatus) -> bool:
    recorded = state.active_scene == scene and state.transition_scene is None
    registry = status.registry
    return recorded and registry is not None and scene_exact(scene, registry, status.world)


def _idle(state: NodeState, status: NodeStatus) -> bool:
    unfinished = state.transition_scene is not None or state.deactivating
    return not unfinished and state.active_scene is None and not any(living(status.world, state))


def _resumed(root: str) -> bool:
    """True when a new agent is resident and has nothing more to do by itself."""
    agent = read_agent(root)
    told = agent.told
    return told is not None and told["resumed"] and told["transaction"] is None
