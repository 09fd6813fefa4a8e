"""One gateway as the agent runs it: `serve.py PORT UPSTREAM [--busy]`.

With --busy the same loop also computes 15 ms of every 50 ms, as an agent that is at work would.
"""

from __future__ import annotations

import sys
import time

import trio

from lumbridge_compute.core.registry import Address, GatewaySpec
from lumbridge_compute.gateway.driver import Gateways
from lumbridge_compute.gateway.listeners import open_listeners

WORK_S, PAUSE_S = 0.015, 0.035


async def work() -> None:
    """Keep the loop busy."""
    while True:
        end = time.perf_counter() + WORK_S
        while time.perf_counter() < end:
            pass
        await trio.sleep(PAUSE_S)


async def main(port: int, upstream: int, *, busy: bool) -> None:
    """Serve until the process is killed."""
    spec = GatewaySpec(Address("127.0.0.1", port), Address("127.0.0.1", upstream))
    gateways = Gateways(open_listeners([spec]))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gateways.run)
        if busy:
            nursery.start_soon(work)


trio.run(lambda: main(int(sys.argv[1]), int(sys.argv[2]), busy="--busy" in sys.argv[3:]))
