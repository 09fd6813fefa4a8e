"""The embedded model server as a process: what it serves, and every way in which it misbehaves."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio

from lumbridge_compute.core.health import HealthName, Request, judge_marker
from lumbridge_compute.core.registry import Model
from lumbridge_compute.probe import ask

REPO = Path(__file__).resolve().parents[2]
PATIENCE_S = 60.0


@dataclass
class Running:
    """One server that has said where it listens."""

    process: subprocess.Popen[str]
    host: str
    port: int

    @property
    def pid(self) -> int:
        return self.process.pid

    def ask(
        self, path: str, *, body: object = None, method: str = "", **headers: str
    ) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE_S)
        try:
            data = None if body is None else json.dumps(body)
            connection.request(method or ("GET" if body is None else "POST"), path, data, headers)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def connect(self) -> socket.socket:
        return socket.create_connection((self.host, self.port), PATIENCE_S)

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def exit_code(self) -> int:
        return self.process.wait(PATIENCE_S)


class Starter:
    """Starts servers, each in a session of its own, and ends every process of theirs."""

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[str]] = []
        self.helpers: list[int] = []

    def spawn(self, *options: str, port: int = 0) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "lumbridge_compute.demo.server", "--marker", "m"]
        process = subprocess.Popen(
            [*command, "--port", str(port), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=REPO,
            start_new_session=True,
        )
        self._processes.append(process)
        return process

    def __call__(self, *options: str, port: int = 0) -> Running:
        process = self.spawn(*options, port=port)
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.fullmatch(r"'m' listens on \[?(.+?)\]?:(\d+)\n", line)
        assert found is not None, line
        return Running(process, found[1], int(found[2]))

    def close(self) -> None:
        for pid in self.helpers:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self._processes:
            process.kill()
            process.communicate()


@pytest.fixture
def start() -> Iterator[Starter]:
    starter = Starter()
    try:
        yield starter
    finally:
        starter.close()


def eventually(condition: Callable[[], bool]) -> None:
    """Wait for something that comes by itself soon, within a bound that only a fault reaches."""
    ends_at_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < ends_at_s, "waited in vain"
        time.sleep(0.002)


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    return [int(child) for child in text.split()]


def signals(pid: int, kind: str) -> int:
    """The mask SigCgt or SigIgn of a process."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(re.findall(rf"^{kind}:\s*(\w+)$", status, re.MULTILINE)[0], 16)


def has_term(mask: int) -> bool:
    return bool(mask & 1 << signal.SIGTERM - 1)


def resident_kib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(re.findall(r"VmRSS:\s*(\d+) kB", status)[0])


def ids(body: bytes) -> list[str]:
    return [entry["id"] for entry in json.loads(body)["data"]]


def test_it_names_its_marker_in_every_form(start: Starter) -> None:
    server = start()
    status, body = server.ask("/v1/models")
    assert (status, ids(body)) == (200, ["m"])
    assert json.loads(server.ask("/info")[1])["voice"] == {"name": "m"}
    assert server.ask("/name") == (200, b"m\n")
    assert server.ask("/health") == (200, b'{"status": "ok"}')
    assert server.ask("/nothing")[0] == 404
    assert server.ask("/v1/models", method="HEAD") == (200, b"")
    assert server.ask("/v1/models", method="DELETE")[0] == 404


def test_it_listens_on_loopback_alone(start: Starter) -> None:
    assert start().host == "127.0.0.1"


def test_it_listens_on_ipv6_when_told(start: Starter) -> None:
    if not socket.has_ipv6 or not Path("/proc/net/if_inet6").exists():
        pytest.skip("no IPv6 on this machine")
    server = start("--host", "::1")
    assert server.host == "::1"
    assert ids(server.ask("/v1/models")[1]) == ["m"]


def test_a_chat_is_answered_whole(start: Starter) -> None:
    server = start("--tokens", "5")
    status, body = server.ask("/v1/chat/completions", body={"model": "m", "messages": []})
    answer = json.loads(body)
    assert status == 200
    assert answer["object"] == "chat.completion"
    assert len(answer["choices"][0]["message"]["content"].split()) == 5
    status, body = server.ask("/v1/completions", body={"prompt": "1", "max_tokens": 1})
    assert (status, json.loads(body)["choices"]) == (200, [{"text": "the "}])


