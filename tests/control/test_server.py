"""The control socket itself: its limits, its refusals, and clients that behave badly."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing
from trio_util import AsyncValue

from lumbridge_compute.cli.ask_agent import ask_agent
from lumbridge_compute.cli.node import read_status
from lumbridge_compute.client import AgentLost, AgentRefused, NoAgent, Node
from lumbridge_compute.control.protocol import MAX_BODY_BYTES, PROTOCOL_HEADER, SOCKET_NAME
from lumbridge_compute.control.server import MAX_CONNECTIONS, SEND_S, serve_control
from lumbridge_compute.core.events import Event, EventKind, Outcome
from lumbridge_compute.core.registry import Registry
from lumbridge_compute.core.report_status import status_document
from lumbridge_compute.core.site import Site
from lumbridge_compute.core.world import Listener
from lumbridge_compute.errors import Exit, Refused
from lumbridge_compute.gateway.driver import Gateways
from lumbridge_compute.host.lock import AGENT_LOCK_NAME, NodeLock, try_lock
from lumbridge_compute.host_effects import HostEffects
from lumbridge_compute.orders import Command, Order
from lumbridge_compute.orders import Node as OrderNode
from lumbridge_compute.resident.declared import Declared, Overrides
from lumbridge_compute.resident.floor_watch import FloorWatch
from lumbridge_compute.resident.news import News
from lumbridge_compute.resident.transactions import Transactions
from lumbridge_compute.resident.view import Resident

UPGRADE = (
    b"GET /agent HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\n"
    b"Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n"
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A node with an empty registry, whose agent's lock this process holds."""
    (tmp_path / ".kuda").mkdir(mode=0o700)
    return tmp_path


@asynccontextmanager
async def served(
    root: Path,
    *,
    send_s: float = SEND_S,
    effects: HostEffects | None = None,
) -> AsyncIterator[Resident]:
    """A resident agent without the machine's side, at its socket."""
    lock = try_lock(str(root / ".kuda" / AGENT_LOCK_NAME), "agent")
    assert isinstance(lock, NodeLock)
    effects, news = effects or HostEffects(str(root)), News()
    site = Site(str(root), {})
    node = OrderNode(effects, site, lambda: Registry({}, {}), news.tell)
    gateways = Gateways(())
    transactions = Transactions(node, news)
    resident = Resident(
        site,
        lambda: Registry({}, {}),
        effects,
        Declared(lambda: Registry({}, {}), Overrides()),
        gateways,
        FloorWatch(effects, 0),
        transactions,
        news,
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gateways.run)
        nursery.start_soon(transactions.run)
        await nursery.start(partial(serve_control, resident, send_s=send_s))
        yield resident
        nursery.cancel_scope.cancel()
    lock.release()


async def raw(root: Path) -> trio.SocketStream:
    return await trio.open_unix_socket(root / ".kuda" / SOCKET_NAME)


async def exchange(root: Path, request: bytes) -> tuple[int, dict[str, object]]:
    """Status and document of the answer to `request`, sent as it is."""
    async with await raw(root) as stream:
        await stream.send_all(request)
        answer = bytearray()
        while chunk := await stream.receive_some():
            answer += chunk
    head, _, body = bytes(answer).partition(b"\r\n\r\n")
    assert b"server:" not in head.lower()
    return int(head.split()[1]), json.loads(body) if body else {}


def post(path: str, body: bytes, extra: str = "") -> bytes:
    head = f"POST {path} HTTP/1.0\r\nHost: a\r\nContent-Length: {len(body)}\r\n{extra}\r\n"
    return head.encode() + body


async def test_an_order_is_carried_out_and_its_outcome_told(root: Path) -> None:
    async with served(root), Node(root) as node:
        outcome = await node.deactivate()
        assert outcome.ok
        unknown = await node.activate("nowhere")
        assert unknown.exit is Exit.BAD_INPUT
        assert "compute.yaml declares no such Scene" in (unknown.error or "")
        assert (await node.plan("nowhere")).exit is Exit.BAD_INPUT
        assert await node.history(5) == []
        assert (await node.agent())["pid"] == os.getpid()
        assert node.agent_version is not None
        assert await node.cancel() is False
        assert await node.cancel_running() is False


async def test_the_status_is_the_one_that_a_command_shows(root: Path) -> None:
    async with served(root), Node(root) as node:
        (root / "compute.yaml").write_text("version: 1\nmodels: {}\nscenes: {}\n")
        told = await node.status()
        shown = await trio.to_thread.run_sync(lambda: status_document(read_status(str(root), {})))
        told["memory"]["available_bytes"] = shown["memory"]["available_bytes"]
        assert told == shown
        assert told["verdict"] == "idle"
        assert told["agent"]["pid"] == os.getpid()


