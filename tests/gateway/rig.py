"""A gateway with scripted peers: the engine is turned by the test, time is told by it."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from lumbridge_compute.core.registry import Address, GatewaySpec
from lumbridge_compute.gateway import sockets
from lumbridge_compute.gateway.engine import Engine
from lumbridge_compute.gateway.gateway import Gateway

PATIENCE_S = 60.0
FIN = "FIN"
RST = "RST"


class Clock:
    """Time that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def address_of(sock: socket.socket) -> Address:
    host, port = sock.getsockname()[:2]
    return Address(host, port)


def open_server(host: str = "127.0.0.1", backlog: int = 128) -> socket.socket:
    """A listening upstream on a port of the kernel's choice."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, 0), family=family, backlog=backlog)


def reset(sock: socket.socket) -> None:
    """Close with a RST."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


@dataclass
class Rig:
    """One gateway, turned by hand.  `upstream` is the server's listening socket."""

    clock: Clock
    engine: Engine
    gateway: Gateway
    upstream: socket.socket

    def until(self, condition: Callable[[], object], what: str = "") -> None:
        """Turn the engine until `condition` holds.  The peers' doings wake it."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"never came: {what} {self.gateway.status()}"
            if self.engine.run_once() is None:
                select.select([self.engine.fileno()], [], [], 0.01)

    def settle(self) -> None:
        """Turn the engine until it has nothing to do."""
        while (deadline := self.engine.run_once()) is not None and deadline <= self.engine.now:
            pass

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.now += seconds
        self.settle()

    def client(self) -> socket.socket:
        """A connected client; nothing has been done for it yet."""
        sock = socket.socket(self.gateway.listener.family)
        sock.settimeout(PATIENCE_S)
        sock.connect(self.gateway.listener.getsockname())
        sock.settimeout(0)
        return sock

    def server(self) -> socket.socket:
        """The upstream's end of the oldest connection that it has not accepted."""
        poll = select.poll()
        poll.register(self.upstream, select.POLLIN)
        self.until(lambda: poll.poll(0), "a connection at the upstream")
        sock, _ = self.upstream.accept()
        sock.settimeout(0)
        return sock

    def pair(self) -> tuple[socket.socket, socket.socket]:
        """A client and the upstream's end of its connection."""
        client = self.client()
        server = self.server()
        self.settle()
        return client, server

    def read(self, sock: socket.socket, count: int) -> bytes:
        """Exactly `count` bytes."""
        got = bytearray()

        def complete() -> bool:
            with contextlib.suppress(BlockingIOError):
                piece = sock.recv(min(1 << 20, count - len(got)))
                assert piece, f"ended after {len(got)} of {count} bytes"
                got.extend(piece)
            return len(got) == count

        self.until(complete, f"{count} bytes")
        return bytes(got)

    def write(self, sock: socket.socket, data: bytes) -> None:
        """All of `data`."""
        rest = memoryview(data)

        def complete() -> bool:
            nonlocal rest
            with contextlib.suppress(BlockingIOError):
                rest = rest[sock.send(rest) :]
            return not rest

        self.until(complete, "room to write")

    def ending(self, sock: socket.socket) -> tuple[bytes, str]:
        """All that still comes, and how it ends."""
        got = bytearray()
        how = ""

        def ended() -> str:
            nonlocal how
            try:
                piece = sock.recv(1 << 20)
                got.extend(piece)
                how = "" if piece else FIN
            except BlockingIOError:
                pass
            except (ConnectionResetError, BrokenPipeError):
                how = RST
            return how

        self.until(ended, "an end")
        return bytes(got), how

    def how_it_ends(self, sock: socket.socket) -> str:
        """FIN or RST; nothing may come before."""
        rest, how = self.ending(sock)
        assert rest == b""
        return how


@contextlib.contextmanager
def open_rig(
    *,
    host: str = "127.0.0.1",
    listen: str | None = None,
    upstream: socket.socket | None = None,
    allow: tuple[str, ...] = (),
    hold_s: float = 600.0,
    drain_s: float = 30.0,
    max_held: int = 1024,
) -> Iterator[Rig]:
    """A gateway on `listen` before a server on `host`."""
    clock = Clock()
    engine = Engine(clock)
    with (
        upstream or open_server(host) as server,
        sockets.open_listener(Address(listen or host, 0)) as listener,
    ):
        spec = GatewaySpec(address_of(listener), address_of(server), allow, hold_s, drain_s)
        gateway = Gateway(engine, spec, listener, max_held=max_held)
        try:
            yield Rig(clock, engine, gateway, server)
        finally:
            gateway.close()
            engine.close()


@contextlib.contextmanager
def turning(rig: Rig) -> Iterator[None]:
    """Within it, the engine runs in a thread of its own, for peers that block."""
    stop = threading.Event()

    def turn() -> None:
        while not stop.is_set():
            if rig.engine.run_once() is None:
                select.select([rig.engine.fileno()], [], [], 0.01)

    thread = threading.Thread(target=turn)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