def test_a_chat_is_streamed_token_by_token(start: Starter) -> None:
    server = start("--tokens", "7", "--token-delay", "0")
    status, body = server.ask("/v1/chat/completions", body={"stream": True})
    events = [event.removeprefix(b"data: ") for event in body.split(b"\n\n")]
    assert status == 200
    assert events[-2:] == [b"[DONE]", b""]
    deltas = [json.loads(event)["choices"][0]["delta"]["content"] for event in events[:-2]]
    assert len(deltas) == 7


def test_what_is_no_completion_is_refused(start: Starter) -> None:
    server = start()
    assert server.ask("/v1/chat/completions", body={"model": "other"})[0] == 404
    for body in ([1], "text", {"max_tokens": "many"}, {"max_tokens": 1e999}):
        assert server.ask("/v1/chat/completions", body=body)[0] == 400
    with server.connect() as connection:
        deep = b"[" * 200_000
        head = b"POST /v1/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(deep)
        connection.sendall(head + deep)
        assert connection.recv(99).startswith(b"HTTP/1.1 400 ")
    assert server.ask("/v1/models")[0] == 200


def test_one_connection_serves_many_requests(start: Starter) -> None:
    server = start()
    connection = http.client.HTTPConnection(server.host, server.port, timeout=PATIENCE_S)
    connection.connect()
    first = connection.sock
    for _ in range(3):
        connection.request("GET", "/health")
        assert connection.getresponse().read() == b'{"status": "ok"}'
        assert connection.sock is first
    connection.close()


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"nonsense\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET / HTTP/1.1\r\nbad\r\n\r\n",
        b"x" * 40_000,
        b"POST / HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
)
def test_what_is_no_request_is_refused_and_bounded(start: Starter, request_bytes: bytes) -> None:
    server = start()
    with server.connect() as connection:
        connection.sendall(request_bytes)
        assert connection.recv(99).startswith(b"HTTP/1.1 400 ")
    assert server.ask("/health")[0] == 200


def test_it_reports_another_marker_on_purpose(start: Starter) -> None:
    assert ids(start("--reported-marker", "other").ask("/v1/models")[1]) == ["other"]


def test_it_lists_its_model_while_it_loads(start: Starter) -> None:
    server = start("--loading", "1000")
    assert ids(server.ask("/v1/models")[1]) == ["m"]
    assert server.ask("/health")[0] == 503
    assert server.ask("/v1/completions", body={})[0] == 503


def test_loading_ends(start: Starter) -> None:
    server = start("--loading", "0.05")
    eventually(lambda: server.ask("/health")[0] == 200)


def test_a_shy_server_says_nothing_of_its_model_while_it_loads(start: Starter) -> None:
    server = start("--loading", "1000", "--shy")
    for path in ("/v1/models", "/health", "/info", "/nothing"):
        assert server.ask(path)[0] == 503


def test_a_catch_all_page_answers_where_nothing_is(start: Starter) -> None:
    server = start("--catch-all")
    status, page = server.ask("/health")
    assert (status, page) == server.ask("/nothing")
    assert status == 200
    assert page.startswith(b"<!doctype html>")
    assert ids(server.ask("/v1/models")[1]) == ["m"]


def test_a_server_that_does_one_thing_at_a_time_is_silent_meanwhile(start: Starter) -> None:
    server = start("--one-at-a-time", "--token-delay", "1000")
    with open_stream(server), server.connect() as connection:
        connection.sendall(b"GET /health HTTP/1.0\r\n\r\n")
        connection.settimeout(0.2)
        with pytest.raises(TimeoutError):
            connection.recv(1)
    assert server.ask("/health")[0] == 200


def test_a_port_that_is_bound_early_may_be_taken_meanwhile(start: Starter) -> None:
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        process = start.spawn("--bind-early", "3", port=holder.getsockname()[1])
        assert process.stdout is not None
        assert "does not listen yet" in process.stdout.readline()
        holder.listen()
        assert process.stdout.readline() == "'m' says that it serves, and does not\n"
        assert process.poll() is None


def test_a_port_that_is_bound_early_is_listened_on_later(start: Starter) -> None:
    process = start.spawn("--bind-early", "0.01")
    assert process.stdout is not None
    assert "does not listen yet" in process.stdout.readline()
    assert "listens on" in process.stdout.readline()


def test_answers_can_be_wrong_in_many_ways(start: Starter) -> None:
    assert start("--status", "503").ask("/v1/models")[0] == 503
    assert start("--body", "<html>").ask("/v1/models") == (200, b"<html>")
    assert len(start("--big-body", "5").ask("/v1/models")[1]) > 5 * 1024 * 1024


