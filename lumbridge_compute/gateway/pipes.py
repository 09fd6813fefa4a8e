"""Pipes through which bulk is spliced from socket to socket without being copied."""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import NamedTuple

from lumbridge_compute.gateway.room import is_for_clients

PIPE_BYTES = 256 * 1024
"""Of 64, 256 and 1024 KiB the one that costs the least time per byte."""

_DEFAULT_BYTES = 64 * 1024
MAX_PIPES = 64
"""Stays within what an unprivileged user may have at this size (pipe-user-pages-soft, 64 MiB for
all of the user's pipes; a pipe beyond is tiny), and bounds what stuck readers can pin."""
_MAX_IDLE = 8


class Pipe(NamedTuple):
    """Both ends, non-blocking."""

    read_end: int
    write_end: int


class PipePool:
    """Lends pipes, empty ones only, and keeps a few of those that come back."""

    def __init__(self, max_pipes: int = MAX_PIPES) -> None:
        """Lend up to `max_pipes` at a time."""
        self._max_pipes = max_pipes
        self._idle: list[Pipe] = []
        self._lent = 0

    def take(self) -> Pipe | None:
        """An empty pipe, to be given back or discarded; None where there is none to be had."""
        if self._idle:
            pipe = self._idle.pop()
        elif self._lent >= self._max_pipes:
            return None
        else:
            made = _make_pipe()
            if made is None:
                return None
            pipe = made
        self._lent += 1
        return pipe

    def give_back(self, pipe: Pipe) -> None:
        """Take back an empty pipe."""
        self._lent -= 1
        if len(self._idle) < _MAX_IDLE:
            self._idle.append(pipe)
        else:
            _close(pipe)

    def discard(self, pipe: Pipe) -> None:
        """Close a lent pipe that still has bytes in it: nobody else may get these."""
        self._lent -= 1
        _close(pipe)

    def close(self) -> None:
        """Close the idle pipes."""
        while self._idle:
            _close(self._idle.pop())


def _make_pipe() -> Pipe | None:
    """None out of descriptors, and where the user has so many pipes that a new one is tiny."""
    try:
        pipe = Pipe(*os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError:
        return None
    if not all(map(is_for_clients, pipe)):
        _close(pipe)
        return None
    with contextlib.suppress(OSError):
        fcntl.fcntl(pipe.write_end, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    if fcntl.fcntl(pipe.write_end, fcntl.F_GETPIPE_SZ) < _DEFAULT_BYTES:
        _close(pipe)
        return None
    return pipe


def _close(pipe: Pipe) -> None:
    os.close(pipe.read_end)
    os.close(pipe.write_end)
