"""Takes clients from a listening socket, and pauses while they have used up their descriptors."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from select import EPOLLIN

from lumbridge_compute.gateway.engine import Engine, Timer
from lumbridge_compute.gateway.room import has_room

PAUSE_S = 0.05

_ACCEPTS_A_TURN = 32
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_CLIENT_GONE = frozenset(
    {errno.ECONNABORTED, errno.EPERM, errno.EPROTO, errno.ENOPROTOOPT, errno.EOPNOTSUPP}
    | {errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENONET}
)
"""Errors of a pending connection, not of the listener.  Source: accept(2), "Error handling"."""


class Acceptor:
    """Gives each accepted socket, made non-blocking, with the client's address to `accepted`."""

    def __init__(
        self,
        engine: Engine,
        listener: socket.socket,
        accepted: Callable[[socket.socket, str], None],
    ) -> None:
        """Accept from `listener`, a non-blocking one that stays its opener's."""
        self._engine = engine
        self._listener = listener
        self._accepted = accepted
        self._pause: Timer | None = None
        # Level-triggered: what one turn leaves in the backlog is told again.
        engine.watch(listener.fileno(), self, EPOLLIN)

    def on_events(self, mask: int) -> None:  # noqa: ARG002 - only EPOLLIN is watched
        """Take the clients that are there, up to a bound."""
        for _ in range(_ACCEPTS_A_TURN):
            if self._pause is not None or not self._accept():
                return

    def pause(self) -> None:
        """Leave clients in the backlog for a while: descriptors may come back meanwhile."""
        if self._pause is None:
            self._engine.change(self._listener.fileno(), 0)
            self._pause = self._engine.call_at(self._engine.now + PAUSE_S, self._resume)

    def close(self) -> None:
        """Accept no more.  The listener stays open."""
        if self._pause is not None:
            self._pause.cancel()
        self._engine.unwatch(self._listener.fileno())

    def _accept(self) -> bool:
        """One client; False when there is none, or none can be taken now."""
        if not has_room(self._listener):
            self.pause()
            return False
        try:
            sock, address = self._listener.accept()
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno in _CLIENT_GONE:
                return True
            if error.errno not in _EXHAUSTED:
                raise
            self.pause()
            return False
        sock.settimeout(0)
        self._accepted(sock, address[0])
        return True

    def _resume(self) -> None:
        self._pause = None
        self._engine.change(self._listener.fileno(), EPOLLIN)