def test_a_redirect_points_where_told(start: Starter) -> None:
    server = start("--redirect", "http://127.0.0.1:1/v1/models")
    with server.connect() as connection:
        connection.sendall(b"GET /v1/models HTTP/1.0\r\n\r\n")
        head = connection.makefile("rb").read()
    assert head.startswith(b"HTTP/1.1 302 ")
    assert b"location: http://127.0.0.1:1/v1/models\r\n" in head


def test_a_key_is_asked_for_under_v1_alone(start: Starter) -> None:
    server = start("--require-key", "sesame")
    assert server.ask("/v1/models")[0] == 401
    assert server.ask("/v1/models", Authorization="Bearer other")[0] == 401
    assert server.ask("/v1/models", Authorization="Bearer sesame")[0] == 200
    assert server.ask("/health")[0] == 200


def test_a_silent_server_accepts_and_says_nothing(start: Starter) -> None:
    with start("--silent").connect() as connection:
        connection.sendall(b"GET /v1/models HTTP/1.1\r\n\r\n")
        connection.settimeout(0.2)
        with pytest.raises(TimeoutError):
            connection.recv(1)


def test_term_ends_it_with_code_0(start: Starter) -> None:
    server = start("--life", "0")
    server.terminate()
    assert server.exit_code() == 0


def test_interrupt_ends_it_with_code_0(start: Starter) -> None:
    server = start("--ignore-term")
    server.process.send_signal(signal.SIGINT)
    assert server.exit_code() == 0


def test_a_slow_start_listens_late_and_can_be_ended_meanwhile(start: Starter) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        port = holder.getsockname()[1]
    process = start.spawn("--slow-start", "1000", port=port)
    eventually(lambda: has_term(signals(process.pid, "SigCgt")))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), PATIENCE_S)
    process.terminate()
    assert process.wait(PATIENCE_S) == 0
    assert ids(start("--slow-start", "0.01").ask("/v1/models")[1]) == ["m"]


def test_it_dies_when_planned(start: Starter) -> None:
    assert start.spawn("--die-on-start", "3").wait(PATIENCE_S) == 3
    assert start("--die-after", "0.01", "--die-code", "7").exit_code() == 7
    assert start("--life", "0.01").exit_code() == 0


def test_it_ignores_term_when_told(start: Starter) -> None:
    server = start("--ignore-term")
    server.terminate()
    assert server.ask("/health")[0] == 200
    assert server.process.poll() is None


def test_it_loses_the_first_term_alone(start: Starter) -> None:
    server = start("--lose-first-term")
    server.terminate()
    assert server.ask("/health")[0] == 200
    server.terminate()
    assert server.exit_code() == 0


def test_it_ends_late_and_serves_meanwhile(start: Starter) -> None:
    server = start("--term-delay", "0.3")
    asked_s = time.monotonic()
    server.terminate()
    with suppress(OSError):  # on a machine that is busy the delay may be over before
        assert server.ask("/health")[0] == 200
    assert server.exit_code() == 0
    assert time.monotonic() - asked_s >= 0.3


def open_stream(server: Running) -> socket.socket:
    """A stream that has begun and takes for ever."""
    connection = server.connect()
    body = b'{"stream": true}'
    head = b"POST /v1/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body)
    connection.sendall(head + body)
    received = b""
    while b"data: " not in received:
        received += connection.recv(4096)
    return connection


def refuses(server: Running) -> bool:
    try:
        server.connect().close()
    except OSError:
        return True
    return False


def test_an_open_stream_holds_it_until_the_client_closes(start: Starter) -> None:
    server = start("--token-delay", "1000", "--hold-streams", "1000")
    with open_stream(server):
        server.terminate()
        eventually(lambda: refuses(server))
        assert server.process.poll() is None
    assert server.exit_code() == 0


def test_an_open_stream_holds_it_for_its_time_at_most(start: Starter) -> None:
    server = start("--token-delay", "1000", "--hold-streams", "0.01")
    with open_stream(server):
        server.terminate()
        assert server.exit_code() == 0


def test_without_a_stream_nothing_holds_it(start: Starter) -> None:
    server = start("--token-delay", "1000", "--hold-streams", "1000")
    open_stream(server).close()
    server.terminate()
    assert server.exit_code() == 0


