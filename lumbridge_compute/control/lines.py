"""A response of JSON lines that goes on for as long as there is something to tell."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping

import trio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from lumbridge_compute.control.protocol import PULSE_S

Write = Callable[[Mapping[str, object]], Awaitable[None]]
Tell = Callable[[Write], Awaitable[None]]


class LineStream(Response):
    """Lines as `tell` writes them, and an empty one when it has been silent for a while.

    When the client leaves, `tell` is cancelled.
    """

    media_type = "application/jsonl"

    def __init__(
        self, tell: Callable[[Write], Awaitable[None]], headers: Mapping[str, str]
    ) -> None:
        super().__init__(headers=headers)
        del self.headers["content-length"]
        self._tell = tell

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        await send(
            {"type": "http.response.start", "status": 200, "headers": self.raw_headers},
        )

        async def write(document: Mapping[str, object]) -> None:
            await _send_body(send, json.dumps(document, separators=(",", ":")).encode() + b"\n")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(_leave_with_client, receive, nursery.cancel_scope)
            nursery.start_soon(_pulse, send)
            await self._tell(write)
            nursery.cancel_scope.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _leave_with_client(receive: Receive, scope: trio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


async def _pulse(send: Send) -> None:
    while True:
        await trio.sleep(PULSE_S)
        await _send_body(send, b"\n")


async def _send_body(send: Send, data: bytes) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": True})
