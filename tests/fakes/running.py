"""One command run on a simulated world, from its start to its answer or its death."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import trio
import trio.testing

from lumbridge_compute.core.events import Event, Outcome
from lumbridge_compute.core.site import Site
from lumbridge_compute.interruption import Interruption
from lumbridge_compute.orders import Node, Order, run_order
from tests.fakes.faults import Fault
from tests.fakes.sim_effects import Call, Killed, SimEffects, SimSurroundings, Witness
from tests.fakes.world import World

SITE = Site("/node", {})


@dataclass(frozen=True, slots=True)
class Run:
    """What became of it: `outcome` is None where it was killed or raised `error`."""

    outcome: Outcome | None
    calls: tuple[Call, ...]
    events: tuple[Event, ...]
    took_s: float
    error: BaseException | None = None


def run_command(
    world: World,
    order: Order,
    witness: Callable[[SimEffects], Witness],
    faults: tuple[Fault, ...] = (),
    *,
    floor_bytes: int | None = None,
) -> Run:
    """Carry out `order` on `world`, which is what it leaves afterwards."""
    make_deterministic(world.seed)
    return trio.run(
        _run,
        world,
        order,
        witness,
        faults,
        floor_bytes,
        clock=trio.testing.MockClock(autojump_threshold=0),
    )


def make_deterministic(seed: int) -> None:
    """Let trio wake tasks in an order that depends on `seed` alone, as pytest-trio does under
    Hypothesis."""
    from trio._core import _run as scheduler

    vars(scheduler)["_ALLOW_DETERMINISTIC_SCHEDULING"] = True
    scheduler._r.seed(seed)


async def _run(
    world: World,
    order: Order,
    witness: Callable[[SimEffects], Witness],
    faults: tuple[Fault, ...],
    floor_bytes: int | None,
) -> Run:
    began_s = world.now_s
    events: list[Event] = []
    interruption = Interruption()
    effects = SimEffects(world, Nobody(), faults, interruption)
    effects.witness = witness(effects)
    node = Node(
        effects, SITE, lambda: world.registry, events.append, floor_bytes, SimSurroundings(effects)
    )
    outcome: Outcome | None = None
    error: BaseException | None = None
    try:
        outcome = await run_order(node, order, interruption)
    except BaseException as raised:  # noqa: BLE001 - whatever it is, a run tells it
        if not (effects.dead and _only_killed(raised)):
            error = raised
    if not effects.dead:
        effects.tick()
        world.end_command()
    return Run(outcome, tuple(effects.calls), tuple(events), world.now_s - began_s, error)


def _only_killed(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(map(_only_killed, error.exceptions))
    return isinstance(error, Killed | trio.Cancelled)


class Nobody:
    """Sees nothing: until the witness is there."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_args: None