def test_helpers_stay_in_the_group_or_leave_the_session(start: Starter) -> None:
    server = start("--child", "--escaped-child", "--ignore-term")
    start.helpers = children(server.pid)
    assert len(start.helpers) == 2
    near, far = start.helpers
    assert os.getpgid(near) == server.pid
    eventually(lambda: os.getsid(far) == far)
    eventually(lambda: all(has_term(signals(pid, "SigIgn")) for pid in start.helpers))


def test_a_helper_outlives_its_server_and_dies_of_term(start: Starter) -> None:
    server = start("--child", "--escaped-child")
    start.helpers = children(server.pid)
    near, far = start.helpers
    eventually(lambda: os.getsid(far) == far)
    server.terminate()
    assert server.exit_code() == 0
    os.kill(near, 0)
    os.kill(far, 0)
    for pid in (near, far):
        os.kill(pid, signal.SIGTERM)
        eventually(lambda pid=pid: is_gone(pid))  # type: ignore[misc]


def is_gone(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return True
    return text.rpartition(")")[2].split()[0] in "ZX"


def test_helpers_hold_no_port(start: Starter) -> None:
    server = start("--child")
    start.helpers = children(server.pid)
    server.terminate()
    assert server.exit_code() == 0
    assert refuses(server)


def test_two_servers_share_a_port_only_when_both_are_told(start: Starter) -> None:
    first = start("--reuse-port")
    start("--reuse-port", port=first.port)
    third = start.spawn(port=first.port)
    assert third.wait(PATIENCE_S) == 1
    assert third.stderr is not None
    assert third.stderr.read() == (
        f"cannot listen on 127.0.0.1 port {first.port}: Address already in use\n"
    )


def test_memory_is_really_taken(start: Starter) -> None:
    assert resident_kib(start("--allocate", "70").pid) > 70 * 1024


def test_a_helper_holds_memory_of_its_own(start: Starter) -> None:
    server = start("--child", "--helper-allocate", "70")
    start.helpers = children(server.pid)
    (helper,) = start.helpers
    eventually(lambda: resident_kib(helper) > 70 * 1024)
    assert resident_kib(server.pid) < 70 * 1024


def test_a_chatty_server_fills_its_log(start: Starter) -> None:
    server = start("--chatty", "8")
    assert server.process.stdout is not None
    lines = [server.process.stdout.readline() for _ in range(5000)]
    assert {len(line) for line in lines} == {100}
    assert lines[4999].startswith("000000004999 chatter")


def test_a_log_that_can_not_be_written_stops_nothing(start: Starter) -> None:
    server = start("--chatty", "1")
    assert server.process.stdout is not None
    server.process.stdout.close()
    for _ in range(3):
        assert server.ask("/health")[0] == 200


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ([], HealthName.EXACT),
        (["--reported-marker", "m2"], HealthName.WRONG_MARKER),
        (["--require-key", "sesame"], HealthName.UNAUTHORIZED),
        (["--status", "503"], HealthName.NOT_READY),
        (["--status", "404"], HealthName.MALFORMED),
        (["--redirect", "http://127.0.0.1:1/"], HealthName.MALFORMED),
        (["--body", "<html>"], HealthName.MALFORMED),
        (["--big-body", "5"], HealthName.MALFORMED),
        (["--silent"], HealthName.BUSY),
    ],
)
def test_each_misbehaviour_is_told_by_its_name(
    start: Starter, options: list[str], name: HealthName
) -> None:
    server = start(*options)
    model = Model("m", ("serve",), server.port, "m")
    within_s = 1.0 if name is HealthName.BUSY else PATIENCE_S
    answer = trio.run(ask, Request(server.host, server.port, "/v1/models", timeout_s=within_s))
    assert judge_marker(model, answer).name is name


@pytest.mark.parametrize(
    "options",
    [["--port", "70000"], ["--port", "x"], ["--status", "99"], ["--slow-start", "-1"], ["--nope"]],
)
def test_bad_usage_is_told(start: Starter, options: list[str]) -> None:
    process = start.spawn(*options)
    assert process.wait(PATIENCE_S) == 2
    assert process.stderr is not None
    assert options[0] in process.stderr.read()


def test_help_names_every_way_to_misbehave(start: Starter) -> None:
    process = start.spawn("--help")
    text, _ = process.communicate()
    assert process.returncode == 0
    for option in ("--lose-first-term", "--hold-streams", "--escaped-child", "--big-body"):
        assert option in text
