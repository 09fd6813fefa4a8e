"""Clients that stream an answer which never ends by itself, through restarts of the gateway."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field

import trio

from tests.systemd.service import eventually

ENDLESS = ("--tokens", "1000000", "--token-delay", "0.02")
_BODY = json.dumps({"stream": True, "prompt": "", "max_tokens": 1_000_000}).encode()
_QUESTION = (
    b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(_BODY), _BODY)
)


@dataclass
class Streams:
    """`resets` counts them for each client; `others` what no client may see: a stream that is
    ended cleanly, a connection that is refused."""

    port: int
    count: int = 10
    resets: Counter[int] = field(default_factory=Counter)
    others: list[str] = field(default_factory=list)
    received: Counter[int] = field(default_factory=Counter)

    async def run(self, until: trio.Event) -> None:
        """Stream until `until`; a client that is reset asks again."""
        async with trio.open_nursery() as nursery:
            for number in range(self.count):
                nursery.start_soon(self._stay, number)
            await until.wait()
            nursery.cancel_scope.cancel()

    async def all_receive(self) -> None:
        """Return when every client has received more."""
        before = Counter(self.received)

        async def more() -> bool:
            return all(self.received[each] > before[each] for each in range(self.count))

        await eventually(more, "each client receives")

    async def _stay(self, number: int) -> None:
        while True:
            try:
                await self._ask(number)
            except ConnectionResetError:
                self.resets[number] += 1
            except OSError as error:
                self.others.append(f"client {number}: {error}")
                return

    async def _ask(self, number: int) -> None:
        with trio.socket.socket() as sock:
            await sock.connect(("127.0.0.1", self.port))
            await sock.send(_QUESTION)
            while part := await sock.recv(65536):
                self.received[number] += len(part)
            self.others.append(f"client {number}: a clean end in the middle")
