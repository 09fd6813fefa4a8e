"""Switches through the resident agent, with a streaming client: overhead, and how streams end."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import trio
from startup import COMMAND, Node, free_port, own_time_s

from lumbridge_compute.client import NoAgent
from lumbridge_compute.client import Node as Client

BOUND_S = 20.0
_BODY = b'{"stream": true, "messages": [], "max_tokens": 20}'
_QUESTION = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(_BODY), _BODY)
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--switches", type=int, default=10, help="(default: 10)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        node = Node(Path(folder))
        gateway = free_port()
        upstream = node.ports[0]
        share_port(node, upstream)
        relay = ["--listen", f"127.0.0.1:{gateway}", "--upstream", f"127.0.0.1:{upstream}"]
        agent = subprocess.Popen(
            [*COMMAND, "--root", folder, "agent", *relay], stderr=subprocess.DEVNULL
        )
        try:
            return trio.run(measure, node, gateway, options.switches)
        finally:
            agent.terminate()
            agent.wait()
            node.run("scene", "deactivate")


def share_port(node: Node, port: int) -> None:
    """The first model of both Scenes listens where the gateway looks."""
    file = node.root / "compute.yaml"
    file.write_text(file.read_text().replace(f"port: {node.ports[3]}", f"port: {port}"))


async def measure(node: Node, gateway: int, switches: int) -> int:
    client = await connect(node)
    overheads: list[float] = []
    ends: dict[str, int] = {}
    async with client, trio.open_nursery() as nursery:
        await client.activate("day")
        nursery.start_soon(stream, gateway, ends)
        for turn in range(switches):
            own_s = await trio.to_thread.run_sync(own_time_s, node)
            began = time.monotonic()
            outcome = await client.activate("night" if turn % 2 == 0 else "day")
            if not outcome.ok:
                sys.exit(f"cannot measure a switch: {outcome.error}")
            overheads.append(time.monotonic() - began - own_s)
        nursery.cancel_scope.cancel()
    print(
        f"switch of 3 models through the agent, streams running: overhead "
        f"{statistics.median(overheads) * 1000:.0f} ms beyond their own starts and stops "
        f"(worst {max(overheads) * 1000:.0f} ms of {switches}); streams: "
        + ", ".join(f"{count} {end}" for end, count in sorted(ends.items()))
    )
    return 1 if "ended cleanly in the middle" in ends else 0


async def connect(node: Node) -> Client:
    """The client, once the agent answers."""
    with trio.fail_after(BOUND_S):
        while True:
            client = Client(node.root)
            try:
                async with client:
                    await client.agent()
            except NoAgent:
                await trio.sleep(0.05)
            else:
                return Client(node.root)


async def stream(gateway: int, ends: dict[str, int]) -> None:
    """One short stream after another; how each ended."""
    while True:
        end = await one_stream(gateway)
        ends[end] = ends.get(end, 0) + 1


async def one_stream(gateway: int) -> str:
    data = b""
    try:
        async with await trio.open_tcp_stream("127.0.0.1", gateway) as sock:
            await sock.send_all(_QUESTION)
            while not data.endswith(b"\r\n0\r\n\r\n"):
                piece = await sock.receive_some()
                if not piece:
                    return "ended cleanly in the middle"
                data += piece
    except (OSError, trio.BrokenResourceError):
        return "reset"
    return "whole" if b"[DONE]" in data else "ended cleanly in the middle"


if __name__ == "__main__":
    sys.exit(main())
