"""Ask one port what it serves: one HTTP/1.1 exchange over a connection of its own.

httpx's transport is used without its client, so there is no redirect, proxy, cookie, login or
decompression to switch off.
"""

from __future__ import annotations

import errno
import ipaddress
import ssl
from collections.abc import Mapping
from typing import Any

import httpx
import trio

from lumbridge_compute.core.health import Answer, Outcome, Request
from lumbridge_compute.core.markers import printable
from lumbridge_compute.core.units import MIB, render_seconds

BODY_LIMIT_BYTES = MIB
_OURS = frozenset({errno.EMFILE, errno.ENFILE})

NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Holds no certificates and is never used; without it each transport builds one of its own."""

TOO_LARGE = Answer(Outcome.MALFORMED, reason="it is larger than 1 MiB")
NOT_HTTP = Answer(Outcome.MALFORMED, reason="it is not HTTP/1.1, or was cut off")
COMPRESSED = Answer(Outcome.MALFORMED, reason="it is compressed, though that was not asked for")
CLOSED = Answer(Outcome.FAILED, reason="the connection was closed without an answer")
UNSENDABLE = Answer(Outcome.FAILED, reason="HTTP can't carry one of its headers")


async def ask(request: Request) -> Answer:
    """The answer to `request`, whatever becomes of it, within `request.timeout_s` seconds.

    The whole exchange has this time: connect, send, and every byte of the answer.  At most 1 MiB
    of body is kept, and none is read of an answer that is not 2xx.  Nothing of a header's value or
    of a body is in `Answer.reason`.  Raises OSError where
    we have no descriptor left to ask with, and nothing else; cancellation closes the connection.
    """
    try:
        ipaddress.ip_address(request.host)
    except ValueError:
        reason = f"'{printable(request.host)}' is not a literal address"
        return Answer(Outcome.FAILED, reason=reason)
    with trio.move_on_after(request.timeout_s) as scope:
        exchange = _Exchange(request, scope)
        try:
            async with httpx.AsyncHTTPTransport(verify=NO_TLS, trust_env=False) as transport:
                exchange.result = await exchange.converse(transport)
        except httpx.LocalProtocolError:
            exchange.result = UNSENDABLE
        except httpx.ConnectError:
            pass  # its cause was seen where httpx had not hidden it yet
        except httpx.TransportError:
            exchange.result = NOT_HTTP
        except OSError as error:
            exchange.result = _failed(error)
    return exchange.result


class _Exchange:
    """One exchange; `result` is what it comes to when `scope` is cancelled now.

    It ends early by cancelling `scope`: httpx then closes all that it has open.
    """

    def __init__(self, request: Request, scope: trio.CancelScope) -> None:
        within = render_seconds(request.timeout_s)
        self.result = Answer(Outcome.QUEUED, reason=f"within {within}")
        self._silent = Answer(Outcome.SILENT, reason=f"within {within}")
        self._scope = scope
        self._question = httpx.Request(
            "GET" if request.body is None else "POST",
            httpx.URL(scheme="http", host=request.host, port=request.port),
            headers=_headers(request),
            content=request.body,
            extensions={"target": _target(request.path), "trace": self._watch},
        )

    async def converse(self, transport: httpx.AsyncHTTPTransport) -> Answer:
        response = await transport.handle_async_request(self._question)
        if not response.is_success:
            return Answer(Outcome.ANSWERED, response.status_code)
        if response.headers.get("content-encoding", "").strip().lower() not in ("", "identity"):
            return COMPRESSED
        body = bytearray()
        async for piece in response.aiter_raw():
            body += piece
            if len(body) > BODY_LIMIT_BYTES:
                self._end(TOO_LARGE)  # to break here would leave httpx's generators half way
        await trio.lowlevel.checkpoint()
        return Answer(Outcome.ANSWERED, response.status_code, bytes(body))

    async def _watch(self, event: str, info: Mapping[str, Any]) -> None:
        """How far the exchange is.  Source: httpcore, Request Extensions, "trace"."""
        if event == "connection.connect_tcp.complete":
            self._socket = info["return_value"].get_extra_info("socket")
            self.result = self._silent
        elif event == "connection.connect_tcp.failed" and isinstance(info["exception"], Exception):
            self.result = _failed(info["exception"])
        elif event == "http11.send_request_headers.started":
            if self._socket.getsockname() == self._socket.getpeername():
                self._end(Answer(Outcome.SELF))
        elif event == "http11.receive_response_headers.started":
            # A server that greets first and then waits is none of HTTP, and not busy either.
            start = await self._socket.recv(5, trio.socket.MSG_PEEK)
            if not b"HTTP/".startswith(start):
                self._end(NOT_HTTP)
            elif not start:
                self._end(CLOSED)

    def _end(self, result: Answer) -> None:
        self.result = result
        self._scope.cancel()


def _headers(request: Request) -> httpx.Headers:
    """What the registry gives replaces a default, and never what the exchange needs."""
    headers = httpx.Headers({"accept": "application/json, */*", "user-agent": "lumbridge-compute"})
    if request.body is not None:
        headers["content-type"] = "application/json"
    headers.update([(_raw(name), _raw(value)) for name, value in request.headers])
    headers.update({"connection": "close", "accept-encoding": "identity"})
    return headers


def _raw(text: str) -> bytes:
    """Values come from the environment and may be any bytes."""
    return text.encode("utf-8", "surrogateescape")


def _target(path: str) -> bytes:
    """`path` in visible ASCII, the rest percent-encoded."""
    return b"".join(b"%c" % x if 0x21 <= x <= 0x7E else b"%%%02X" % x for x in _raw(path))


def _failed(error: BaseException) -> Answer:
    while (deeper := error.__cause__) is not None:
        # trio groups what each address of a name came to; here is one address.
        error = deeper.exceptions[0] if isinstance(deeper, ExceptionGroup) else deeper
    if isinstance(error, OSError) and error.errno in _OURS:
        raise error
    if isinstance(error, ConnectionRefusedError):
        return Answer(Outcome.REFUSED)
    return Answer(Outcome.FAILED, reason=getattr(error, "strerror", None) or type(error).__name__)
