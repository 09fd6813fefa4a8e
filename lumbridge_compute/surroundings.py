"""What a resident agent does around a transaction; a command alone has none of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from lumbridge_compute.core.state import FloorLatch
from lumbridge_compute.effects import ProcessHandle


class Surroundings(Protocol):
    """Gateways and the memory floor, as a transaction meets them.

    `ports` are the upstream ports that its plan stops, starts or restarts.
    """

    async def hold(self, ports: Collection[int]) -> None:
        """New clients of `ports` wait from now on."""
        ...

    def clients(self, ports: Collection[int]) -> int:
        """How many clients are connected to `ports` through the gateways."""
        ...

    async def drain(self, ports: Collection[int]) -> None:
        """Return when no connection to `ports` is left: some may finish, then all are reset."""
        ...

    def release(self) -> None:
        """What runs is durable: the clients that wait are connected, whatever was held."""
        ...

    async def guard(self, model: str, handle: ProcessHandle) -> None:
        """The floor may stop `model` from now on; returns before its command may run."""
        ...

    async def unguard(self, model: str) -> None:
        """`model` is being stopped: the floor lets go of it."""
        ...

    def stopped_by_floor(self) -> Mapping[str, str]:
        """Models that the floor has stopped and nobody has started since, each with a sentence."""
        ...

    def floor_latch(self, model: str) -> FloorLatch | None:
        """What is to be remembered of the floor having stopped `model`; None where it has not."""
        ...


class Nothing:
    """The surroundings of a command that runs without an agent."""

    async def hold(self, ports: Collection[int]) -> None:
        pass

    def clients(self, ports: Collection[int]) -> int:  # noqa: ARG002 - the same for any
        return 0

    async def drain(self, ports: Collection[int]) -> None:
        pass

    def release(self) -> None:
        pass

    async def guard(self, model: str, handle: ProcessHandle) -> None:
        pass

    async def unguard(self, model: str) -> None:
        pass

    def stopped_by_floor(self) -> Mapping[str, str]:
        return {}

    def floor_latch(self, model: str) -> FloorLatch | None:  # noqa: ARG002 - as above
        return None
