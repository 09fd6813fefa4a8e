"""All gateways as one trio task, as a transaction uses them."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import trio
import trio.testing

from lumbridge_compute.core.registry import Address, GatewaySpec
from lumbridge_compute.gateway import sockets
from lumbridge_compute.gateway.driver import Gateways
from lumbridge_compute.gateway.engine import Engine
from lumbridge_compute.gateway.listeners import Listener
from tests.gateway.rig import PATIENCE_S, address_of, open_server

MIB = 1024 * 1024


class Site:
    """Two gateways, each before a server of its own, while their task runs."""

    def __init__(self, listeners: list[Listener], servers: list[trio.SocketListener]) -> None:
        self.gateways = Gateways(listeners)
        self.listeners = listeners
        self.servers = servers
        self.running = trio.CancelScope()
        self._streams: list[trio.SocketStream] = []

    async def run(self) -> None:
        with self.running:
            await self.gateways.run()

    def port(self, at: int = 0) -> int:
        return self.listeners[at].spec.upstream.port

    def held(self, at: int = 0) -> int:
        return self.gateways.status()[at]["held"]

    def client(self, at: int = 0) -> trio.SocketStream:
        address = self.listeners[at].spec.listen
        # The kernel completes it: a reset that follows at once is not taken for a refusal.
        sock = socket.create_connection((address.host, address.port))
        return self._keep(trio.SocketStream(trio.socket.from_stdlib_socket(sock)))

    async def server(self, at: int = 0) -> trio.SocketStream:
        return self._keep(await self.servers[at].accept())

    async def pair(self, at: int = 0) -> tuple[trio.SocketStream, trio.SocketStream]:
        client = self.client(at)
        return client, await self.server(at)

    def close(self) -> None:
        for stream in self._streams:
            stream.socket.close()

    def _keep(self, stream: trio.SocketStream) -> trio.SocketStream:
        self._streams.append(stream)
        return stream

    async def until_held(self, count: int, at: int = 0) -> None:
        while self.held(at) != count:
            await trio.lowlevel.checkpoint()


@contextlib.asynccontextmanager
async def open_site(drain_s: float = 30.0) -> AsyncIterator[Site]:
    with contextlib.ExitStack() as stack:
        listeners, servers = [], []
        for _ in range(2):
            server = stack.enter_context(open_server())
            sock = stack.enter_context(sockets.open_listener(Address("127.0.0.1", 0)))
            spec = GatewaySpec(address_of(sock), address_of(server), drain_s=drain_s)
            listeners.append(Listener(spec, sock))
            servers.append(trio.SocketListener(trio.socket.from_stdlib_socket(server)))
        site = Site(listeners, servers)
        stack.callback(site.close)
        with trio.fail_after(PATIENCE_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(site.run)
                yield site
                nursery.cancel_scope.cancel()


async def test_a_transaction_holds_drains_and_releases_what_it_concerns() -> None:
    async with open_site(drain_s=0) as site:
        client, server = await site.pair()
        other_client, other_server = await site.pair(1)
        await site.gateways.hold([site.port()])
        late = site.client()
        await late.send_all(b"late")
        await site.until_held(1)
        await site.gateways.drain([site.port()])
        assert site.gateways.status()[0]["connections"] == 0
        with pytest.raises(trio.BrokenResourceError):
            await client.receive_some()
        with pytest.raises(trio.BrokenResourceError):
            await server.receive_some()
        await other_client.send_all(b"untouched")
        assert await other_server.receive_some() == b"untouched"
        site.gateways.release([site.port()])
        late_server = await site.server()
        assert await late_server.receive_some() == b"late"


async def test_a_drain_returns_when_the_last_connection_has_ended() -> None:
    async with open_site() as site, trio.open_nursery() as nursery:
        client, server = await site.pair()
        await client.send_all(b"ask")
        assert await server.receive_some() == b"ask"
        drained = trio.Event()

        async def drain() -> None:
            await site.gateways.drain([site.port()])
            drained.set()

        nursery.start_soon(drain)
        await trio.testing.wait_all_tasks_blocked()
        assert not drained.is_set()
        await server.send_all(b"answer")
        await server.aclose()
        assert await client.receive_some() == b"answer"
        assert await client.receive_some() == b""
        await client.aclose()
        await drained.wait()
        assert site.gateways.status()[0]["reset"] == 0


async def test_the_time_of_a_drain_runs_while_nothing_happens() -> None:
    async with open_site(drain_s=0.05) as site:
        client, server = await site.pair()
        await client.send_all(b"ask")
        assert await server.receive_some() == b"ask"
        await site.gateways.drain([site.port()])
        with pytest.raises(trio.BrokenResourceError):
            await client.receive_some()


async def test_a_cancelled_drain_and_a_release_leave_the_rest_in_peace() -> None:
    async with open_site() as site:
        client, server = await site.pair()
        with trio.move_on_after(0.01) as scope:
            await site.gateways.drain([site.port()])
        assert scope.cancelled_caught
        site.gateways.release([site.port()])
        await client.send_all(b"still here")
        assert await server.receive_some() == b"still here"


class Endless:
    """Work that is never done."""

    queued = False

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def pump(self) -> None:
        self.engine.put_off(self)


async def test_other_tasks_run_while_the_engine_has_no_rest() -> None:
    async with open_site() as site:
        client, server = await site.pair()
        site.gateways._engine.put_off(Endless(site.gateways._engine))
        await client.send_all(b"between")
        assert await server.receive_some() == b"between"
        for _ in range(100):
            await trio.lowlevel.checkpoint()


async def test_bulk_passes_whole() -> None:
    async with open_site() as site, trio.open_nursery() as nursery:
        client, server = await site.pair()
        nursery.start_soon(send_all_and_close, server, bytes(16 * MIB))
        got = 0
        while piece := await client.receive_some(MIB):
            got += len(piece)
        assert got == 16 * MIB


async def send_all_and_close(stream: trio.SocketStream, data: bytes) -> None:
    await stream.send_all(data)
    await stream.aclose()


async def test_an_expected_upstream_is_waited_for() -> None:
    async with open_site() as site:
        site.gateways.expect()
        site.servers[1].socket.close()
        client = site.client(1)
        await site.until_held(1, at=1)
        site.gateways.settle()
        with pytest.raises(trio.BrokenResourceError):
            await client.receive_some()
        assert site.gateways.status()[1]["refused"] == 1


async def test_leaving_resets_every_connection() -> None:
    async with open_site() as site:
        client, _ = await site.pair()
        await site.gateways.hold([site.port()])
        waiting = site.client()
        await site.until_held(1)
        site.running.cancel()
        for stream in (client, waiting):
            with pytest.raises(trio.BrokenResourceError):
                await stream.receive_some()


async def test_a_new_declaration_keeps_what_it_does_not_concern() -> None:
    async with open_site() as site:
        client, server = await site.pair()
        gone, _ = await site.pair(1)
        narrowed = replace(site.listeners[0].spec, allow=("10.0.0.0/8",))
        site.gateways.serve([Listener(narrowed, site.listeners[0].sock)])
        with pytest.raises(trio.BrokenResourceError):
            await gone.receive_some()
        await client.send_all(b"still here")
        assert await server.receive_some() == b"still here"
        late = site.client()
        with pytest.raises(trio.BrokenResourceError):
            await late.receive_some()
        (status,) = site.gateways.status()
        assert (status["total"], status["refused"]) == (2, 1)


async def test_a_gateway_added_while_upstreams_are_expected_expects_its_own() -> None:
    async with open_site() as site:
        site.gateways.serve(site.listeners[:1])
        site.gateways.expect()
        site.gateways.serve(site.listeners)
        assert [status["mode"] for status in site.gateways.status()] == ["expecting", "expecting"]


def test_a_handed_over_socket_stays_open_after_all() -> None:
    with open_server() as server:
        sock = socket.create_server(("127.0.0.1", 0))
        sock.settimeout(0)
        spec = GatewaySpec(address_of(sock), address_of(server))

        async def serve_for_a_moment() -> None:
            gateways = Gateways([Listener(spec, sock)])
            with trio.move_on_after(0.01):
                await gateways.run()

        trio.run(serve_for_a_moment)
        with sock, socket.create_connection(sock.getsockname()):
            pass
