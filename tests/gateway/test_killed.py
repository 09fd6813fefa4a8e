"""A gateway whose process is killed: a stream that it cuts never looks whole."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway.rig import PATIENCE_S, open_server

PROGRAM = Path(__file__).with_name("served.py")
ROOT = Path(__file__).parents[2]


class Served:
    """A gateway in a process of its own, and the server behind it."""

    def __init__(self, process: subprocess.Popen[str], upstream: socket.socket) -> None:
        assert process.stdout is not None
        self.process = process
        self.upstream = upstream
        self.port = int(process.stdout.readline())

    def pair(self) -> tuple[socket.socket, socket.socket]:
        client = socket.create_connection(("127.0.0.1", self.port), PATIENCE_S)
        server, _ = self.upstream.accept()
        server.settimeout(PATIENCE_S)
        return client, server


@pytest.fixture
def served() -> Iterator[Served]:
    with open_server() as upstream:
        upstream.settimeout(PATIENCE_S)
        port = str(upstream.getsockname()[1])
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), port],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            text=True,
        )
        with process:
            try:
                yield Served(process, upstream)
            finally:
                process.kill()


def read_all(sock: socket.socket) -> int:
    """Read to the end, which is to be a reset; the bytes before it."""
    count = 0
    try:
        while piece := sock.recv(1 << 20):
            count += len(piece)
    except ConnectionResetError:
        return count
    pytest.fail(f"a clean end after {count} bytes")


def test_all_peers_of_a_killed_gateway_see_a_reset(served: Served) -> None:
    idle = served.pair()
    half_closed = served.pair()
    bulk = served.pair()
    with idle[0], idle[1], half_closed[0], half_closed[1], bulk[0], bulk[1]:
        half_closed[0].shutdown(socket.SHUT_WR)
        assert half_closed[1].recv(1) == b""
        bulk[1].settimeout(0)
        sent = 0
        while sent < 64 << 20:
            try:
                sent += bulk[1].send(bytes(1 << 20))
            except BlockingIOError:
                break
        bulk[1].settimeout(PATIENCE_S)
        bulk[0].recv(1)
        served.process.kill()
        served.process.wait()
        assert read_all(bulk[0]) < sent
        for sock in (*idle, half_closed[0], bulk[1]):
            read_all(sock)
