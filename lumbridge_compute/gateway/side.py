"""One socket of a connection, and the way of its bytes to the peer.

The sockets are watched edge-triggered: an event is told once, so what is known about a socket is
kept in flags until a call proves otherwise.

- `readable`: a read may find bytes.  Cleared by a short read or EAGAIN.
- `insist`: a short read is not the end of what is there, a FIN or an urgent byte follows.
- `writable`: a write may find room.  Cleared by a short write or EAGAIN.

Source: epoll(7), "Questions and answers" 9; tcp(7); splice(2).
"""

from __future__ import annotations

import os
import socket
from select import EPOLLERR, EPOLLET, EPOLLHUP, EPOLLIN, EPOLLOUT, EPOLLPRI, EPOLLRDHUP
from typing import Protocol

from lumbridge_compute.gateway.engine import COPY_BYTES, Engine
from lumbridge_compute.gateway.pipes import PIPE_BYTES, Pipe

WATCHED = EPOLLIN | EPOLLOUT | EPOLLPRI | EPOLLRDHUP | EPOLLET  # ERR and HUP are always told
ARRIVED = EPOLLIN | EPOLLPRI | EPOLLRDHUP | EPOLLHUP
MORE_FOLLOWS = EPOLLPRI | EPOLLRDHUP | EPOLLHUP

NEVER = float("-inf")

_ROUNDS = 16
"""Reads of one side in one turn, so that bulk does not starve the tokens of others."""
_FULL_READS_TO_SPLICE = 2
_SPLICE_FLAGS = os.SPLICE_F_NONBLOCK | os.SPLICE_F_MOVE  # F_MORE would hold back the last bytes


class Meter:
    """Bytes that went one way through a gateway."""

    __slots__ = ("total_bytes",)

    def __init__(self) -> None:
        self.total_bytes = 0


class Joined(Protocol):
    """What two sides belong to."""

    relaying: bool

    def before_relaying(self, side: Side, mask: int) -> None:
        """Take an event of a side whose connection is not complete yet."""

    def reset(self) -> None:
        """End both sides with a RST."""

    def finish(self) -> None:
        """Close both sides in order: each has ended and all bytes are on their way."""


class _Nothing:
    """What a closed side belongs to, so that nothing holds it in memory."""

    relaying = False

    def before_relaying(self, side: Side, mask: int) -> None:
        pass

    def reset(self) -> None:
        pass

    def finish(self) -> None:
        pass


_NOTHING = _Nothing()