class Blind(HostEffects):
    """A machine that has no descriptor left to look with."""

    def listeners(
        self, ports: Collection[int], among: Collection[int] | None = None
    ) -> tuple[Listener, ...]:
        raise OSError(24, "Too many open files")


async def test_a_status_that_can_not_be_had_is_refused_with_its_cause(root: Path) -> None:
    async with served(root, effects=Blind(str(root))), Node(root) as node:
        with pytest.raises(AgentRefused, match="cannot look at the node: Too many open files"):
            await node.status()


async def test_the_socket_is_private_and_leaves_with_the_agent(root: Path) -> None:
    path = root / ".kuda" / SOCKET_NAME
    path.write_text("what an earlier agent left")
    async with served(root):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_ISSOCK(path.stat().st_mode)
    assert not path.exists()
    assert os.listdir(root / ".kuda") == [AGENT_LOCK_NAME]
    with pytest.raises(NoAgent):
        async with Node(root):
            pass


async def test_a_folder_in_its_place_is_refused(root: Path) -> None:
    (root / ".kuda" / SOCKET_NAME / "full").mkdir(parents=True)
    with pytest.RaisesGroup(Refused):
        async with served(root):
            pass


@pytest.mark.parametrize(
    ("request_", "status", "said"),
    [
        (post("/orders", b"{"), 400, "no JSON"),
        (post("/orders", b"[1]"), 400, "wants an object"),
        (post("/orders", b'{"command": "dance"}'), 400, "dance"),
        (post("/orders", b"[" * 60_000), 400, "no JSON"),
        (post("/orders", b"{}" + b" " * MAX_BODY_BYTES), 413, "65536 bytes"),
        (post("/orders", b"{}", f"{PROTOCOL_HEADER}: 99\r\n"), 409, "same protocol"),
        (post("/cancel", b'{"order": "all"}'), 400, "wants a number"),
        (post("/orders", b'{"command": "resume", "asked_at_s": -9}'), 408, "s old"),
        (post("/orders", b'{"command": "resume", "asked_at_s": -1%s}' % (b"0" * 400)), 408, "old"),
        (post("/orders", rb'{"command": "resume", "pids": {"\ud800": "x"}}'), 400, "pids.\ud800"),
        (b"GET /history?n=x HTTP/1.0\r\n\r\n", 400, "n wants a number"),
        (b"GET /history?n=99999999 HTTP/1.0\r\n\r\n", 400, "n wants a number"),
        (b"GET /secret HTTP/1.0\r\n\r\n", 404, "Not Found"),
        (b"GET /orders HTTP/1.0\r\n\r\n", 405, "Method Not Allowed"),
    ],
)
async def test_a_bad_request_is_told_what_is_wrong(
    root: Path, request_: bytes, status: int, said: str
) -> None:
    async with served(root):
        found, document = await exchange(root, request_)
        assert found == status
        assert said in str(document["error"])
        assert document["hint"]
        assert await trio.to_thread.run_sync(ask_agent, str(root)) is not None


async def test_noise_ends_its_connection_and_nothing_else(root: Path) -> None:
    async with served(root):
        for noise in (b"\x00" * 100, b"GET " + b"x" * 70_000):
            async with await raw(root) as stream:
                with trio.fail_after(10), suppress(trio.BrokenResourceError):
                    await stream.send_all(noise)
                    while await stream.receive_some():
                        pass
        async with Node(root) as node:
            assert (await node.deactivate()).ok


async def test_a_client_that_leaves_in_the_middle_of_its_request_is_no_fault(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(root):
        async with await raw(root) as stream:
            await stream.send_all(b"POST /orders HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{")
            await stream.send_eof()
            with trio.fail_after(10):
                while await stream.receive_some():
                    pass
        assert await trio.to_thread.run_sync(ask_agent, str(root)) is not None
    assert caplog.records == []


@pytest.mark.parametrize(
    "request_",
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        UPGRADE,
    ],
    ids=["at once", "by upgrade"],
)
async def test_http_2_ends_its_connection_as_a_silent_client_would_keep_its_place(
    root: Path, request_: bytes
) -> None:
    async with served(root):
        async with await raw(root) as stream:
            await stream.send_all(request_)
            with trio.fail_after(10), suppress(trio.BrokenResourceError):
                assert await stream.receive_some() == b""
        assert await trio.to_thread.run_sync(ask_agent, str(root)) is not None


