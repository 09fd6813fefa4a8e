"""Run by test_killed: one gateway as the agent runs it.  Prints its port."""

from __future__ import annotations

import sys

import trio

from lumbridge_compute.core.registry import Address, GatewaySpec
from lumbridge_compute.gateway import sockets
from lumbridge_compute.gateway.driver import Gateways
from lumbridge_compute.gateway.listeners import Listener


async def main(upstream: int) -> None:
    with sockets.open_listener(Address("127.0.0.1", 0)) as sock:
        address = Address(*sock.getsockname())
        spec = GatewaySpec(address, Address("127.0.0.1", upstream))
        gateways = Gateways([Listener(spec, sock)])
        sys.stdout.write(f"{address.port}\n")
        sys.stdout.flush()
        await gateways.run()


trio.run(main, int(sys.argv[1]))
