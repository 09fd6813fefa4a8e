"""What the agent answers: its routes, and the limits on what it is asked."""

from __future__ import annotations

import json
import time
from contextlib import aclosing
from typing import Any

import trio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from lumbridge_compute import __version__
from lumbridge_compute.control.board import Board
from lumbridge_compute.control.lines import LineStream, Write
from lumbridge_compute.control.orders import Orders, read_order
from lumbridge_compute.control.protocol import (
    FRESH_S,
    MAX_BODY_BYTES,
    ORDER_HEADER,
    PROTOCOL,
    PROTOCOL_HEADER,
    VERSION_HEADER,
)
from lumbridge_compute.control.wire import WireError, to_plain
from lumbridge_compute.effects import HISTORY_FILE
from lumbridge_compute.resident.view import Resident
from lumbridge_compute.store.history import history_document, parse_history

BODY_S = 10.0
"""How long a client may take to say what it wants."""

_HEADERS = {VERSION_HEADER: __version__, PROTOCOL_HEADER: str(PROTOCOL)}
_MOST_LINES = 10_000
_LOOK_HINT = "free the descriptors and memory that it needs, then ask again"
_HINT = "the requests are those of lumbridge_compute.client"


def make_app(resident: Resident) -> Starlette:
    """The application that answers for `resident`."""
    views = _Views(resident)
    return Starlette(
        routes=[
            Route("/agent", views.agent),
            Route("/status", views.status),
            Route("/orders", views.order, methods=["POST"]),
            Route("/cancel", views.cancel, methods=["POST"]),
            Route("/history", views.history),
            Route("/events", views.events),
        ],
        exception_handlers={
            HTTPException: _refuse,
            WireError: _refuse_value,
            ClientDisconnect: _let_go,
        },
    )


class _Views:
    """One method for each route."""

    def __init__(self, resident: Resident) -> None:
        self._resident = resident
        self._orders = Orders(resident.transactions)
        self._board = Board(resident.status)

    async def agent(self, _request: Request) -> Response:
        return _json(self._resident.document())

    async def status(self, _request: Request) -> Response:
        """One line, which comes when every model has answered, or has had its time to."""

        async def tell(write: Write) -> None:
            try:
                status = await self._board.read()
            except OSError as error:
                cause = error.strerror or str(error)
                await write({"error": f"cannot look at the node: {cause}", "hint": _LOOK_HINT})
            else:
                await write({"status": status})

        return LineStream(tell, _HEADERS)

    async def order(self, request: Request) -> Response:
        _check_protocol(request)
        body = await _read_body(request)
        order, client_pid = read_order(body)
        _check_fresh(body.get("asked_at_s"))
        number = self._orders.next_number()

        async def tell(write: Write) -> None:
            await self._orders.carry_out(number, order, client_pid, write)

        return LineStream(tell, {**_HEADERS, ORDER_HEADER: str(number)})

    async def cancel(self, request: Request) -> Response:
        _check_protocol(request)
        number = (await _read_body(request)).get("order")
        if number is not None and type(number) is not int:
            raise WireError(f"order wants a number, found {type(number).__name__}")
        return _json({"cancelled": self._orders.cancel(number)})

    async def history(self, request: Request) -> Response:
        text = request.query_params.get("n", "20")
        count = int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else -1
        if not 0 <= count <= _MOST_LINES:
            raise WireError(f"n wants a number from 0 to {_MOST_LINES}, found {text[:20]!r}")
        data = await self._resident.effects.read(HISTORY_FILE)
        entries = parse_history(data or b"")[-count:] if count else ()
        return _json({"entries": [history_document(entry) for entry in entries]})

    async def events(self, _request: Request) -> Response:
        async def tell(write: Write) -> None:
            with self._resident.news.listen() as received:
                async for event in received:
                    await write({"event": to_plain(event)})

        return LineStream(tell, _HEADERS)


def _check_protocol(request: Request) -> None:
    """Nothing is changed for a client that may mean something else by the same words."""
    theirs = request.headers.get(PROTOCOL_HEADER, str(PROTOCOL))
    if theirs != str(PROTOCOL):
        version = request.headers.get(VERSION_HEADER, "unknown")
        raise HTTPException(
            409,
            f"cannot take orders of version {version[:40]}: this agent is {__version__}, and the "
            "two do not speak the same protocol; restart the agent after an upgrade",
        )


def _check_fresh(asked_at_s: object) -> None:
    """Take no order whose client has been told meanwhile that the agent is stuck."""
    # Compared, not subtracted: a whole number may be too large for a float.
    if isinstance(asked_at_s, int | float) and asked_at_s < time.monotonic() - FRESH_S:
        raise HTTPException(
            408, f"cannot take an order that is more than {FRESH_S:g} s old: repeat it"
        )


async def _read_body(request: Request) -> dict[str, Any]:
    """The JSON object of a request's body, bounded in size and time."""
    data = bytearray()
    with trio.move_on_after(BODY_S) as bound:
        async with aclosing(request.stream()) as chunks:
            async for chunk in chunks:
                data += chunk
                if len(data) > MAX_BODY_BYTES:
                    raise HTTPException(413, f"a request may have {MAX_BODY_BYTES} bytes")
    if bound.cancelled_caught:
        raise HTTPException(408, f"the request did not come within {BODY_S:g} s")
    try:
        body = json.loads(bytes(data) or b"{}", parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise WireError(f"the body is no JSON: {error}") from error
    if not isinstance(body, dict):
        raise WireError(f"the body wants an object, found {type(body).__name__}")
    return body


def _refuse_constant(name: str) -> None:
    """NaN compares with nothing, so no limit would hold.  Source: RFC 8259, section 6."""
    raise ValueError(f"{name} is no number")


def _json(document: object, status: int = 200) -> Response:
    # In ASCII: a text that came as JSON may hold half of a surrogate pair, which is no UTF-8.
    return Response(json.dumps(document), status, headers=_HEADERS, media_type="application/json")


async def _refuse(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - it is registered for them alone
    return _json({"error": error.detail, "hint": _HINT}, error.status_code)


async def _refuse_value(_request: Request, error: Exception) -> Response:
    return _json({"error": f"cannot understand the request: {error}", "hint": _HINT}, 400)


async def _let_go(_request: Request, _error: Exception) -> Response:
    """A client that left before it had said what it wants: nobody reads this."""
    return Response(status_code=400)
