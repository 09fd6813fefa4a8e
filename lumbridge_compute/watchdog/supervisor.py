"""Keep the floor watched: by the sampler process, and by a task of ours while there is none."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

import trio

from lumbridge_compute.core.floor import Past
from lumbridge_compute.core.values import dataclass, field
from lumbridge_compute.host.meminfo import PATH, Meminfo
from lumbridge_compute.host.pidfd import HeldProcess
from lumbridge_compute.watchdog.channel import Channel, end_sampler, start_sampler
from lumbridge_compute.watchdog.guard import Guard
from lumbridge_compute.watchdog.loop import (
    FloorLoop,
    Senses,
    Signaller,
    Target,
    obey,
)
from lumbridge_compute.watchdog.protocol import (
    FloorEvent,
    Message,
    parse_event,
    parse_message,
    parse_past,
    render_message,
)

PROVEN_S = 60.0
"""A sampler that lived so long has its restarts back."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What the floor is watched with; the defaults are the real ones.

    `interpreter` starts Python for the sampler.  One that ended is started again after each of
    `restart_pauses_s`, then no more.  One that was silent for `silence_limit_s` is stuck, and
    ended: it tells something every 2 s.  `signaller` and `now`, a steady clock that must be the
    sampler's, are used by the task.
    """

    meminfo_path: str = PATH
    interpreter: tuple[str, ...] = (sys.executable, "-I", "-S", "-B")
    restart_pauses_s: tuple[float, ...] = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0)
    silence_limit_s: float = 10.0
    signaller: Signaller = field(default_factory=Signaller)
    now: Callable[[], float] = time.monotonic


@asynccontextmanager
async def open_guard(
    floor_bytes: int, on_event: Callable[[FloorEvent], None], machine: Machine | None = None
) -> AsyncIterator[Guard]:
    """Watch the floor while the block runs; at its end nobody is signalled any more.

    `on_event` gets each event in the trio thread, after what it tells of was done; what it raises
    ends the block.  To be entered in the main thread: the sampler is killed when the thread that
    started it ends.
    """
    guard = Guard(floor_bytes, on_event)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_watch, guard, machine or Machine())
            yield guard
            nursery.cancel_scope.cancel()
    finally:
        guard.close()


async def _watch(guard: Guard, machine: Machine) -> None:
    """One sampler after another, and the task whenever none is in charge."""
    task = _Task(guard, machine)
    pauses = iter((0.0, *machine.restart_pauses_s))
    cause = ""
    while (pause_s := next(pauses, None)) is not None:
        began_s = trio.current_time()
        async with trio.open_nursery() as nursery:
            cover = trio.CancelScope()
            nursery.start_soon(task.run, cover)
            await trio.sleep(pause_s)
            cause = await _run_sampler(guard, machine, cover)
            guard.watched_by(None, cause)
            cover.cancel()
        if trio.current_time() - began_s >= PROVEN_S:
            pauses = iter(machine.restart_pauses_s)
    guard.watched_by(None, f"{cause}; it is not started again")
    await task.run(trio.CancelScope())


async def _run_sampler(guard: Guard, machine: Machine, cover: trio.CancelScope) -> str:
    """Stay with one sampler; why it ended.  `cover` is cancelled when it is in charge."""
    try:
        held, channel = start_sampler(machine.interpreter, machine.meminfo_path)
    except OSError as error:
        return f"cannot start the sampler: {error}"
    sampler = _Sampler(held, channel, machine.silence_limit_s)
    guard.put_in_force(channel, 0)
    with held:
        try:
            cause = await _converse(guard, sampler, cover)
        finally:
            channel.close()
            await end_sampler(held)
            guard.leave(channel)
        return f"{cause}: {held.exit_cause() or 'ended, cause not known'}"


@dataclass(frozen=True, slots=True)
class _Sampler:
    held: HeldProcess
    channel: Channel
    silence_limit_s: float


async def _converse(guard: Guard, sampler: _Sampler, cover: trio.CancelScope) -> str:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_send, guard, sampler.channel)
        cause = await _receive(guard, sampler, cover)
        nursery.cancel_scope.cancel()
    return cause


async def _send(guard: Guard, channel: Channel) -> None:
    """Tell the sampler what is to be in force, and each change of it."""
    known: Mapping[str, Target] | None = None
    while True:
        with guard.catch_up(known) as changes:
            try:
                for line, descriptor in changes.lines:
                    await channel.send(line, descriptor)
                await channel.send(render_message("sync", version=changes.version))
            except OSError:
                channel.hang_up()
                return
        known = changes.known
        await guard.wait_newer(changes.version)


async def _receive(guard: Guard, sampler: _Sampler, cover: trio.CancelScope) -> str:
    """Take what the sampler says until it says no more; why it does not."""
    while True:
        with trio.move_on_after(sampler.silence_limit_s) as silence:
            line = await sampler.channel.receive()
        if silence.cancelled_caught:
            return f"the sampler was silent for {sampler.silence_limit_s:g} s"
        if not line:
            return "the sampler ended"
        try:
            _hear(guard, sampler, cover, parse_message(line))
        except ValueError as error:
            return f"the sampler was not understood: {error}"


def _hear(guard: Guard, sampler: _Sampler, cover: trio.CancelScope, message: Message) -> None:
    if message.kind == "synced":
        version = message.number("version") or 0
        # The task may hold a model already that the sampler will hear of next.
        if version == guard.version:
            _hand_over(guard, sampler.held, cover)
        guard.put_in_force(sampler.channel, version)
    elif message.kind == "past":
        guard.past = parse_past(message)
    else:
        guard.tell(parse_event(message))


def _hand_over(guard: Guard, held: HeldProcess, cover: trio.CancelScope) -> None:
    if not cover.cancel_called:
        cover.cancel()
        guard.watched_by(held.identity.pid)


class _Task:
    """The floor loop as a task of the agent."""

    def __init__(self, guard: Guard, machine: Machine) -> None:
        self._guard, self._machine = guard, machine

    async def run(self, scope: trio.CancelScope) -> None:
        """Watch until `scope` is cancelled."""
        source = Meminfo(self._machine.meminfo_path)
        senses = Senses(source.read, self._machine.now, self._machine.signaller)
        loop = FloorLoop(senses, tell=self._guard.tell, keep=self._keep)
        try:
            with scope:
                await self._drive(loop)
        finally:
            self._guard.leave(self)
            loop.close()
            source.close()

    async def _drive(self, loop: FloorLoop) -> None:
        known: Mapping[str, Target] | None = None
        while True:
            changes = self._guard.catch_up(known)
            known = changes.known
            for line, descriptor in changes.take():
                obey(loop, parse_message(line), descriptor)
            self._guard.put_in_force(self, changes.version)
            newer = False
            while not newer:
                with trio.move_on_after(loop.look()):
                    await self._guard.wait_newer(changes.version)
                    newer = True

    def _keep(self, past: Past) -> None:
        self._guard.past = past