async def test_a_time_that_compares_with_nothing_is_no_time(root: Path) -> None:
    async with served(root):
        status, document = await exchange(
            root, post("/orders", b'{"command": "deactivate", "asked_at_s": NaN}')
        )
    assert status == 400
    assert "NaN is no number" in str(document["error"])


async def test_more_connections_than_allowed_wait_for_a_place(root: Path) -> None:
    async with served(root):
        crowd = [await raw(root) for _ in range(MAX_CONNECTIONS)]
        async with await raw(root) as late:
            await late.send_all(b"GET /agent HTTP/1.0\r\n\r\n")
            with trio.move_on_after(0.2) as patience:
                await late.receive_some()
            assert patience.cancelled_caught
            await crowd.pop().aclose()
            assert (await late.receive_some()).startswith(b"HTTP/1.1 200")
        for stream in crowd:
            await stream.aclose()


async def test_the_version_that_another_protocol_has_is_named(root: Path) -> None:
    async with served(root), Node(root) as node:
        assert node._http is not None
        node._http.headers[PROTOCOL_HEADER] = "99"
        with pytest.raises(AgentRefused, match="restart the agent"):
            await node.deactivate()


class Paused:
    """An order that is under way until told: another process holds the node's lock."""

    def __init__(self, root: Path) -> None:
        lock = try_lock(str(root / ".kuda" / "lock"), "test")
        assert isinstance(lock, NodeLock)
        self.release = lock.release


async def test_a_client_that_leaves_does_not_end_what_has_begun(root: Path) -> None:
    async with served(root) as resident:
        paused = Paused(root)
        async with Node(root) as node, trio.open_nursery() as nursery:
            nursery.start_soon(node.carry_out, Order(Command.DEACTIVATE, wait=True))
            await resident.transactions.running.wait_value(lambda value: value is not None)
            nursery.cancel_scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert resident.transactions.running.value is not None
        paused.release()
        await resident.transactions.finished.wait_value(1)


async def test_its_own_order_is_cancelled_and_no_other(root: Path) -> None:
    async with served(root) as resident, Node(root) as first, Node(root) as second:
        paused = Paused(root)
        outcomes: dict[str, Outcome] = {}
        waits: AsyncValue[int] = AsyncValue(0)
        answered = trio.Event()

        async def give(name: str, node: Node) -> None:
            order = Order(Command.DEACTIVATE, wait=True)
            outcomes[name] = await node.carry_out(order, lambda _: add_one(waits))
            answered.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(give, "first", first)
            await waits.wait_value(1)
            nursery.start_soon(give, "second", second)
            await waits.wait_value(2)
            assert await second.cancel()
            await answered.wait()
            assert outcomes["second"].exit is Exit.INTERRUPTED
            assert resident.transactions.running.value is not None
            paused.release()
        assert outcomes["first"].ok


def add_one(value: AsyncValue[int]) -> None:
    value.value += 1


async def test_events_are_told_to_whoever_listens(root: Path) -> None:
    async with served(root) as resident, Node(root) as node, trio.open_nursery() as nursery:
        heard: list[Event] = []
        begun = trio.Event()

        async def listen() -> None:
            async for event in node.events():
                heard.append(event)
                begun.set()

        nursery.start_soon(listen)
        while not begun.is_set():
            resident.news.tell(Event(EventKind.NOTE, detail="hello"))
            await trio.sleep(0.01)
        assert heard[0] == Event(EventKind.NOTE, detail="hello")
        nursery.cancel_scope.cancel()


async def test_a_client_that_takes_nothing_is_let_go(root: Path) -> None:
    async with served(root, send_s=0.1) as resident, await raw(root) as deaf:
        await deaf.send_all(b"GET /events HTTP/1.1\r\nHost: a\r\n\r\n")
        while not resident.news._listeners:  # noqa: ASYNC110 - it is the server that adds it
            await trio.sleep(0.001)
        big = Event(EventKind.NOTE, detail="x" * 60_000)
        with trio.fail_after(20):
            while resident.news._listeners:
                resident.news.tell(big)
                await trio.sleep(0.01)


async def test_an_agent_that_ends_in_the_middle_is_lost(root: Path) -> None:
    failures: list[AgentLost] = []

    async def give() -> None:
        async with Node(root) as node:
            try:
                await node.deactivate(wait=True)
            except AgentLost as lost:
                failures.append(lost)

    paused = Paused(root)
    async with trio.open_nursery() as nursery, served(root) as resident:
        nursery.start_soon(give)
        await resident.transactions.running.wait_value(lambda value: value is not None)
    assert failures
    paused.release()
