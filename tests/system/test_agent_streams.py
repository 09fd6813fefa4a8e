"""Fifty streams and a bulk transfer through the gateway, while Scenes are switched and back."""

from __future__ import annotations

import threading
from collections import Counter

import pytest
import trio

from tests.system.agent import start_agent
from tests.system.node import SystemNode, free_port
from tests.system.streams import BULK, chat, is_whole, models_in

STREAMS = 50
SWITCHES = ("night", "day")
TOKENS = 40
CHAT = chat(TOKENS)


@pytest.fixture
def gateway(node: SystemNode) -> int:
    """Two Scenes with one streaming model each behind one gateway; the gateway's port."""
    options = ("--token-delay", "0.02", "--tokens", str(TOKENS), "--big-body", "8")
    port = node.model("small", *options)
    node.model("large", *options, port=port)
    node.scene("day", "small")
    node.scene("night", "large")
    listen = free_port()
    node.settings["gateways"] = [
        {"listen": f"127.0.0.1:{listen}", "upstream": f"127.0.0.1:{port}", "drain": "300ms"}
    ]
    # The large answer holds the marker among much else; it is not what is tested here.
    for model in node.models.values():
        model["health"] |= {"path": "/name", "match": "text"}
    node.write()
    return listen


async def exchange(port: int, question: bytes, seen: Counter[str]) -> None:
    """One question on one connection; how it ended, and whose words came."""
    data = bytearray()
    try:
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(question)
            async for piece in stream:
                data += piece
        end = "whole" if is_whole(bytes(data)) else "a clean end in the middle"
    except (OSError, trio.BrokenResourceError):
        end = "reset"
    seen[end if len(models_in(bytes(data))) < 2 else "two models in one connection"] += 1


async def keep_asking(port: int, seen: Counter[str], over: threading.Event) -> None:
    async def client(question: bytes) -> None:
        while not over.is_set():
            await exchange(port, question, seen)

    async with trio.open_nursery() as nursery:
        for _ in range(STREAMS):
            nursery.start_soon(client, CHAT)
        nursery.start_soon(client, BULK)


async def test_every_stream_is_whole_or_reset_and_of_one_model(
    node: SystemNode, gateway: int
) -> None:
    agent = start_agent(node)
    node.ok("scene", "activate", "day")
    seen: Counter[str] = Counter()
    over = threading.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_asking, gateway, seen, over)
        for scene in SWITCHES:
            await trio.to_thread.run_sync(node.ok, "scene", "activate", scene)
        over.set()
    agent.leave()
    assert set(seen) <= {"whole", "reset"}, seen
    assert seen["whole"] > STREAMS, seen
    # At most what ran when a switch cut it: a client that connects meanwhile waits.
    assert seen["reset"] <= len(SWITCHES) * (STREAMS + 1), seen
