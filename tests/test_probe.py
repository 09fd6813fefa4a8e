"""One exchange with one port: against real sockets, and servers that do their worst."""

from __future__ import annotations

import gzip
import socket
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from lumbridge_compute.core.health import Answer, HealthName, Outcome, Request, judge_marker
from lumbridge_compute.core.registry import Model
from lumbridge_compute.probe import ask

Handler = Callable[[trio.SocketStream], Awaitable[None]]
MIB = 1024 * 1024
OK = b"HTTP/1.1 200 OK\r\n"
LIST = b'{"data": [{"id": "m"}]}'
NO_ANSWER = "it is not HTTP/1.1, or was cut off"
REPO = Path(__file__).resolve().parent.parent


@asynccontextmanager
async def serving(handler: Handler, host: str = "127.0.0.1") -> AsyncIterator[int]:
    """A port on which each connection is given to `handler`, until the block ends."""

    async def tolerant(stream: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError):  # the probe has left, as many tests want
            await handler(stream)

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host=host)
        nursery.start_soon(trio.serve_listeners, tolerant, listeners)
        yield listeners[0].socket.getsockname()[1]
        nursery.cancel_scope.cancel()


@contextmanager
def unserved_port() -> Iterator[int]:
    """A port of 127.0.0.1 that is taken, but on which nobody listens."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


async def read_request(stream: trio.SocketStream) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        data += await stream.receive_some()
    return data


def sends(*pieces: bytes) -> Handler:
    async def handler(stream: trio.SocketStream) -> None:
        await read_request(stream)
        for piece in pieces:
            await stream.send_all(piece)

    return handler


def whole(body: bytes, *headers: bytes, first: bytes = OK) -> bytes:
    lines = b"".join(header + b"\r\n" for header in headers)
    return first + lines + b"Content-Length: %d\r\n\r\n" % len(body) + body


def get(port: int, path: str = "/v1/models", host: str = "127.0.0.1") -> Request:
    return Request(host, port, path, timeout_s=60.0)


async def answer_to(*pieces: bytes) -> Answer:
    async with serving(sends(*pieces)) as port:
        return await ask(get(port))


async def test_an_answer_comes_back_whole() -> None:
    answer = await answer_to(whole(LIST))
    assert (answer.outcome, answer.status, answer.body) == (Outcome.ANSWERED, 200, LIST)


async def test_bodies_come_in_every_framing() -> None:
    chunked = (
        b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;x=y\r\n world\r\n0\r\nT: t\r\n\r\n"
    )
    assert (await answer_to(OK + chunked)).body == b"hello world"
    assert (await answer_to(b"HTTP/1.0 200 OK\r\n\r\nhello ", b"world")).body == b"hello world"
    assert (await answer_to(b"HTTP/1.1 100 Continue\r\n\r\n" + whole(LIST))).body == LIST
    no_content = await answer_to(b"HTTP/1.1 204 No Content\r\n\r\n")
    assert (no_content.status, no_content.body) == (204, b"")


async def test_nobody_listening_is_refused() -> None:
    with unserved_port() as port:
        assert (await ask(get(port))).outcome is Outcome.REFUSED


async def test_each_family_is_an_address_of_its_own() -> None:
    """A server on the IPv6 `localhost` alone is not found on the IPv4 one."""
    try:
        async with serving(sends(whole(LIST)), host="::1") as port:
            assert (await ask(get(port, host="::1"))).status == 200
            assert (await ask(get(port))).outcome is Outcome.REFUSED
    except OSError:
        pytest.skip("no IPv6 on this machine")


async def test_no_name_is_looked_up() -> None:
    async with serving(sends(whole(LIST))) as port:
        answer = await ask(get(port, host="localhost"))
    assert (answer.outcome, answer.reason) == (
        Outcome.FAILED,
        "'localhost' is not a literal address",
    )


async def test_a_proxy_in_the_environment_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    with unserved_port() as nowhere:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "https_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{nowhere}")
        monkeypatch.delenv("no_proxy", raising=False)
        assert (await answer_to(whole(LIST))).status == 200


async def test_a_redirect_is_not_followed() -> None:
    visits = []

    async def elsewhere(stream: trio.SocketStream) -> None:
        visits.append(await read_request(stream))
        await stream.send_all(whole(LIST))

    async with serving(elsewhere) as port:
        target = b"Location: http://127.0.0.1:%d/?token=sesame" % port
        answer = await answer_to(whole(b"", target, first=b"HTTP/1.1 302 Found\r\n"))
    assert (answer.outcome, answer.status, answer.reason) == (Outcome.ANSWERED, 302, "")
    assert visits == []
    health = judge_marker(Model("m", ("m",), 1, "m"), answer)
    assert health.name is HealthName.MALFORMED
    assert "sesame" not in repr(health)


async def test_a_silent_server_is_told_from_one_that_is_absent(
    mock_clock: trio.testing.MockClock,
) -> None:
    async def silent(stream: trio.SocketStream) -> None:
        await read_request(stream)
        mock_clock.jump(60.0)
        await trio.sleep_forever()

    async with serving(silent) as port:
        answer = await ask(get(port))
    assert (answer.outcome, answer.reason) == (Outcome.SILENT, "within 60 s")


async def test_a_server_that_does_not_even_accept_is_silent(
    mock_clock: trio.testing.MockClock,
) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        async with trio.open_nursery() as nursery:
            answers: list[Answer] = []
            nursery.start_soon(_keep, answers, get(listener.getsockname()[1]))
            await trio.testing.wait_all_tasks_blocked()
            mock_clock.jump(60.0)
    assert answers[0].outcome is Outcome.SILENT


async def test_a_full_queue_is_no_accepted_connection(
    mock_clock: trio.testing.MockClock,
) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        crowd = [socket.socket() for _ in range(4)]
        for one in crowd:
            one.settimeout(0)
            one.connect_ex(("127.0.0.1", port))
        async with trio.open_nursery() as nursery:
            answers: list[Answer] = []
            nursery.start_soon(_keep, answers, get(port))
            await trio.testing.wait_all_tasks_blocked()
            mock_clock.jump(60.0)
        for one in crowd:
            one.close()
    assert (answers[0].outcome, answers[0].reason) == (Outcome.QUEUED, "within 60 s")


async def _keep(answers: list[Answer], request: Request) -> None:
    answers.append(await ask(request))


@pytest.mark.parametrize("start", [b"", OK, whole(b"")[:-2] + b"X: ", b"HTTP/1.1 100 Go\r\n\r\n"])
async def test_a_drip_does_not_outlast_the_time(
    start: bytes, mock_clock: trio.testing.MockClock
) -> None:
    sent = 0

    async def drip(stream: trio.SocketStream) -> None:
        nonlocal sent
        await read_request(stream)
        await stream.send_all(start or OK + b"Content-Length: 500000\r\n\r\n")
        while True:
            await stream.send_all(b"H")
            sent += 1
            mock_clock.jump(7.0)
            await trio.testing.wait_all_tasks_blocked()

    async with serving(drip) as port:
        answer = await ask(get(port))
    assert answer.outcome is Outcome.SILENT
    assert sent == 9


async def test_one_mebibyte_is_read_and_no_byte_more() -> None:
    fits = await answer_to(whole(b"x" * MIB))
    assert (fits.outcome, len(fits.body)) == (Outcome.ANSWERED, MIB)
    too_large = await answer_to(whole(b"x" * (MIB + 1)))
    assert (too_large.outcome, too_large.reason, too_large.body) == (
        Outcome.MALFORMED,
        "it is larger than 1 MiB",
        b"",
    )


@pytest.mark.parametrize(
    "piece",
    [
        b"Content-Length: 5000000\r\n\r\n" + b"x" * MIB,
        b"\r\n" + b"x" * MIB,
        b"Transfer-Encoding: chunked\r\n\r\n" + b"10000\r\n" + b"x" * 65536 + b"\r\n",
    ],
    ids=["sized", "until closed", "chunked"],
)
async def test_an_endless_body_is_left_at_once(piece: bytes) -> None:
    head, _, again = piece.partition(b"\r\n\r\n")
    sent = 0

    async def endless(stream: trio.SocketStream) -> None:
        nonlocal sent
        await read_request(stream)
        await stream.send_all(OK + head + b"\r\n\r\n")
        while sent < 50 * MIB:
            await stream.send_all(again)
            sent += len(again)

    async with serving(endless) as port:
        answer = await ask(get(port))
    assert (answer.outcome, answer.reason) == (Outcome.MALFORMED, "it is larger than 1 MiB")
    assert sent < 50 * MIB


async def test_an_endless_head_is_no_answer() -> None:
    async def endless(stream: trio.SocketStream) -> None:
        await read_request(stream)
        await stream.send_all(OK)
        while True:
            await stream.send_all(b"X-Padding: " + b"x" * 1000 + b"\r\n")

    async with serving(endless) as port:
        assert (await ask(get(port))).outcome is Outcome.MALFORMED


@pytest.mark.parametrize(
    ("head", "again"),
    [
        (b"", b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" * 100),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n" * 1000),
    ],
    ids=["interim answers", "tiny chunks"],
)
async def test_what_never_ends_is_left_in_time(head: bytes, again: bytes) -> None:
    async def endless(stream: trio.SocketStream) -> None:
        await read_request(stream)
        await stream.send_all(head)
        while True:
            await stream.send_all(again)

    async with serving(endless) as port:
        answer = await ask(Request("127.0.0.1", port, "/", timeout_s=0.2))
    assert answer.outcome is Outcome.SILENT


async def test_an_error_is_told_by_its_head_however_large_its_page() -> None:
    head = b"HTTP/1.1 404 Not Found\r\nContent-Length: 90000000\r\n\r\n"
    answer = await answer_to(head, b"x" * 1000)
    assert (answer.outcome, answer.status, answer.body) == (Outcome.ANSWERED, 404, b"")


async def test_compression_is_neither_asked_for_nor_undone() -> None:
    bomb = gzip.compress(b"\0" * 50 * MIB)
    seen = []

    async def compressing(stream: trio.SocketStream) -> None:
        seen.append(await read_request(stream))
        await stream.send_all(whole(bomb, b"Content-Encoding: gzip"))

    async with serving(compressing) as port:
        answer = await ask(get(port))
    assert answer.outcome is Outcome.MALFORMED
    assert "compressed" in answer.reason
    assert b"accept-encoding: identity\r\n" in seen[0].lower()
    assert (await answer_to(whole(LIST, b"Content-Encoding: identity"))).body == LIST


@pytest.mark.parametrize(
    ("pieces", "outcome", "reason"),
    [
        ((), Outcome.FAILED, "the connection was closed without an answer"),
        ((b"SSH-2.0-OpenSSH_9.2\r\n",), Outcome.MALFORMED, NO_ANSWER),
        ((b"\x15\x03\x01\x00\x02\x02\x46",), Outcome.MALFORMED, NO_ANSWER),
        ((b"<html>HTTP/0.9</html>\n",), Outcome.MALFORMED, NO_ANSWER),
        ((OK,), Outcome.MALFORMED, NO_ANSWER),
        ((whole(LIST)[:-1],), Outcome.MALFORMED, NO_ANSWER),
        ((OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",), Outcome.MALFORMED, NO_ANSWER),
        ((OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",), Outcome.MALFORMED, NO_ANSWER),
        ((OK + b"Broken header\r\n\r\n",), Outcome.MALFORMED, NO_ANSWER),
        ((b"HTTP/1.1 101 Switching\r\n\r\n",), Outcome.MALFORMED, NO_ANSWER),
        ((OK + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n",), Outcome.MALFORMED, NO_ANSWER),
        ((b"\0" * 200_000,), Outcome.MALFORMED, NO_ANSWER),
    ],
)
async def test_what_is_no_answer_has_a_name(
    pieces: tuple[bytes, ...], outcome: Outcome, reason: str
) -> None:
    answer = await answer_to(*pieces)
    assert answer.outcome is outcome
    assert answer.reason == reason


async def test_a_server_that_speaks_first_and_then_waits_is_no_busy_one() -> None:
    async def banner(stream: trio.SocketStream) -> None:
        await stream.send_all(b"220 mail.example ESMTP\r\n")
        await trio.sleep_forever()

    async with serving(banner) as port:
        answer = await ask(get(port))
    assert (answer.outcome, answer.reason) == (Outcome.MALFORMED, NO_ANSWER)


@pytest.mark.parametrize(
    ("sent", "outcome"), [(b"", Outcome.FAILED), (whole(LIST)[:-3], Outcome.MALFORMED)]
)
async def test_a_reset_is_no_answer(sent: bytes, outcome: Outcome) -> None:
    async def reset(stream: trio.SocketStream) -> None:
        await read_request(stream)
        if sent:
            await stream.send_all(sent)
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    async with serving(reset) as port:
        assert (await ask(get(port))).outcome is outcome


# httpx leaves its own iterator over the question half way when the server stops reading.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_an_early_answer_to_a_large_question_is_read() -> None:
    async def hasty(stream: trio.SocketStream) -> None:
        await stream.send_all(whole(b"", first=b"HTTP/1.1 413 Too Large\r\n"))

    async with serving(hasty) as port:
        request = Request("127.0.0.1", port, "/", body=b"x" * 20 * MIB, timeout_s=60.0)
        answer = await ask(request)
    # The kernel may drop the answer when it resets a connection that still had data to read.
    assert (answer.outcome, answer.status) in (
        (Outcome.ANSWERED, 413),
        (Outcome.FAILED, 0),
    )


async def test_cancelling_closes_the_connection() -> None:
    accepted, left = trio.Event(), trio.Event()

    async def watch(stream: trio.SocketStream) -> None:
        await read_request(stream)
        accepted.set()
        assert await stream.receive_some() == b""
        left.set()

    async with serving(watch) as port, trio.open_nursery() as nursery:
        nursery.start_soon(ask, get(port))
        await accepted.wait()
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True), trio.fail_after(60):
            await left.wait()


async def _question(request: Request) -> bytes:
    """What the server reads of `request`, whose port is filled in."""
    seen: list[bytes] = []

    async def record(stream: trio.SocketStream) -> None:
        data = await read_request(stream)
        while len(data.partition(b"\r\n\r\n")[2]) < len(request.body or b""):
            data += await stream.receive_some()
        seen.append(data)
        await stream.send_all(whole(LIST))

    async with serving(record) as port:
        answer = await ask(
            Request("127.0.0.1", port, request.path, request.headers, request.body, 60.0)
        )
    assert answer.status == 200
    return seen[0].replace(b":%d\r\n" % port, b":PORT\r\n")


async def test_a_question_is_short_and_asks_for_no_second() -> None:
    question = await _question(Request("127.0.0.1", 0, "/v1/models"))
    assert question == (
        b"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\naccept: application/json, */*\r\n"
        b"user-agent: lumbridge-compute\r\nconnection: close\r\naccept-encoding: identity\r\n\r\n"
    )


async def test_a_body_is_posted_as_json() -> None:
    question = await _question(Request("127.0.0.1", 0, "/v1/completions", body=b'{"n": 1}'))
    head, _, body = question.partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/completions HTTP/1.1\r\n")
    assert b"content-type: application/json\r\n" in head
    assert head.endswith(b"Content-Length: 8")
    assert body == b'{"n": 1}'


async def test_headers_of_the_registry_are_sent_but_can_not_bend_the_exchange() -> None:
    headers = (
        ("Authorization", "Bearer k\u00e9y"),
        ("Host", "voice.example"),
        ("Accept-Encoding", "gzip"),
        ("Connection", "keep-alive"),
    )
    question = await _question(Request("127.0.0.1", 0, "/", headers))
    assert "Authorization: Bearer k\u00e9y\r\n".encode() in question
    assert question.count(b"ost: ") == 1
    assert b"Host: voice.example\r\n" in question
    assert b"gzip" not in question
    assert b"keep-alive" not in question


async def test_a_path_is_sent_in_visible_ascii() -> None:
    question = await _question(Request("127.0.0.1", 0, "/a b/\u00fc?x=%20\r\nX: y"))
    assert question.startswith(b"GET /a%20b/%C3%BC?x=%20%0D%0AX:%20y HTTP/1.1\r\n")


@pytest.mark.parametrize("value", ["sesame\n", "sesame\r\nX: y", "se\0same"])
async def test_a_header_that_http_can_not_carry_is_not_sent_and_not_shown(value: str) -> None:
    visits = []

    async def record(stream: trio.SocketStream) -> None:
        visits.append(await read_request(stream))

    async with serving(record) as port:
        answer = await ask(Request("127.0.0.1", port, "/", (("Authorization", value),)))
    assert (answer.outcome, answer.reason) == (
        Outcome.FAILED,
        "HTTP can't carry one of its headers",
    )
    assert visits == []


async def test_a_key_of_any_bytes_is_sent_as_it_is() -> None:
    """The environment may hold bytes that are no UTF-8; Python shows them as surrogates."""
    question = await _question(Request("127.0.0.1", 0, "/", (("X-Key", "a\udcffb"),)))
    assert b"X-Key: a\xffb\r\n" in question


SELF_CONNECT = """
import fcntl, socket, struct, sys, trio
from lumbridge_compute.core.health import Request
from lumbridge_compute.probe import ask
with socket.socket() as any_socket:
    up = struct.pack("16sh14x", b"lo", 1)  # IFF_UP
    fcntl.ioctl(any_socket, 0x8914, up)  # SIOCSIFFLAGS
