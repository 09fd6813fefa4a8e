"""The agent's whole tree on a simulated machine, under trio's mock clock.

Processes, disk, ports and the memory sampler are simulated; the unix socket, the gateways'
listeners and the signals are real ones, which cost no time.
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import trio
import trio.testing

from lumbridge_compute.agent import AgentSettings, Outside, run_agent
from lumbridge_compute.client import Node
from lumbridge_compute.core.events import Event, EventKind
from lumbridge_compute.core.registry import Registry
from lumbridge_compute.core.state import NodeState
from lumbridge_compute.errors import OperatorError
from lumbridge_compute.resident.declared import Overrides
from lumbridge_compute.watchdog.guard import Guard
from lumbridge_compute.watchdog.protocol import FloorEvent, FloorEventKind
from tests.fakes.bodies import Body
from tests.fakes.running import Nobody, make_deterministic
from tests.fakes.sim_effects import SimEffects
from tests.fakes.world import World
from tests.proof.facts import state_of

CHILDREN = {
    "watch_signals": "signals",
    "ServiceManager.run": "service manager",
    "Gateways.run": "gateways",
    "FloorWatch.run": "memory watchdog",
    "keep_logs": "log keeper",
    "Transactions.run": "transactions",
    "ProcessWatch.run": "process watch",
    "serve_control": "control",
    "resume_once": "resume-once",
}
"""The names in the drawing of lumbridge_compute.agent, by the ends of trio's names."""

PATIENCE_S = 100.0
"""Of the mock clock: what has not come by then never comes."""


class Recorder(trio.abc.Instrument):
    """When the children of the tree begin and end."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.ended: list[str] = []

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        self.begun += _named(task)

    def task_exited(self, task: trio.lowlevel.Task) -> None:
        self.ended += _named(task)


def _named(task: trio.lowlevel.Task) -> Iterable[str]:
    return [title for name, title in CHILDREN.items() if task.name.endswith(f".{name}")]


class SimGuard(Guard):
    """The memory sampler: it remembers whom it guards, and trips when a test says so."""

    def __init__(self, floor_bytes: int, on_event: Callable[[FloorEvent], None]) -> None:
        super().__init__(floor_bytes, on_event)
        self.floor_bytes = floor_bytes
        self.guarded: dict[str, int] = {}
        self.order: tuple[str, ...] = ()

    async def add(self, name: str, pidfd: int, pid: int, *, group: bool = True) -> None:
        self.guarded[name] = pid

    async def remove(self, name: str) -> None:
        self.guarded.pop(name, None)

    async def set_order(self, names: Iterable[str]) -> None:
        self.order = tuple(names)

    async def set_floor(self, floor_bytes: int) -> None:
        self.floor_bytes = floor_bytes

    def say(self, kind: FloorEventKind, victim: str) -> None:
        self.tell(FloorEvent(kind, 0.0, 1 << 20, floor_bytes=self.floor_bytes, victim=victim))


@dataclass
class Tree:
    """One agent's life on `world`; `run` another one for the next.

    `registry` is what compute.yaml says, or why it can't be read.  `failure` is what the agent
    raised, and `took_s` how long it took to leave, on the mock clock.  `resumes`: it comes so far.
    """

    world: World
    root: Path
    registry: Registry | OperatorError | None = None
    make_effects: Callable[[World], SimEffects] = lambda world: SimEffects(world, Nobody())
    open_guard: Callable[[int, Callable[[FloorEvent], None]], SimGuard] = SimGuard
    resumes: bool = True
    around: Callable[[], AbstractAsyncContextManager[None]] = nullcontext
    record: Recorder = field(default_factory=Recorder)
    guard: SimGuard | None = None
    failure: BaseException | None = None
    took_s: float = 0.0
    _told_s: float | None = None

    def run(self, story: Callable[[Tree], Awaitable[None]] | None = None) -> Tree:
        """Let the agent live until it has resumed and `story` is told; then it is told to leave."""
        make_deterministic(self.world.seed)
        clock = trio.testing.MockClock(autojump_threshold=0)
        trio.run(self._live, story, clock=clock, instruments=[self.record])
        return self

    @property
    def state(self) -> NodeState:
        return state_of(self.world)

    def leader(self, model: str) -> Body:
        (found,) = [b for b in self.world.living() if b.leads and b.model == model]
        return found

    def pids(self) -> dict[str, int]:
        """The first process of each model that runs."""
        return {b.model: b.pid for b in self.world.ours() if b.leads and b.model}

    def end(self, model: str, cause: str) -> None:
        """All that came from the model's start dies."""
        leader = self.leader(model)
        for body in list(self.world.living()):
            if body.start == leader.start:
                self.world.end(body, cause)
        self.effects.tick()

    def leave(self) -> None:
        """Tell the agent to go."""
        if self._told_s is None:
            self._told_s = trio.current_time()
            signal.raise_signal(signal.SIGTERM)

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Node]:
        async with Node(self.root) as node:
            yield node

    async def until(self, true: Callable[[], object]) -> None:
        with trio.fail_after(PATIENCE_S):
            while not true():
                await trio.sleep(0.01)
                self.effects.tick()

    async def resumed(self) -> None:
        await self.until(lambda: "resume-once" in self.record.ended)

    async def _live(self, story: Callable[[Tree], Awaitable[None]] | None) -> None:
        ended = trio.Event()

        async def tell() -> None:
            if self.resumes:
                await self.until(lambda: "resume-once" in self.record.begun)
            if story is None:
                await self.resumed()
            else:
                await story(self)
            self.leave()

        with trio.fail_after(1000 * PATIENCE_S):
            async with self.around(), trio.open_nursery() as nursery:
                nursery.start_soon(self._be_agent, ended)
                nursery.start_soon(tell)
                await ended.wait()
                nursery.cancel_scope.cancel()

    async def _be_agent(self, ended: trio.Event) -> None:
        settings = AgentSettings(str(self.root), {}, self._read_registry, Overrides(), lambda: True)
        self.effects = self.make_effects(self.world)
        outside = Outside(lambda _root: self.effects, self._guarded)
        try:
            await run_agent(settings, outside)
        except Exception as error:  # noqa: BLE001 - the test says what it must be
            self.failure = error
        if self._told_s is not None:
            self.took_s = trio.current_time() - self._told_s
        self.effects.tick()
        self.world.end_command()
        ended.set()

    @asynccontextmanager
    async def _guarded(
        self, floor_bytes: int, on_event: Callable[[FloorEvent], None]
    ) -> AsyncIterator[SimGuard]:
        self.guard = self.open_guard(floor_bytes, on_event)
        yield self.guard

    def _read_registry(self) -> Registry:
        registry = self.registry if self.registry is not None else self.world.registry
        if isinstance(registry, OperatorError):
            raise registry
        return registry


def kinds(events: Iterable[Event]) -> list[EventKind]:
    return [event.kind for event in events]


def causes(error: BaseException | None) -> list[BaseException]:
    """The failures in a group of groups."""
    if isinstance(error, BaseExceptionGroup):
        return [cause for each in error.exceptions for cause in causes(each)]
    return [] if error is None else [error]


def private(root: Path) -> list[str]:
    return sorted(os.listdir(root / ".kuda"))
