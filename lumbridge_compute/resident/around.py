"""The agent's side of a transaction: its gateways hold and drain, its floor guards what starts."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from lumbridge_compute.core.state import FloorLatch
from lumbridge_compute.effects import ProcessHandle
from lumbridge_compute.gateway.driver import Gateways
from lumbridge_compute.resident.floor_watch import FloorWatch


class Around:
    """Implements Surroundings for one agent, whose transactions come one at a time."""

    def __init__(self, gateways: Gateways, floor: FloorWatch) -> None:
        self._gateways = gateways
        self._floor = floor
        self._held: set[int] = set()

    async def hold(self, ports: Collection[int]) -> None:
        self._held |= set(ports)
        await self._gateways.hold(ports)

    def clients(self, ports: Collection[int]) -> int:
        return self._gateways.clients(ports)

    async def drain(self, ports: Collection[int]) -> None:
        await self._gateways.drain(ports)

    def release(self) -> None:
        self._gateways.release(self._held)
        self._held.clear()

    async def guard(self, model: str, handle: ProcessHandle) -> None:
        await self._floor.guard(model, handle)

    async def unguard(self, model: str) -> None:
        await self._floor.unguard(model)

    def stopped_by_floor(self) -> Mapping[str, str]:
        return self._floor.sentences()

    def floor_latch(self, model: str) -> FloorLatch | None:
        return self._floor.latch(model)
