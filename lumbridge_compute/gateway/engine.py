"""The relay engine: one epoll, the sockets on it, the work put off, and the timers.

It knows neither trio nor gateways.  Whoever drives it waits until `fileno()` is readable or a
deadline has come, and calls `run_once()`.
"""

from __future__ import annotations

import heapq
import itertools
import select
from collections.abc import Callable
from typing import Protocol

from lumbridge_compute.gateway.pipes import PipePool

COPY_BYTES = 64 * 1024
_EVENTS_A_TURN = 256


class Handler(Protocol):
    """What is told of the events of one descriptor."""

    def on_events(self, mask: int) -> None: ...


class Pumpable(Protocol):
    """What has more to move than one turn allows."""

    queued: bool

    def pump(self) -> None: ...


class Timer:
    """One action at one time, unless it is cancelled before."""

    __slots__ = ("_action",)

    def __init__(self, action: Callable[[], None]) -> None:
        self._action: Callable[[], None] | None = action

    def cancel(self) -> None:
        """Never run it.  Harmless afterwards."""
        self._action = None

    def fire(self) -> None:
        """Run it, once."""
        action, self._action = self._action, None
        if action is not None:
            action()

    @property
    def pending(self) -> bool:
        """Whether it is still to come."""
        return self._action is not None


class Engine:
    """Tells sockets of their events, in bounded turns.

    `now` is the time at which the current turn began, by `clock`.  `buffer` is free between any
    two reads: what can't be passed on at once is copied out of it.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._epoll = select.epoll()
        self._handlers: dict[int, Handler] = {}
        self._put_off: list[Pumpable] = []
        self._timers: list[tuple[float, int, Timer]] = []
        self._serial = itertools.count()
        self.now = clock()
        self.buffer = memoryview(bytearray(COPY_BYTES))
        self.pipes = PipePool()

    def fileno(self) -> int:
        """The epoll descriptor: readable when a socket has events."""
        return self._epoll.fileno()

    def run_once(self, wait_s: float = 0.0) -> float | None:
        """One turn: the events that are there, then what was put off, then the timers.

        Bulk comes after the events, so that a token never waits behind more than one turn of it.
        Where there is nothing at all to do, up to `wait_s` is waited for an event.

        Returns:
            When to call again even if nothing is readable: `now` or earlier when there is or may
            be more to do at once, None when there is nothing to wait for but events.
        """
        works, self._put_off = self._put_off, []
        events = self._epoll.poll(0 if works else wait_s, _EVENTS_A_TURN)
        self.refresh()
        handlers = self._handlers
        for descriptor, mask in events:
            # None: closed by an event before it in this turn.
            handler = handlers.get(descriptor)
            if handler is not None:
                handler.on_events(mask)
        for work in works:
            work.queued = False
            work.pump()
        if self._timers:
            self._run_timers()
        if events or self._put_off:
            return self.now
        return self._timers[0][0] if self._timers else None

    def refresh(self) -> float:
        """Read the clock into `now`, and tell it: for what begins outside a turn."""
        self.now = self._clock()
        return self.now

    def watch(self, descriptor: int, handler: Handler, mask: int) -> None:
        """Tell `handler` of the events in `mask`.  Raises OSError when the kernel takes no more."""
        self._epoll.register(descriptor, mask)
        self._handlers[descriptor] = handler

    def change(self, descriptor: int, mask: int) -> None:
        """Tell the handler of `descriptor` of the events in `mask` from now on."""
        self._epoll.modify(descriptor, mask)

    def unwatch(self, descriptor: int) -> None:
        """Tell nobody of the events of `descriptor`, which stays open.  Harmless when done."""
        if self._handlers.pop(descriptor, None) is not None:
            self._epoll.unregister(descriptor)

    def forget(self, descriptor: int) -> None:
        """Tell nobody of its events any more.  The caller closes it now.

        The kernel drops a closed descriptor by itself, only not while a forked child that has not
        reached its exec holds a copy.  An event from such a copy may reach the next owner of the
        number: handlers take one for a hint and look at the socket.
        """
        self._handlers.pop(descriptor, None)

    def put_off(self, work: Pumpable) -> None:
        """Pump `work` again at the end of the next turn."""
        if not work.queued:
            work.queued = True
            self._put_off.append(work)

    def call_at(self, deadline: float, action: Callable[[], None]) -> Timer:
        """Run `action` in the first turn that begins at `deadline` or later."""
        timer = Timer(action)
        heapq.heappush(self._timers, (deadline, next(self._serial), timer))
        return timer

    def close(self) -> None:
        """Close the epoll and the idle pipes; the sockets are their owners'."""
        self._handlers.clear()
        self._put_off.clear()
        self._timers.clear()
        self.pipes.close()
        self._epoll.close()

    def _run_timers(self) -> None:
        """What they set for now runs in the next turn, so that a turn has an end."""
        timers, due = self._timers, []
        while timers and (timers[0][0] <= self.now or not timers[0][2].pending):
            due.append(heapq.heappop(timers)[2])
        for timer in due:
            timer.fire()
