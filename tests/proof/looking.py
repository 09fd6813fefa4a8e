"""`status` on a simulated machine: what it says is so, and it has no effect."""

from __future__ import annotations

from collections.abc import Callable

from lumbridge_compute.core.events import Outcome
from lumbridge_compute.core.report import NodeStatus, Problem, Verdict, judge
from lumbridge_compute.core.report_status import render_status, status_document
from lumbridge_compute.core.state import NodeState
from lumbridge_compute.effects import STATE_FILE
from lumbridge_compute.errors import BadInput, Exit
from lumbridge_compute.interruption import Interruption
from lumbridge_compute.observe import observe
from lumbridge_compute.store.state_file import parse_state
from tests.fakes.running import SITE, run_work
from tests.fakes.sim_effects import SimEffects
from tests.fakes.world import World
from tests.proof.enumerator import ORDERS, lasting
from tests.proof.facts import ours, parsed, whole
from tests.proof.witness import Checks


def look_at_status(world: World, unmet: Callable[[str, str], None]) -> None:
    """Say what `status` says, and tell `unmet` the name of each promise that it breaks."""
    seen: list[NodeStatus] = []

    async def work(effects: SimEffects, _interruption: Interruption) -> Outcome:
        problems: list[Problem] = []
        state, registry = None, world.registry
        try:
            state = parse_state(await effects.read(STATE_FILE))
            registry = world.read_registry()
        except BadInput as error:
            problems.append(Problem(error.message, error.hint))
        there = await observe(effects, registry, state or NodeState(), SITE)
        readable = None if world.registry_fault else registry
        seen.append(NodeStatus("/node", "0", there, readable, state, problems=tuple(problems)))
        return Outcome(Exit.DONE)

    before = world.disk.read(STATE_FILE)
    run = run_work(world, work, lambda effects: Checks(effects, ORDERS["plan-resume"]))
    if run.error is not None:
        unmet("answers", f"status raised {run.error!r}")
    if (calls := lasting(run)) or world.disk.read(STATE_FILE) != before:
        unmet("no-effect", f"status: {calls}")
    if (cause := _untrue(world, seen[0])) is not None:
        unmet("status", cause)
    render_status(seen[0], 80)
    status_document(seen[0])


def _untrue(world: World, status: NodeStatus) -> str | None:
    verdict = judge(status)
    state = parsed(world.disk.read(STATE_FILE))
    if (verdict is Verdict.UNKNOWN) != (state is None or world.registry_fault is not None):
        return f"the verdict is {verdict}, the state file holds {state}"
    if state is None or verdict is Verdict.UNKNOWN:
        return None
    if verdict is Verdict.EXACT and not whole(world, state, state.active_scene or ""):
        return f"the verdict is exact, {state.active_scene} is not"
    if verdict is Verdict.IDLE and any(ours(world)):
        return "the verdict is idle, and processes of ours live"
    return None
