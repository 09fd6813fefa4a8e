"""The memory watchdog as a child of the agent: whom it guards, and what it records."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager

import trio
from trio_util import AsyncValue

from lumbridge_compute.core.identity import Identity
from lumbridge_compute.core.registry import Registry
from lumbridge_compute.core.state import Bound, FloorLatch, NodeState
from lumbridge_compute.core.units import render_bytes
from lumbridge_compute.core.victims import Candidate, plan_victims
from lumbridge_compute.effects import Effects, ProcessHandle
from lumbridge_compute.store.history import HistoryEntry, render_entry
from lumbridge_compute.watchdog.guard import Guard, GuardStatus
from lumbridge_compute.watchdog.protocol import FloorEvent, FloorEventKind
from lumbridge_compute.watchdog.supervisor import open_guard

OpenGuard = Callable[[int, Callable[[FloorEvent], None]], AbstractAsyncContextManager[Guard]]
"""Watches a floor while its block runs, and tells each event: `supervisor.open_guard`."""

_log = logging.getLogger(__name__)
_LAST_WORDS_S = 2.0
"""How long the history may still be written once the agent leaves."""

_SIGNALS = (FloorEventKind.TERM, FloorEventKind.KILL)


class FloorWatch:
    """Guards the owned models while there is a floor.

    `floor_bytes` is the floor in force, 0 for none; it may change at any time.
    """

    def __init__(
        self, effects: Effects, floor_bytes: int, open_guard: OpenGuard = open_guard
    ) -> None:
        self.floor_bytes = AsyncValue(floor_bytes)
        self._effects = effects
        self._open_guard = open_guard
        self._guard: Guard | None = None
        self._guarded: dict[str, Identity] = {}
        self._starting: list[str] = []
        self._victims: dict[str, FloorEvent] = {}
        self._scene: str | None = None
        self._order: tuple[str, ...] = ()
        self._to_record: list[FloorEvent] = []
        self._open_ends: dict[str, FloorEvent] = {}
        self._news = trio.Event()

    @property
    def status(self) -> GuardStatus:
        """How the floor is watched now."""
        return self._guard.status.value if self._guard is not None else GuardStatus(cause=None)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Watch the floor until cancelled; started once it is watched, or there is none."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep_history)
            while True:
                if self.floor_bytes.value == 0:
                    task_status.started()
                    await self.floor_bytes.wait_value(lambda value: value > 0)
                    task_status = trio.TASK_STATUS_IGNORED
                await self._watch(task_status)
                task_status = trio.TASK_STATUS_IGNORED

    async def guard_all(
        self, state: NodeState, registry: Registry, living: Mapping[str, ProcessHandle]
    ) -> None:
        """Guard exactly the `living` ones from now on; a transaction, if any, has ended."""
        self._starting.clear()
        self._scene = state.active_scene
        for name in set(self._guarded) - set(living):
            await self.unguard(name)
        for name, handle in living.items():
            await self._add(name, handle)
        records = {n: r for n, r in state.processes.items() if isinstance(r, Bound)}
        candidates = [
            Candidate(
                name, records[name].identity.start_ticks, records[name].definition.memory_bytes
            )
            for name in living
        ]
        scene = registry.scenes.get(state.active_scene or "")
        self._order = plan_victims(candidates, scene.sacrifice if scene is not None else ())
        if self._guard is not None:
            await self._guard.set_order(self._order)

    async def guard(self, model: str, handle: ProcessHandle) -> None:
        """Guard `model`, which a transaction is about to start: the newest goes first."""
        self._victims.pop(model, None)
        self._starting.insert(0, model)
        await self._add(model, handle)
        if self._guard is not None:
            await self._guard.set_order((*self._starting, *self._order))

    async def unguard(self, model: str) -> None:
        """Let go of `model`: when this returns the floor signals it no more."""
        if self._guarded.pop(model, None) is None:
            return
        self._order = tuple(name for name in self._order if name != model)
        if model in self._starting:
            self._starting.remove(model)
        if self._guard is not None:
            await self._guard.remove(model)

    def sentences(self) -> dict[str, str]:
        """For each model that the floor has stopped and nobody has started since, a sentence."""
        return {name: _sentence(event) for name, event in self._victims.items()}

    def latch(self, name: str) -> FloorLatch | None:
        """What is to be remembered of `name` having been stopped; None where it was not."""
        event = self._victims.get(name)
        if event is None:
            return None
        return FloorLatch(
            self._scene, self._effects.boot_id(), self._effects.timestamp(), _figures(event)
        )

    async def _watch(self, task_status: trio.TaskStatus[None]) -> None:
        floor = self.floor_bytes.value
        async with self._open_guard(floor, self._hear) as guard:
            self._guard = guard
            try:
                for name, identity in self._guarded.items():
                    if (handle := self._effects.open_process(identity)) is not None:
                        await self._hand_over(name, handle)
                        handle.close()
                await guard.set_order((*self._starting, *self._order))
                task_status.started()
                while floor > 0:
                    floor = await self.floor_bytes.wait_value(lambda value, was=floor: value != was)
                    await guard.set_floor(floor)
            finally:
                self._guard = None

    async def _add(self, name: str, handle: ProcessHandle) -> None:
        known = self._guarded.get(name)
        if known is not None and known.matches(handle.identity):
            return
        self._guarded[name] = handle.identity
        await self._hand_over(name, handle)

    async def _hand_over(self, name: str, handle: ProcessHandle) -> None:
        if self._guard is not None:
            await self._guard.add(name, handle.fileno(), handle.identity.pid)

    def _hear(self, event: FloorEvent) -> None:
        if event.kind is FloorEventKind.SAMPLE:
            return
        if event.kind in _SIGNALS and event.victim is not None:
            self._victims.setdefault(event.victim, event)
            self._open_ends.setdefault(event.victim, event)
        if event.kind is FloorEventKind.STOPPED:
            self._open_ends.pop(event.victim or "", None)
            self._to_record.append(event)
            self._news.set()
        level = logging.INFO if event.kind is FloorEventKind.READY else logging.WARNING
        _log.log(level, "memory floor event=%s %s", event.kind.value, _render(_figures(event)))

    async def _keep_history(self) -> None:
        """Lines for what the floor did: on the disk only after the deed.

        What it did last is written also when the agent leaves before the end of it was seen.
        """
        try:
            while True:
                await self._news.wait()
                self._news = trio.Event()
                while self._to_record:
                    await self._append(self._to_record[0])
                    del self._to_record[0]
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + _LAST_WORDS_S):
                for event in (*self._to_record, *self._open_ends.values()):
                    await self._append(event)

    async def _append(self, event: FloorEvent) -> None:
        entry = HistoryEntry(
            self._effects.timestamp(),
            "floor",
            "stopped",
            scene=self._scene,
            error=_sentence(self._victims.get(event.victim or "", event)),
            figures=_figures(event),
        )
        try:
            await self._effects.append_history(render_entry(entry))
        except OSError as error:
            _log.error("cannot append to the history cause=%r", str(error))


def _sentence(event: FloorEvent) -> str:
    available = render_bytes(event.available_bytes or 0)
    return (
        f"the memory floor stopped {event.victim!r}: {available} available, the floor is "
        f"{render_bytes(event.floor_bytes)}, falling {render_bytes(int(event.fall_bytes_s))}/s"
    )


def _figures(event: FloorEvent) -> dict[str, int | float | str]:
    values: dict[str, int | float | str | None] = {
        "victim": event.victim,
        "available_bytes": event.available_bytes,
        "floor_bytes": event.floor_bytes,
        "fall_bytes_s": round(event.fall_bytes_s),
        "exit_s": event.exit_s,
        "back_bytes": event.back_bytes,
        "detail": event.detail,
    }
    return {key: value for key, value in values.items() if value is not None}


def _render(figures: Mapping[str, object]) -> str:
    return " ".join(f"{key}={value!r}" for key, value in figures.items())
