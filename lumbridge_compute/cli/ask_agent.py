"""One question to the resident agent, for a command that waits for nothing else.

A client with a loop of its own would cost `status` a third of a second.
"""

from __future__ import annotations

import json
import select
import socket
import time
from contextlib import suppress
from typing import cast

from lumbridge_compute.control.protocol import ANSWER_S, SOCKET_NAME
from lumbridge_compute.core.documents import AgentDocument
from lumbridge_compute.host.files import open_private_folder

_RETRY_S = 0.05
_MOST_BYTES = 1024 * 1024
# With HTTP/1.0 the answer is neither cut into chunks nor followed by another.
_REQUEST = b"GET /agent HTTP/1.0\r\nHost: agent\r\n\r\n"


def ask_agent(root: str) -> AgentDocument | None:
    """What the agent tells of itself; None when it does not within `ANSWER_S`."""
    deadline = time.monotonic() + ANSWER_S
    with suppress(OSError, ValueError), open_private_folder(root) as folder:
        # An agent that has just begun binds its socket in a moment.
        while (sock := _connect(f"/proc/self/fd/{folder}/{SOCKET_NAME}")) is None:
            if time.monotonic() > deadline:
                return None
            select.select([], [], [], _RETRY_S)
        with sock:
            return _parse(_exchange(sock, deadline))
    return None


def _connect(path: str) -> socket.socket | None:
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.settimeout(ANSWER_S)
        sock.connect(path)
    except OSError:
        sock.close()
        return None
    return sock


def _exchange(sock: socket.socket, deadline: float) -> bytes:
    """The whole answer.  Raises OSError when it is late, ValueError when it is too long."""
    sock.sendall(_REQUEST)
    answer = bytearray()
    while True:
        sock.settimeout(max(0.001, deadline - time.monotonic()))
        chunk = sock.recv(65536)
        if not chunk:
            return bytes(answer)
        answer += chunk
        if len(answer) > _MOST_BYTES:
            raise ValueError("the answer is too long")


def _parse(answer: bytes) -> AgentDocument:
    head, _, body = answer.partition(b"\r\n\r\n")
    if head.split(b" ", 2)[1:2] != [b"200"]:
        raise ValueError("the answer is no success")
    return cast("AgentDocument", json.loads(body))
