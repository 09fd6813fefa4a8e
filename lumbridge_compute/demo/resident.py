"""The tour's resident agent, and the two clients that talk to a model through its gateway."""

from __future__ import annotations

import json
import signal
from contextlib import suppress
from typing import Any

import trio

from lumbridge_compute.client import AgentLost, AgentStuck, NoAgent, Node
from lumbridge_compute.core.documents import AgentDocument, GatewayDocument
from lumbridge_compute.core.health import Request
from lumbridge_compute.core.values import dataclass
from lumbridge_compute.demo.script import check
from lumbridge_compute.demo.stage import HOST, DemoFailed, Stage
from lumbridge_compute.host.pidfd import HeldProcess
from lumbridge_compute.probe import ask

CHAT = "/v1/chat/completions"
_PATIENCE_S = 30.0
_LOOK_S = 0.02
_LAST_CHUNK = b"\r\n0\r\n\r\n"  # RFC 9112, section 7.1
_AWAY = (NoAgent, AgentStuck, AgentLost)


@dataclass(frozen=True, slots=True)
class Resident:
    """An agent with one gateway, on `port`."""

    root: str
    process: HeldProcess
    port: int

    @property
    def pid(self) -> int:
        return self.process.identity.pid

    async def resumed(self) -> AgentDocument:
        """What it tells, once it serves and has done its own resume.  Raises DemoFailed."""
        with trio.move_on_after(_PATIENCE_S):
            while not self.process.ended:
                with suppress(*_AWAY):
                    async with Node(self.root) as node:
                        told = await node.agent()
                    if told["resumed"]:
                        check(told["pid"] == self.pid, f"the agent is pid {told['pid']}")
                        return told
                await trio.sleep(_LOOK_S)
        cause = self.process.exit_cause() or f"it is not ready after {_PATIENCE_S:.0f} s"
        raise DemoFailed(f"cannot go on with the demo: the agent does not serve: {cause}")

    async def leave(self) -> str | None:
        """How it ended after SIGTERM; None when it did not."""
        self.process.signal(signal.SIGTERM)
        with trio.move_on_after(_PATIENCE_S):
            await self.process.wait()
        return self.process.exit_cause()


def start_agent(stage: Stage, port: int, upstream: int) -> Resident:
    """An agent that relays from `port` to `upstream`; it does not serve yet.  Raises OSError."""
    return Resident(stage.root, stage.start_agent(*gateway_words(port, upstream)), port)


def gateway_words(port: int, upstream: int) -> tuple[str, ...]:
    """The agent's arguments."""
    return ("agent", "--listen", f"{HOST}:{port}", "--upstream", f"{HOST}:{upstream}")


class ChatStream:
    """One client that takes an answer token by token."""

    def __init__(self, port: int) -> None:
        self.begun, self.ended = trio.Event(), trio.Event()
        self.tokens = 0
        self.markers: set[str] = set()
        self.whole = self.was_reset = False
        self._port = port
        self._done = False

    async def run(self) -> None:
        """Ask, and read to the end, whatever it is."""
        try:
            async with await trio.open_tcp_stream(HOST, self._port) as stream:
                await stream.send_all(_question(b'{"stream": true}'))
                await self._read(stream)
        except (trio.BrokenResourceError, OSError):
            self.was_reset = True
        finally:
            self.begun.set()
            self.ended.set()

    async def _read(self, stream: trio.SocketStream) -> None:
        kept = last = b""
        async for data in stream:
            last = (last + data)[-len(_LAST_CHUNK) :]
            *lines, kept = (kept + data).split(b"\n")
            for line in lines:
                self._take(line)
        self.whole = self._done and last == _LAST_CHUNK

    def _take(self, line: bytes) -> None:
        prefix, _, event = line.partition(b"data: ")
        if prefix or not event:
            return
        if event == b"[DONE]":
            self._done = True
            return
        self.tokens += 1
        self.markers.add(json.loads(event)["model"])
        self.begun.set()


class LateClient:
    """One client that comes while the gateway holds new ones."""

    def __init__(self, agent: Resident) -> None:
        self.ended = trio.Event()
        self.running = 0
        """Connections that still ran when it came."""
        self.waited_s = 0.0
        self.was_held = False
        self.answer: dict[str, Any] = {}
        self._agent = agent

    async def run(self) -> None:
        """Come in time, ask, and read the answer."""
        async with Node(self._agent.root) as node, trio.open_nursery() as nursery:
            gateway = await _look(node)
            while gateway["mode"] != "holding":
                gateway = await _look(node)
            self.running = gateway["connections"]
            nursery.start_soon(self._ask)
            while not self.was_held and not self.ended.is_set():
                self.was_held = (await _look(node))["held"] > 0

    async def _ask(self) -> None:
        began_s = trio.current_time()
        body = b'{"max_tokens": 4}'
        answer = await ask(Request(HOST, self._agent.port, CHAT, body=body, timeout_s=_PATIENCE_S))
        self.waited_s = trio.current_time() - began_s
        with suppress(ValueError):
            self.answer = json.loads(answer.body)
        self.ended.set()


async def _look(node: Node) -> GatewayDocument:
    await trio.sleep(_LOOK_S)
    return (await node.agent())["gateways"][0]


def _question(body: bytes) -> bytes:
    return b"POST %b HTTP/1.1\r\nhost: %b\r\ncontent-length: %d\r\n\r\n%b" % (
        CHAT.encode(),
        HOST.encode(),
        len(body),
        body,
    )