class Side:
    """A socket, and the flow that comes out of it.  One that is closed moves nothing.

    `spoke_at` is when bytes came out of it last, by the engine's clock.
    """

    __slots__ = (
        "broken",
        "connection",
        "descriptor",
        "ended",
        "engine",
        "full_reads",
        "insist",
        "meter",
        "peer",
        "pipe",
        "piped_bytes",
        "queued",
        "readable",
        "sock",
        "spoke_at",
        "tail",
        "writable",
    )

    def __init__(
        self, engine: Engine, sock: socket.socket, connection: Joined, meter: Meter
    ) -> None:
        """Watch `sock`, which is non-blocking and belongs to the side from now on.

        Raises OSError when the kernel can't watch it; `sock` is closed then.
        """
        self.engine = engine
        self.sock = sock
        self.descriptor = sock.fileno()
        self.connection = connection
        self.meter = meter
        self.peer: Side | None = None
        self.readable = self.insist = self.writable = False
        self.ended = self.broken = self.queued = False
        self.full_reads = 0
        self.tail: bytes | memoryview | None = None
        self.pipe: Pipe | None = None
        self.piped_bytes = 0
        self.spoke_at = NEVER
        try:
            engine.watch(self.descriptor, self, WATCHED)
        except OSError:
            sock.close()
            raise

    def on_events(self, mask: int) -> None:
        """Take what epoll tells of this socket."""
        if not self.connection.relaying:
            self.connection.before_relaying(self, mask)
            return
        if mask & EPOLLERR and self.read_error():
            self.break_off()
            return
        if mask & EPOLLOUT and not self.writable:
            self.writable = True
            if self.peer is not None:
                self.peer.pump()
        if mask & ARRIVED and not self.ended:
            self.readable = True
            if mask & MORE_FOLLOWS:
                self.insist = True
            self.pump()

    def note_arrival(self, mask: int) -> None:
        """Keep for the next pump what `mask` tells of bytes, if anything."""
        if mask & ARRIVED:
            self.readable = True
        if mask & MORE_FOLLOWS:
            self.insist = True

    def read_error(self) -> int:
        """The socket's pending error, 0 for none: EPOLLERR may be meant for an earlier socket."""
        return self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)

    def pump(self) -> None:
        """Move bytes to the peer until one of the two has to wait, or the turn is over.

        Nothing is read while something waits for the peer: that is the whole back-pressure.
        """
        if self.queued:
            return
        peer = self.peer
        for _ in range(_ROUNDS):
            if peer is None or not peer.writable:
                more = False
            elif self.piped_bytes:
                more = self._empty_pipe(peer)
            elif self.tail is not None:
                more = self._send(peer, self.tail)
            elif not self.readable:
                more = False
            elif self.full_reads < _FULL_READS_TO_SPLICE:
                more = self._copy(peer)
            else:
                more = self._splice(peer)
            if not more:
                if self.broken:
                    self.connection.reset()
                return
        self.engine.put_off(self)

    def break_off(self) -> None:
        """End the connection: this socket is dead.

        What it had received before its RST goes on to the peer as far as that takes it now: a
        server that answers, closes and resets is heard with its answer.
        """
        if self.broken:
            self.connection.reset()
            return
        self.broken = True
        self.readable = self.insist = not self.ended
        self.pump()

    def close(self) -> None:
        """Close the socket, and let go of what waits for the peer."""
        self.engine.forget(self.descriptor)
        self.sock.close()
        self.readable = self.writable = False
        self.ended = True
        self.tail = None
        self.peer = None
        self.connection = _NOTHING
        if self.pipe is not None:
            if self.piped_bytes:
                self.engine.pipes.discard(self.pipe)
            else:
                self.engine.pipes.give_back(self.pipe)
            self.pipe = None
            self.piped_bytes = 0

    def _copy(self, peer: Side) -> bool:
        """Small reads, and the first of large ones, through the engine's one buffer."""
        buffer = self.engine.buffer
        try:
            count = self.sock.recv_into(buffer)
        except BlockingIOError:
            return self._dry()
        except OSError:
            self.connection.reset()
            return False
        if not count:
            return self._end(peer)
        self.spoke_at = self.engine.now
        self.meter.total_bytes += count
        if count == COPY_BYTES:
            self.full_reads += 1
        else:
            self.full_reads = 0
            self.readable = self.insist
        return self._send(peer, buffer[:count]) and self.readable

    def _send(self, peer: Side, data: bytes | memoryview) -> bool:
        """Pass `data` on; what the peer does not take waits as `tail`."""
        try:
            sent = peer.sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            peer.break_off()
            return False
        if sent == len(data):
            self.tail = None
            return True
        self.tail = bytes(data[sent:])
        peer.writable = False
        return False

    def _splice(self, peer: Side) -> bool:
        """Bulk: from socket to socket through a pipe, which is empty before it is filled.

        Into a pipe that has bytes, EAGAIN would not tell which of the two has to wait.
        """
        pipe = self.pipe or self.engine.pipes.take()
        if pipe is None:
            return self._copy(peer)
        self.pipe = pipe
        try:
            count = os.splice(self.descriptor, pipe.write_end, PIPE_BYTES, flags=_SPLICE_FLAGS)
        except BlockingIOError:
            return self._dry()
        except OSError:
            self.connection.reset()
            return False
        if not count:
            # The end, or bytes up to an urgent one, which splice does not pass: a read tells.
            self._give_back_pipe()
            return True
        self.spoke_at = self.engine.now
        self.meter.total_bytes += count
        self.piped_bytes = count
        return self._empty_pipe(peer)

    def _empty_pipe(self, peer: Side) -> bool:
        target = peer.descriptor
        try:
            while self.piped_bytes and self.pipe is not None:
                self.piped_bytes -= os.splice(
                    self.pipe.read_end, target, self.piped_bytes, flags=_SPLICE_FLAGS
                )
        except BlockingIOError:
            peer.writable = False
            return False
        except OSError:
            peer.break_off()
            return False
        return True

    def _dry(self) -> bool:
        """There was nothing to read."""
        self.readable = self.insist = False
        self._give_back_pipe()
        return False

    def _give_back_pipe(self) -> None:
        """Copy again: the flow has dried up, and others may need the pipe."""
        self.full_reads = 0
        if self.pipe is not None:
            self.engine.pipes.give_back(self.pipe)
            self.pipe = None

    def _end(self, peer: Side) -> bool:
        """Pass the FIN on; all bytes before it are with the peer's kernel already."""
        if self.broken:
            return False
        self.ended = True
        self.readable = False
        self._give_back_pipe()
        if peer.ended:
            self.connection.finish()
            return False
        try:
            peer.sock.shutdown(socket.SHUT_WR)
        except OSError:
            peer.break_off()
        return False
