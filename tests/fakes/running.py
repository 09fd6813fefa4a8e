"""One command run on a simulated world, from its start to its answer or its death."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
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
    events: list[Event] = []

    async def work(effects: SimEffects, interruption: Interruption) -> Outcome:
        node = Node(
            effects, SITE, world.read_registry, events.append, floor_bytes, SimSurroundings(effects)
        )
        return await run_order(node, order, interruption)

    return run_work(world, work, witness, faults, events)


def run_work(
    world: World,
    work: Callable[[SimEffects, Interruption], Awaitable[Outcome]],
    witness: Callable[[SimEffects], Witness],
    faults: tuple[Fault, ...] = (),
    events: list[Event] | None = None,
) -> Run:
    """Do `work` on `world` as a process of its own."""
    make_deterministic(world.seed)
    clock = trio.testing.MockClock(autojump_threshold=0)
    return trio.run(
        _run, world, work, witness, faults, events if events is not None else [], clock=clock
    )


def make_deterministic(seed: int) -> None:
    """Let trio wake tasks in an order that depends on `seed` alone, as pytest-trio does under
    Hypothesis."""
    from trio._core import _run as scheduler

    vars(scheduler)["_ALLOW_DETERMINISTIC_SCHEDULING"] = True
    scheduler._r.seed(seed)


async def _run(
    world: World,
    work: Callable[[SimEffects, Interruption], Awaitable[Outcome]],
    witness: Callable[[SimEffects], Witness],
    faults: tuple[Fault, ...],
    events: list[Event],
) -> Run:
    began_s = world.now_s
    interruption = Interruption()
    effects = SimEffects(world, Nobody(), faults, interruption)
    effects.witness = witness(effects)
    outcome: Outcome | None = None
    error: BaseException | None = None
    try:
        outcome = await work(effects, interruption)
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
