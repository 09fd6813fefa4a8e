"""Ask one port what it serves: one HTTP/1.1 exchange over a connection of its own.

HTTP is parsed by h11, the parser under httpx, on a bare trio socket: nothing stands between us and
the address, so there is no proxy, redirect, cookie, pool, name lookup, TLS or decompression to
switch off, and a probe costs a quarter of the CPU.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import h11
import trio

from lumbridge_compute.core.health import Answer, Outcome, Request
from lumbridge_compute.core.markers import printable
from lumbridge_compute.core.units import MIB, render_seconds

BODY_LIMIT_BYTES = MIB
HEAD_LIMIT_BYTES = 64 * 1024
PIECE_BYTES = 16 * 1024
"""Read at a time, so that a hostile piece can't keep the loop busy for long."""

OURS = (b"connection", b"accept-encoding", b"content-length", b"transfer-encoding")
"""Headers that belong to the exchange: the registry can't set them."""

_START = b"HTTP/"

TOO_LARGE = Answer(Outcome.MALFORMED, reason="it is larger than 1 MiB")
CUT_OFF = Answer(Outcome.MALFORMED, reason="it was cut off")
NOT_HTTP = Answer(Outcome.MALFORMED, reason="it is not HTTP/1.1")
COMPRESSED = Answer(Outcome.MALFORMED, reason="it is compressed, though that was not asked for")


async def ask(request: Request) -> Answer:
    """The answer to `request`, whatever becomes of it, within `request.timeout_s` seconds.

    The whole exchange has this time: connect, send, and every byte of the answer.  At most 1 MiB
    of body is read, of an answer that is not 2xx none at all.  Nothing of a header's value or of a
    body is in `Answer.reason`.  Raises nothing of its own; cancellation closes the connection.
    """
    try:
        exchange = _Exchange(request)
    except h11.LocalProtocolError:
        return Answer(Outcome.FAILED, reason=_unsendable(request))
    within = render_seconds(request.timeout_s)
    ended = Answer(Outcome.FAILED, reason=f"no connection within {within}")
    with trio.move_on_after(request.timeout_s):
        try:
            with _socket_for(request) as connection:
                await connection.connect((request.host, request.port))
                ended = Answer(Outcome.SILENT, reason=f"within {within}")
                if connection.getsockname() == connection.getpeername():
                    return Answer(Outcome.SELF)
                return await _converse(connection, exchange)
        except ConnectionRefusedError:
            return Answer(Outcome.REFUSED)
        except OSError as error:
            return Answer(Outcome.FAILED, reason=error.strerror or type(error).__name__)
    return ended


def _socket_for(request: Request) -> trio.socket.SocketType:
    """A socket for the literal address; raises OSError when it is none, so no name is looked up."""
    family = trio.socket.AF_INET6 if ":" in request.host else trio.socket.AF_INET
    try:
        trio.socket.inet_pton(family, request.host.partition("%")[0])
    except OSError:
        reason = f"'{printable(request.host)}' is not a literal address"
        raise OSError(None, reason) from None
    return trio.socket.socket(family)


async def _converse(connection: trio.socket.SocketType, exchange: _Exchange) -> Answer:
    # A server may answer and close before it has read all, so the answer is read in any case.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        await _send_all(connection, exchange.question)
    while True:
        try:
            data = await connection.recv(PIECE_BYTES)
        except ConnectionResetError:
            data = b""
        answer = exchange.feed(data)
        if answer is not None:
            return answer


async def _send_all(connection: trio.socket.SocketType, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[await connection.send(view) :]


class _Exchange:
    """One request as bytes, and the bytes of its response turned into an Answer.

    Raises h11.LocalProtocolError for a request that HTTP can't carry.
    """

    def __init__(self, request: Request) -> None:
        parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_LIMIT_BYTES)
        method = "GET" if request.body is None else "POST"
        head = h11.Request(method=method, target=_target(request.path), headers=_headers(request))
        events = (head, h11.Data(request.body or b""), h11.EndOfMessage())
        self.question = b"".join(parser.send(event) or b"" for event in events)
        self._parser = parser
        self._start = b""
        self._received = 0
        self._status = 0
        self._body = bytearray()

    def feed(self, data: bytes) -> Answer | None:
        """`data` is b"" at the end of the connection; None asks for more."""
        if not data and not self._received:
            return Answer(Outcome.FAILED, reason="the connection was closed without an answer")
        self._received += len(data)
        self._start = self._start or data[: len(_START)]
        if not _START.startswith(self._start):
            return NOT_HTTP
        if self._received > BODY_LIMIT_BYTES + HEAD_LIMIT_BYTES:
            return TOO_LARGE
        try:
            self._parser.receive_data(data)
            while (event := self._parser.next_event()) is not h11.NEED_DATA:
                answer = self._take(event)
                if answer is not None:
                    return answer
        except h11.RemoteProtocolError:
            return NOT_HTTP if data else CUT_OFF
        return None

    def _take(self, event: object) -> Answer | None:
        match event:
            case h11.InformationalResponse():
                return None
            case h11.Response():
                self._status = event.status_code
                if not 200 <= self._status < 300:
                    return Answer(Outcome.ANSWERED, self._status)
                return COMPRESSED if _is_compressed(event) else None
            case h11.Data():
                self._body += event.data
                return TOO_LARGE if len(self._body) > BODY_LIMIT_BYTES else None
            case h11.EndOfMessage():
                return Answer(Outcome.ANSWERED, self._status, bytes(self._body))
        return CUT_OFF


def _is_compressed(response: h11.Response) -> bool:
    return any(
        name == b"content-encoding" and value.strip().lower() not in (b"", b"identity")
        for name, value in response.headers
    )


def _headers(request: Request) -> list[tuple[bytes, bytes]]:
    """What the registry gives and what the exchange needs; a default gives way to the registry's.

    Values come from the environment and may be any bytes.
    """
    given = [(_raw(name), _raw(value)) for name, value in request.headers]
    names = {name.lower() for name, _ in given}
    headers = [pair for pair in given if pair[0].lower() not in OURS]
    headers += [pair for pair in _defaults(request) if pair[0] not in names]
    headers += [(b"connection", b"close"), (b"accept-encoding", b"identity")]
    if request.body is not None:
        headers.append((b"content-length", b"%d" % len(request.body)))
    return headers


def _defaults(request: Request) -> Iterator[tuple[bytes, bytes]]:
    host = request.host.partition("%")[0]
    literal = f"[{host}]" if ":" in host else host
    yield b"host", f"{literal}:{request.port}".encode()
    yield b"accept", b"application/json, */*"
    yield b"user-agent", b"lumbridge-compute"
    if request.body is not None:
        yield b"content-type", b"application/json"


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _target(path: str) -> bytes:
    """`path` in visible ASCII, the rest percent-encoded."""
    return "".join(
        chr(byte) if 0x21 <= byte <= 0x7E else f"%{byte:02X}" for byte in _raw(path)
    ).encode()


def _unsendable(request: Request) -> str:
    """Which header HTTP can't carry, by its name alone."""
    for name, value in request.headers:
        headers = [(b"host", b"x"), (_raw(name), _raw(value))]
        try:
            h11.Request(method="GET", target="/", headers=headers)
        except h11.LocalProtocolError:
            return f"HTTP can't carry the header '{printable(name)}'"
    return "HTTP can't carry its path or headers"
