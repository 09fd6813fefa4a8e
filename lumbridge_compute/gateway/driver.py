"""All gateways of a node as one trio task, and what a transaction asks of them."""

from __future__ import annotations

import math
import socket
from collections.abc import Collection, Sequence

import trio

from lumbridge_compute.core.documents import GatewayDocument
from lumbridge_compute.core.registry import GatewaySpec
from lumbridge_compute.gateway.engine import Engine
from lumbridge_compute.gateway.gateway import MAX_HELD, Gateway
from lumbridge_compute.gateway.listeners import Listener

SLICE_S = 0.002
"""How long the engine may go on before other tasks get their turn, give or take one turn of it."""
_TURNS = 16
_LINGER_S = 0.001
"""While sockets talk, the next event is waited for here, within the slice: to go through trio's
loop for it costs more than to relay a token."""


class Gateways:
    """The gateways of a node, all relaying at first.

    A transaction calls `hold`, `drain` and, when what runs is durable, `release`, each with the
    upstream ports that its plan stops, starts or restarts.
    """

    def __init__(self, listeners: Sequence[Listener], *, max_held: int = MAX_HELD) -> None:
        """Serve `listeners`, which stay their opener's.  Call it inside trio, and then `run`."""
        self._engine = Engine(trio.current_time)
        self._max_held = max_held
        self._gateways: list[Gateway] = []
        self._expecting = False
        self._sleep = trio.CancelScope()
        self.serve(listeners)

    async def run(self) -> None:
        """Relay until cancelled; then every connection is reset and the engine is closed."""
        try:
            while True:
                await self._run_until_woken()
        finally:
            self.serve(())
            self._engine.close()

    def serve(self, listeners: Sequence[Listener]) -> None:
        """Serve `listeners` and no others from now on; not while a transaction holds any.

        A gateway whose listener and upstream stay keeps its connections, and takes new ones by its
        new declaration.  The connections of the others are reset.
        """
        wanted = {(each.sock, each.spec.upstream): each.spec for each in listeners}
        kept = []
        for gateway in self._gateways:
            spec = wanted.pop((gateway.listener, gateway.spec.upstream), None)
            if spec is None:
                gateway.close()
            else:
                gateway.declare(spec)
                kept.append(gateway)
        added = [self._open(spec, sock) for (sock, _), spec in wanted.items()]
        self._gateways = [*kept, *added]
        self._wake()

    def status(self) -> tuple[GatewayDocument, ...]:
        """Each gateway as it is now."""
        return tuple(gateway.status() for gateway in self._gateways)

    def clients(self, ports: Collection[int]) -> int:
        """How many connections there are to the upstreams at `ports`."""
        return sum(gateway.connections for gateway in self._at(ports))

    async def hold(self, ports: Collection[int]) -> None:
        """Let new clients of the upstreams at `ports` wait from now on.  Running ones go on."""
        await trio.lowlevel.checkpoint()
        for gateway in self._at(ports):
            gateway.hold()
        self._wake()

    async def drain(self, ports: Collection[int]) -> None:
        """Hold, and return when no connection to an upstream at `ports` is left.

        Each gets its gateway's `drain` to finish, then it is reset.  When this is cancelled, the
        time runs on: `release` gives the rest of the connections their peace, `cut` ends them.
        """
        await trio.lowlevel.checkpoint()
        empty = [trio.Event() for _ in self._at(ports)]
        for gateway, event in zip(self._at(ports), empty, strict=True):
            gateway.drain(when_empty=event.set)
        self._wake()
        for event in empty:
            await event.wait()

    def cut(self, ports: Collection[int]) -> None:
        """Reset every connection to the upstreams at `ports` at once.  Held clients stay."""
        for gateway in self._at(ports):
            gateway.cut()

    def release(self, ports: Collection[int]) -> None:
        """Relay again at `ports`, the held clients first."""
        for gateway in self._at(ports):
            gateway.release()
        self._wake()

    def expect(self) -> None:
        """Until `settle`, hold the clients that an upstream refuses, at every gateway."""
        self._expecting = True
        for gateway in self._gateways:
            gateway.expect()

    def settle(self) -> None:
        """What refuses now is not about to come: its clients are reset again."""
        self._expecting = False
        for gateway in self._gateways:
            gateway.settle()
        self._wake()

    def _open(self, spec: GatewaySpec, sock: socket.socket) -> Gateway:
        gateway = Gateway(self._engine, spec, sock, max_held=self._max_held)
        if self._expecting:
            gateway.expect()
        return gateway

    def _at(self, ports: Collection[int]) -> list[Gateway]:
        return [gateway for gateway in self._gateways if gateway.spec.upstream.port in ports]

    def _wake(self) -> None:
        """Let `run` look at the timers again."""
        self._sleep.cancel()

    async def _run_until_woken(self) -> None:
        # One scope for many waits: to make one for each would cost as much as half a token.
        with trio.CancelScope() as self._sleep:
            while True:
                deadline = await self._run_engine()
                if deadline != self._sleep.deadline:
                    self._sleep.deadline = deadline
                await trio.lowlevel.wait_readable(self._engine.fileno())

    async def _run_engine(self) -> float:
        """Turns of the engine until it has to wait, and until when; others run in between."""
        while True:
            deadline = self._run_slice()
            if deadline is None:
                return math.inf
            if deadline > self._engine.now:
                return deadline
            await trio.lowlevel.checkpoint()

    def _run_slice(self) -> float | None:
        engine = self._engine
        end = trio.current_time() + SLICE_S
        deadline = engine.run_once()
        for _ in range(_TURNS):
            if deadline is None or deadline > engine.now or engine.now >= end:
                break
            deadline = engine.run_once(_LINGER_S)
        return deadline
