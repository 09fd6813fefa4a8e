"""The policy of one address: whom it takes, and when it relays, holds, drains and cuts."""

from __future__ import annotations

import socket
from collections.abc import Callable

from lumbridge_compute.core.documents import GatewayDocument
from lumbridge_compute.core.gateways import AllowList
from lumbridge_compute.core.registry import GatewaySpec
from lumbridge_compute.gateway.acceptor import Acceptor
from lumbridge_compute.gateway.connection import Connection, State
from lumbridge_compute.gateway.drain import Drain
from lumbridge_compute.gateway.engine import Engine
from lumbridge_compute.gateway.held import HeldClients
from lumbridge_compute.gateway.side import Meter

MAX_HELD = 1024


class Gateway:
    """Clients of one listening address, and the upstream behind it.

    It relays at first.  `hold` makes new clients wait, `drain` ends those that run, `release`
    connects those that wait.  `expect` says that the upstream is about to come: until `settle`, a
    client that it refuses waits too.
    """

    def __init__(
        self,
        engine: Engine,
        spec: GatewaySpec,
        listener: socket.socket,
        *,
        max_held: int = MAX_HELD,
    ) -> None:
        """Serve `listener`, a prepared one that stays its opener's."""
        self.spec = spec
        self.listener = listener
        self._engine = engine
        self._allowed = AllowList(spec.allow)
        self._running: set[Connection] = set()
        self._held = HeldClients(engine, max_held, self._connect, self._turn_away)
        self._holding = self._expecting = False
        self._drain: Drain | None = None
        self._up, self._down = Meter(), Meter()
        self._total = self._refused = self._reset = 0
        self._acceptor = Acceptor(engine, listener, self._accepted)

    def declare(self, spec: GatewaySpec) -> None:
        """Take new clients by `spec`, whose addresses are the same as before."""
        self.spec = spec
        self._allowed = AllowList(spec.allow)

    @property
    def connections(self) -> int:
        """How many have an upstream."""
        return len(self._running)

    def status(self) -> GatewayDocument:
        """What there is now, and what there was since the start."""
        relaying = "expecting" if self._expecting else "relaying"
        return GatewayDocument(
            listen=str(self.spec.listen),
            upstream=str(self.spec.upstream),
            mode="holding" if self._holding else relaying,
            connections=self.connections,
            held=len(self._held),
            total=self._total,
            refused=self._refused,
            reset=self._reset,
            up_bytes=self._up.total_bytes,
            down_bytes=self._down.total_bytes,
        )

    def hold(self) -> None:
        """Let new clients wait from now on, and those whom the upstream has not accepted yet."""
        self._engine.refresh()
        self._holding = True
        self._held.stop_connecting()
        for connection in tuple(self._running):
            if connection.state is State.CONNECTING:
                connection.disconnect()
            if connection.state is State.WAITING:
                self._hold(connection)

    def drain(
        self, drain_s: float | None = None, when_empty: Callable[[], None] | None = None
    ) -> None:
        """Hold, and end the running connections: each when it has finished, all in `drain_s`.

        `drain_s` is the declared time by default.  `when_empty` is called once, as soon as no
        connection is left, and never after a `release`.
        """
        self.hold()
        self._give_up_drain()
        seconds = self.spec.drain_s if drain_s is None else drain_s
        self._drain = Drain(self._engine, self._running, seconds, when_empty)
        self._drain.check()

    def cut(self) -> None:
        """Reset every connection that has an upstream or is about to.  The held ones stay."""
        for connection in tuple(self._running):
            connection.reset()

    def release(self) -> None:
        """Relay again, the held clients first; a drain under way is given up."""
        self._engine.refresh()
        self._give_up_drain()
        self._holding = False
        self._held.connect_all()

    def expect(self) -> None:
        """Until `settle`, hold the clients that the upstream refuses, and try it for them."""
        self._expecting = True

    def settle(self) -> None:
        """The upstream is there by now or it is not: each held client gets one more try."""
        self._engine.refresh()
        self._expecting = False
        if not self._holding:
            self._held.connect_all()

    def close(self) -> None:
        """Accept no more, and reset all.  The listener stays open."""
        self._acceptor.close()
        self._give_up_drain()
        self._held.stop_connecting()
        for connection in (*self._held, *self._running):
            connection.reset()

    def connection_opened(self, connection: Connection) -> None:
        """It relays; and where the upstream was expected, it is there for the held ones too."""
        if self._held.discard(connection):
            self._running.add(connection)
            if self._expecting:
                self._held.connect_all()

    def connection_refused(self, connection: Connection) -> None:
        """The upstream does not take it: it waits where the upstream is expected."""
        if not self._expecting:
            self._turn_away(connection)
            return
        if connection in self._running:
            self._hold(connection)
        self._held.try_soon()

    def connection_closed(self, connection: Connection, *, cut: bool) -> None:
        """Forget it."""
        self._held.discard(connection)
        self._running.discard(connection)
        self._reset += cut
        if self._drain is not None:
            self._drain.connection_closed()

    def _accepted(self, sock: socket.socket, host: str) -> None:
        self._total += 1
        if not self._allowed.allows(host):
            self._refused += 1
            sock.close()
            return
        try:
            connection = Connection(self._engine, self, sock, (self._up, self._down))
        except OSError:
            self._refused += 1
            return
        self._running.add(connection)
        if self._holding:
            self._hold(connection)
        elif not self._connect(connection):
            self._turn_away(connection)

    def _connect(self, connection: Connection) -> bool:
        """Begin to connect; False when no socket can be had."""
        try:
            connection.connect(self.spec.upstream)
        except OSError:
            self._acceptor.pause()
            return False
        return True

    def _hold(self, connection: Connection) -> None:
        self._running.discard(connection)
        if not self._held.add(connection, self.spec.hold_s):
            self._turn_away(connection)

    def _turn_away(self, connection: Connection) -> None:
        self._refused += 1
        connection.reset()

    def _give_up_drain(self) -> None:
        if self._drain is not None:
            self._drain.cancel()
            self._drain = None
