"""The end of the connections that run: each when it has finished, all when the time is over."""

from __future__ import annotations

from collections.abc import Callable, Collection

from lumbridge_compute.gateway.connection import Connection
from lumbridge_compute.gateway.engine import Engine, Timer

FINISHED_AFTER_S = 2.0
"""Silence after an answer that tells a connection kept for later from one at work."""


class Drain:
    """Ends the connections of `running`, a live collection that they leave as they close."""

    def __init__(
        self,
        engine: Engine,
        running: Collection[Connection],
        drain_s: float,
        when_empty: Callable[[], None] | None,
    ) -> None:
        """Call `when_empty` once, when none is left; at the latest `drain_s` from now."""
        self._engine = engine
        self._running = running
        self._deadline = engine.now + drain_s
        self._when_empty = when_empty
        self._timer: Timer | None = None

    def check(self) -> None:
        """Reset those that have finished, all when the time is over, and look again in time."""
        now = self._engine.now
        over = now >= self._deadline
        next_look = self._deadline
        for connection in tuple(self._running):
            answer_at = connection.last_answer_at()
            # One that waits for its answer now is not finished before this long from now.
            finished_at = (now if answer_at is None else answer_at) + FINISHED_AFTER_S
            if over or finished_at <= now:
                connection.reset()
            else:
                next_look = min(next_look, finished_at)
        if self._running:
            self._timer = self._engine.call_at(next_look, self.check)
        else:
            self.connection_closed()

    def connection_closed(self) -> None:
        """One has left `running`."""
        when_empty = self._when_empty
        if when_empty is not None and not self._running:
            self.cancel()
            self._when_empty = None
            when_empty()

    def cancel(self) -> None:
        """Reset no more of them."""
        if self._timer is not None:
            self._timer.cancel()
