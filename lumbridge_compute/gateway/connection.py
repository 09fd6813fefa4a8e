"""A client and its upstream, from the accept to the end."""

from __future__ import annotations

import enum
import errno
import os
import socket
from select import EPOLLERR, EPOLLHUP, EPOLLOUT, EPOLLRDHUP
from typing import Protocol

from lumbridge_compute.core.registry import Address
from lumbridge_compute.gateway import sockets
from lumbridge_compute.gateway.engine import Engine
from lumbridge_compute.gateway.room import is_for_clients
from lumbridge_compute.gateway.side import Meter, Side


class State(enum.Enum):
    """How far a connection is."""

    WAITING = enum.auto()
    """Nothing but a client."""
    CONNECTING = enum.auto()
    RELAYING = enum.auto()
    CLOSED = enum.auto()


class Owner(Protocol):
    """Who decides about connections; it is told of each of these after it has happened."""

    def connection_opened(self, connection: Connection) -> None:
        """The upstream has accepted: it relays from now on."""

    def connection_refused(self, connection: Connection) -> None:
        """The upstream has not accepted: it is waiting again."""

    def connection_closed(self, connection: Connection, *, cut: bool) -> None:
        """All is closed, whoever closed it; `cut` says that it relayed and ended with a RST."""


class Connection:
    """One client, and the upstream connection made for it.

    A waiting client that sends a FIN counts as gone: its answer would find nobody, and one that
    half-closes before anyone has accepted it can't be told from it.
    """

    __slots__ = ("_engine", "_owner", "_upstream_meter", "client", "relaying", "state", "upstream")

    def __init__(
        self, engine: Engine, owner: Owner, sock: socket.socket, meters: tuple[Meter, Meter]
    ) -> None:
        """Take the accepted, non-blocking `sock`, whose options are set already.

        `meters` count what comes from the client and what comes from the upstream.
        Raises OSError when the kernel can't watch `sock`, which is closed then.
        """
        self._engine = engine
        self._owner = owner
        self._upstream_meter = meters[1]
        self.state = State.WAITING
        self.relaying = False
        self.upstream: Side | None = None
        self.client = Side(engine, sock, self, meters[0])

    def connect(self, upstream: Address) -> None:
        """Begin to connect.  The owner is told how it ends, within this call for some errors.

        Raises OSError when no socket can be had; the connection is waiting then as before.
        """
        sock = sockets.open_socket(upstream)
        if not is_for_clients(sock.fileno()):
            sock.close()
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        error = sock.connect_ex((upstream.host, upstream.port))
        self.upstream = Side(self._engine, sock, self, self._upstream_meter)
        self.state = State.CONNECTING
        if error not in (0, errno.EINPROGRESS) or sockets.meets_itself(sock, upstream):
            self._refused()

    def disconnect(self) -> None:
        """Give up connecting: the client is waiting again, unless it has left."""
        self._drop_upstream()
        if sockets.has_ended(self.client.sock):
            self.reset()

    def before_relaying(self, side: Side, mask: int) -> None:
        """Take an event of the client that waits, or of the upstream that is being connected."""
        if side is self.client:
            self._client_event(mask)
        elif mask & (EPOLLERR | EPOLLHUP) and side.read_error():
            self._refused()
        elif mask & EPOLLOUT:
            self._connected(side, mask)

    def reset(self) -> None:
        """End both sides with a RST, whatever is under way.  Harmless when closed."""
        if self.state is not State.CLOSED:
            self._close(cut=self.relaying)

    def finish(self) -> None:
        """Close both sides in order: the kernel delivers what it has, then a FIN."""
        if self.state is State.CLOSED:
            return
        for side in (self.client, self.upstream):
            if side is not None:
                sockets.lift_linger(side.sock)
        self._close(cut=False)

    def last_answer_at(self) -> float | None:
        """When the upstream spoke last; None while the client waits for it to speak.

        Being accepted counts as an answer: a client that has asked nothing waits for nothing.
        """
        upstream = self.upstream
        if upstream is None or upstream.spoke_at <= self.client.spoke_at:
            return None
        return upstream.spoke_at

    def _client_event(self, mask: int) -> None:
        left = mask & (EPOLLRDHUP | EPOLLHUP) and self.state is State.WAITING
        if left or (mask & EPOLLERR and self.client.read_error()):
            self.reset()
            return
        self.client.note_arrival(mask)
        if mask & EPOLLOUT:
            self.client.writable = True

    def _connected(self, upstream: Side, mask: int) -> None:
        client = self.client
        client.peer, upstream.peer = upstream, client
        self.state = State.RELAYING
        self.relaying = True
        upstream.writable = True
        upstream.note_arrival(mask)
        upstream.spoke_at = self._engine.now
        self._owner.connection_opened(self)
        client.pump()
        upstream.pump()

    def _refused(self) -> None:
        self._drop_upstream()
        self._owner.connection_refused(self)

    def _drop_upstream(self) -> None:
        if self.upstream is not None:
            self.upstream.close()
            self.upstream = None
        self.state = State.WAITING

    def _close(self, *, cut: bool) -> None:
        self.state = State.CLOSED
        self.relaying = False
        self.client.close()
        if self.upstream is not None:
            self.upstream.close()
        self._owner.connection_closed(self, cut=cut)
