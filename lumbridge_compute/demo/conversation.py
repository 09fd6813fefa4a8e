"""What the embedded model server answers, over a small HTTP/1.1 of its own.

Requests are bounded: 16 KiB of head, 1 MiB of body, one minute of silence between two.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

HEAD_LIMIT = 16 * 1024
BODY_LIMIT = 1024 * 1024
IDLE_S = 60.0
PAGE = b"<!doctype html><title>Speech</title><p>Say something."
WORDS = ("the", "ferry", "leaves", "at", "dawn", "and", "the", "old", "town", "wakes", "up")
COMPLETIONS = ("/v1/chat/completions", "/v1/completions")
REASONS = {200: "OK", 302: "Found", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found"}


class Host(Protocol):
    """What a conversation needs of its server."""

    @property
    def options(self) -> Any: ...  # noqa: ANN401 - argparse.Namespace has no types
    def stream_opened(self, connection: socket.socket) -> None: ...
    def stream_closed(self, connection: socket.socket) -> None: ...


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def keeps_alive(self) -> bool:
        return self.headers.get("connection", "").lower() != "close"

    def carries(self, key: str) -> bool:
        return self.headers.get("authorization") == f"Bearer {key}"


@dataclass(frozen=True, slots=True)
class Reply:
    """One whole answer, or with `events` a stream of server-sent events instead of `body`."""

    status: int
    body: bytes = b""
    content_type: str = "application/json"
    location: str | None = None
    events: Iterator[bytes] | None = None


class BadRequestError(Exception):
    """A request that can't be read; its text is the answer."""


