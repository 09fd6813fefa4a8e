"""All gateways of a node as one trio task, and what a transaction asks of them."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import trio

from lumbridge_compute.core.gateways import GatewayStatus
from lumbridge_compute.gateway.engine import Engine
from lumbridge_compute.gateway.gateway import MAX_HELD, Gateway
from lumbridge_compute.gateway.listeners import Listener

_TURNS = 4
"""Turns of the engine before other tasks get theirs, while there is more to do."""
_SLICE_S = 0.002


class Gateways:
    """The gateways of a node, all relaying at first.

    A transaction calls `hold`, `drain` and, when what runs is durable, `release`, each with the
    upstream ports that its plan stops, starts or restarts.
    """

    def __init__(self, listeners: Sequence[Listener], *, max_held: int = MAX_HELD) -> None:
        """Serve `listeners`, which stay their opener's.  Call it inside trio, and then `run`."""
        self._engine = Engine(trio.current_time)
        self._gateways = [
            Gateway(self._engine, each.spec, each.sock, max_held=max_held) for each in listeners
        ]
        self._sleep = trio.CancelScope()

    async def run(self) -> None:
        """Relay until cancelled; then every connection is reset and the engine is closed."""
        try:
            while True:
                await self._run_until_woken()
        finally:
            for gateway in self._gateways:
                gateway.close()
            self._engine.close()

    def status(self) -> tuple[GatewayStatus, ...]:
        """Each gateway as it is now."""
        return tuple(gateway.status() for gateway in self._gateways)

    async def hold(self, ports: Collection[int]) -> None:
        """Let new clients of the upstreams at `ports` wait from now on.  Running ones go on."""
        for gateway in self._at(ports):
            gateway.hold()
        self._wake()
        await trio.lowlevel.checkpoint()

    async def drain(self, ports: Collection[int]) -> None:
        """Hold, and return when no connection to an upstream at `ports` is left.

        Each gets its gateway's `drain` to finish, then it is reset.  When cancelled, the time
        runs on: `release` gives the rest of the connections their peace, `cut` ends them.
        """
        async with trio.open_nursery() as nursery:
            for gateway in self._at(ports):
                nursery.start_soon(self._drain, gateway)

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
        """Until `settle`, hold the clients that an upstream refuses, for all gateways."""
        for gateway in self._gateways:
            gateway.expect()

    def settle(self) -> None:
        """What refuses now is not about to come: reset its clients again, for all gateways."""
        for gateway in self._gateways:
            gateway.settle()
        self._wake()

    def _at(self, ports: Collection[int]) -> list[Gateway]:
        return [gateway for gateway in self._gateways if gateway.spec.upstream.port in ports]

    async def _drain(self, gateway: Gateway) -> None:
        empty = trio.Event()
        gateway.drain(when_empty=empty.set)
        self._wake()
        await empty.wait()

    def _wake(self) -> None:
        """Let `run` look at the timers again."""
        self._sleep.cancel()

    async def _run_until_woken(self) -> None:
        # One scope for many waits: to make one for each would cost as much as a token does.
        with trio.CancelScope() as self._sleep:
            while True:
                deadline = await self._run_engine()
                if deadline != self._sleep.deadline:
                    self._sleep.deadline = deadline
                await trio.lowlevel.wait_readable(self._engine.fileno())

    async def _run_engine(self) -> float:
        """Turns of the engine until it has to wait; other tasks run in between."""
        while True:
            end = trio.current_time() + _SLICE_S
            for _ in range(_TURNS):
                deadline = self._engine.run_once()
                if deadline is None:
                    return math.inf
                if deadline > self._engine.now:
                    return deadline
                if trio.current_time() >= end:
                    break
            await trio.lowlevel.checkpoint()