with open("/proc/sys/net/ipv4/ip_local_port_range", "w") as file:
    file.write("40001 40001")
print(trio.run(ask, Request(sys.argv[1], 40001, "/")).outcome)
"""


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::1"])
def test_a_connection_to_itself_is_told_from_a_server(host: str) -> None:
    """In a network of its own with one ephemeral port, every connection to it meets itself."""
    apart = ["unshare", "--user", "--map-root-user", "--net"]
    command = [*apart, sys.executable, "-c", SELF_CONNECT, host]
    done = subprocess.run(command, capture_output=True, text=True, cwd=REPO, check=False)
    if "unshare" in done.stderr or "Operation not permitted" in done.stderr:
        pytest.skip("no namespaces for us on this machine")
    assert done.stdout == "self\n", done.stderr


@given(
    st.lists(st.binary(min_size=1, max_size=30), max_size=6),
    st.sampled_from([b"", OK, OK + b"\r\n", whole(b"hello"), OK + b"Transfer-Encoding: chunked"]),
)
@settings(max_examples=50)
def test_no_bytes_make_a_probe_raise(pieces: list[bytes], start: bytes) -> None:
    answer = trio.run(answer_to, start, *pieces)
    assert answer.outcome in (Outcome.ANSWERED, Outcome.MALFORMED, Outcome.FAILED)