class Conversation:
    """Answers for one server process; every connection is held in a thread of its own."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._options = host.options
        marker = self._marker = str(self._options.reported_marker or self._options.marker)
        self._loaded_at_s: float = time.monotonic() + self._options.loading
        one_at_a_time = self._options.one_at_a_time
        self._turn = threading.Lock() if one_at_a_time else contextlib.nullcontext()

        self._pages: dict[str, Callable[[], Reply]] = {
            "/v1/models": self._models,
            "/health": self._health,
            "/info": lambda: encode(200, {"model": marker, "voice": {"name": marker}}),
            "/name": lambda: Reply(200, f"{marker}\n".encode(), "text/plain; charset=utf-8"),
        }
        if self._options.catch_all:
            del self._pages["/health"]

    def hold(self, connection: socket.socket, done: Callable[[], None]) -> None:
        """Serve `connection` until either side is done with it, then close it."""
        try:
            with connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.settimeout(IDLE_S)
                self._talk(connection)
        except OSError:
            pass  # the client has left: nobody to tell
        finally:
            done()

    def _talk(self, connection: socket.socket) -> None:
        if self._options.silent:
            connection.settimeout(None)
            while connection.recv(HEAD_LIMIT):
                pass
            return
        buffer = bytearray()
        while True:
            try:
                request = read_request(connection, buffer)
            except BadRequestError as error:
                send_reply(connection, refuse(400, str(error)), keep=False)
                drain(connection)
                return
            if request is None:
                return
            with self._turn:
                reply = self.answer(request)
                if reply.events is not None:
                    self._stream(connection, reply.events)
                    return
                head = request.method == "HEAD"
                send_reply(connection, reply, keep=request.keeps_alive, head=head)
            if not request.keeps_alive:
                return

    def answer(self, request: Request) -> Reply:
        """The reply to one request."""
        path = request.path.partition("?")[0]
        key = self._options.require_key
        if self._options.shy and self._loading:
            return refuse(503, "Loading model")
        if key and path.startswith("/v1/") and not request.carries(key):
            return refuse(401, "this server wants a key")
        if request.method == "POST" and path in COMPLETIONS:
            return self._complete(request.body, chat="chat" in path)
        if request.method in ("GET", "HEAD") and path in self._pages:
            return self._pages[path]()
        if self._options.catch_all:
            return Reply(200, PAGE, "text/html; charset=utf-8")
        return refuse(404, "no such path")

    def _models(self) -> Reply:
        options = self._options
        if options.redirect:
            return Reply(302, location=options.redirect)
        status = options.status or 200
        if options.body is not None:
            return Reply(status, options.body.encode())
        entry = {"id": self._marker, "object": "model", "created": 0, "owned_by": "demo"}
        if options.big_body:
            entry["padding"] = "x" * (options.big_body * 1024 * 1024)
        return encode(status, {"object": "list", "data": [entry]})

    def _health(self) -> Reply:
        if self._loading:
            return refuse(503, "Loading model")
        return encode(200, {"status": "ok"})

    @property
    def _loading(self) -> bool:
        return time.monotonic() < self._loaded_at_s

    def _complete(self, body: bytes, *, chat: bool) -> Reply:
        if self._loading:
            return refuse(503, "Loading model")
        try:
            asked = json.loads(body)
            model = asked.get("model", self._marker)
            count = min(int(asked.get("max_tokens") or 1e9), self._options.tokens)
        except (ValueError, RecursionError, AttributeError, TypeError, OverflowError):
            return refuse(400, "the body is no JSON object of a completion")
        if model != self._marker:
            return refuse(404, "no such model")
        words = [WORDS[number % len(WORDS)] + " " for number in range(count)]
        if asked.get("stream"):
            return Reply(200, events=self._events(words, chat=chat))
        text = "".join(words)
        choice = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
        usage = {"completion_tokens": len(words)}
        return encode(200, {**self._envelope(chat=chat), "choices": [choice], "usage": usage})

    def _events(self, words: list[str], *, chat: bool) -> Iterator[bytes]:
        for word in words:
            choice = {"delta": {"content": word}} if chat else {"text": word}
            chunk = {**self._envelope(chat=chat, chunk=True), "choices": [{"index": 0, **choice}]}
            yield json.dumps(chunk).encode()
        yield b"[DONE]"

    def _envelope(self, *, chat: bool, chunk: bool = False) -> dict[str, object]:
        kind = ("chat.completion" if chat else "text_completion") + (".chunk" if chunk else "")
        return {"id": "demo-1", "object": kind, "model": self._marker}

    def _stream(self, connection: socket.socket, events: Iterator[bytes]) -> None:
        self._host.stream_opened(connection)
        try:
            connection.sendall(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\n"
                b"transfer-encoding: chunked\r\nconnection: close\r\n\r\n"
            )
            for event in events:
                data = b"data: %b\n\n" % event
                connection.sendall(b"%x\r\n%b\r\n" % (len(data), data))
                if client_left(connection, self._options.token_delay):
                    return
            connection.sendall(b"0\r\n\r\n")
        finally:
            self._host.stream_closed(connection)


def drain(connection: socket.socket) -> None:
    """Take in what a client still sends, within bounds: closing on it would reset the connection,
    and the client might lose the answer."""
    connection.shutdown(socket.SHUT_WR)
    connection.settimeout(1.0)
    for _ in range(64):
        if not connection.recv(HEAD_LIMIT):
            return


def client_left(connection: socket.socket, within_s: float) -> bool:
    """Wait `within_s` seconds; True at once when the client closes its side meanwhile."""
    ends_at_s = time.monotonic() + within_s
    while (left_s := ends_at_s - time.monotonic()) > 0:
        if not select.select([connection], [], [], left_s)[0]:
            return False
        if not connection.recv(HEAD_LIMIT):
            return True
    return False


def read_request(connection: socket.socket, buffer: bytearray) -> Request | None:
    """The next request; what follows it stays in `buffer`.  None when the client is done.

    Raises BadRequestError for what is no HTTP/1.1 or is too large.
    """
    while (end := buffer.find(b"\r\n\r\n")) < 0:
        if len(buffer) > HEAD_LIMIT:
            raise BadRequestError("the head is larger than 16 KiB")
        data = connection.recv(HEAD_LIMIT)
        if not data:
            return None
        buffer += data
    method, path, headers = parse_head(bytes(buffer[:end]))
    size = headers.get("content-length", "0")
    if not size.isdecimal() or int(size) > BODY_LIMIT or "transfer-encoding" in headers:
        raise BadRequestError("a body needs a content-length of at most 1 MiB")
    del buffer[: end + 4]
    while len(buffer) < int(size):
        data = connection.recv(HEAD_LIMIT)
        if not data:
            return None
        buffer += data
    body = bytes(buffer[: int(size)])
    del buffer[: int(size)]
    return Request(method, path, headers, body)


def parse_head(head: bytes) -> tuple[str, str, dict[str, str]]:
    """Method, path and headers by lower-case name.  Raises BadRequestError."""
    first, *lines = head.decode("latin-1").split("\r\n")
    parts = first.split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        raise BadRequestError("not a request line of HTTP/1.1")
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise BadRequestError("not a header")
        headers[name.strip().lower()] = value.strip()
    if parts[2] == "HTTP/1.0":
        headers.setdefault("connection", "close")
    return parts[0], parts[1], headers


def encode(status: int, value: object) -> Reply:
    return Reply(status, json.dumps(value).encode())


def refuse(status: int, message: str) -> Reply:
    return encode(status, {"error": {"code": status, "message": message}})


def send_reply(connection: socket.socket, reply: Reply, *, keep: bool, head: bool = False) -> None:
    lines = [
        f"HTTP/1.1 {reply.status} {REASONS.get(reply.status, 'Status')}",
        f"content-type: {reply.content_type}",
        f"content-length: {len(reply.body)}",
        f"connection: {'keep-alive' if keep else 'close'}",
    ]
    if reply.location is not None:
        lines.append(f"location: {reply.location}")
    text = "\r\n".join(lines) + "\r\n\r\n"
    connection.sendall(text.encode("latin-1", "replace") + (b"" if head else reply.body))
