"""Clients that wait for their upstream: bounded in number and time, and connected in the end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from lumbridge_compute.gateway.acceptor import PAUSE_S
from lumbridge_compute.gateway.connection import Connection, State
from lumbridge_compute.gateway.engine import Engine, Timer

RETRY_S = 0.25
"""How often an upstream that refuses is tried while it is expected."""

_CONNECTS_A_TURN = 32


class HeldClients:
    """Held connections in the order of their arrival.

    One stays held while it is being connected, so that one that is refused waits on with its time.
    """

    def __init__(
        self,
        engine: Engine,
        max_held: int,
        connect: Callable[[Connection], bool],
        expired: Callable[[Connection], None],
    ) -> None:
        """`connect` begins to connect one, False when no socket can be had; `expired` ends one."""
        self._engine = engine
        self._max_held = max_held
        self._connect = connect
        self._expired = expired
        self._deadlines: dict[Connection, float] = {}
        self._expiry: Timer | None = None
        self._queue: deque[Connection] = deque()
        self._next_connect: Timer | None = None

    def __len__(self) -> int:
        return len(self._deadlines)

    def __contains__(self, connection: Connection) -> bool:
        return connection in self._deadlines

    def __iter__(self) -> Iterator[Connection]:
        """Oldest first; they may leave meanwhile."""
        return iter(tuple(self._deadlines))

    def add(self, connection: Connection, hold_s: float) -> bool:
        """Let `connection` wait up to `hold_s` from now; False when there is no room or time."""
        if hold_s <= 0 or len(self._deadlines) >= self._max_held:
            return False
        self._deadlines[connection] = self._engine.now + hold_s
        if self._expiry is None:
            self._watch_time()
        return True

    def discard(self, connection: Connection) -> bool:
        """Let it go; False when it was not here."""
        return self._deadlines.pop(connection, None) is not None

    def connect_all(self) -> None:
        """Connect each that is here now, once, some of them in each turn."""
        self._queue = deque(self._deadlines)
        self._connect_at(self._engine.now, self._connect_some)

    def try_soon(self) -> None:
        """Connect the oldest after a while, again and again as long as any are here."""
        if self._next_connect is None:
            self._connect_at(self._engine.now + RETRY_S, self._try_oldest)

    def stop_connecting(self) -> None:
        """Connect none, until told again; those on their way are back to waiting."""
        self._queue.clear()
        if self._next_connect is not None:
            self._next_connect.cancel()
            self._next_connect = None
        for connection in self:
            if connection.state is State.CONNECTING:
                connection.disconnect()

    def _connect_at(self, when: float, action: Callable[[], None]) -> None:
        if self._next_connect is not None:
            self._next_connect.cancel()
        self._next_connect = self._engine.call_at(when, action)

    def _connect_some(self) -> None:
        self._next_connect = None
        for _ in range(min(_CONNECTS_A_TURN, len(self._queue))):
            connection = self._queue.popleft()
            waits = connection in self._deadlines and connection.state is State.WAITING
            if waits and not self._connect(connection):
                self._queue.appendleft(connection)
                self._connect_at(self._engine.now + PAUSE_S, self._connect_some)
                return
        if self._queue:
            self._connect_at(self._engine.now, self._connect_some)

    def _try_oldest(self) -> None:
        self._next_connect = None
        if not self._deadlines:
            return
        self.try_soon()
        oldest = next(iter(self._deadlines))
        if oldest.state is State.WAITING:
            self._connect(oldest)

    def _watch_time(self) -> None:
        deadline = min(self._deadlines.values())
        self._expiry = self._engine.call_at(deadline, self._expire)

    def _expire(self) -> None:
        now = self._engine.now
        for connection in [held for held, until in self._deadlines.items() if until <= now]:
            self._expired(connection)
        self._expiry = None
        if self._deadlines:
            self._watch_time()
