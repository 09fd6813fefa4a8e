"""Clients that stream at the gateway all the while, each a thread, and how their streams ended."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from tests.system.streams import chat, is_whole, models_in

TOKENS = 25
_TURNED_AWAY_S = 0.05
_PATIENCE_S = 60.0
_CUT = "a clean end in the middle"
_MIXED = "two models in one stream"


class Clients:
    """`ends` counts the streams by their end, `faults` are the ends that no stream may have.

    A model that is killed closes its connections in order, and the gateway passes that on: only
    while `killing` may a stream end cleanly in its middle.
    """

    def __init__(self, port: int, count: int) -> None:
        self.ends: Counter[str] = Counter()
        self.faults: list[str] = []
        self._port = port
        self._lock = threading.Lock()
        self._going, self._over = threading.Event(), threading.Event()
        self._deaths, self._killing = 0, False
        self._busy = 0
        self._threads = [threading.Thread(target=self._ask, daemon=True) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    @property
    def busy(self) -> int:
        """How many wait for an answer or read one."""
        with self._lock:
            return self._busy

    def go(self) -> None:
        self._going.set()

    def pause(self) -> None:
        """No new streams; those that run are still to end."""
        self._going.clear()

    def close(self) -> None:
        """End with the streams that run now."""
        self._over.set()
        self._going.set()
        for thread in self._threads:
            thread.join(_PATIENCE_S)

    @contextmanager
    def killing(self) -> Iterator[None]:
        """A model dies in this block, and is dead at its end."""
        with self._lock:
            self._killing = True
        try:
            yield
        finally:
            with self._lock:
                self._killing = False
                self._deaths += 1

    def _ask(self) -> None:
        while self._going.wait() and not self._over.is_set():
            with self._lock:
                self._busy += 1
                deaths = self._deaths
            end, data = self._stream()
            with self._lock:
                self._busy -= 1
                excused = self._killing or self._deaths > deaths
                self._count(end, data, excused=excused)
            if not data:
                self._over.wait(_TURNED_AWAY_S)

    def _stream(self) -> tuple[str, bytes]:
        """How one stream ended, and what came of it."""
        data = bytearray()
        try:
            with socket.create_connection(("127.0.0.1", self._port), _PATIENCE_S) as sock:
                sock.sendall(chat(TOKENS))
                while piece := sock.recv(65536):
                    data += piece
        except ConnectionRefusedError:
            return "refused", b""
        except TimeoutError:
            return f"silent for {_PATIENCE_S:g} s", bytes(data)
        except OSError:
            return "reset", bytes(data)
        return "whole" if is_whole(bytes(data)) else _CUT, bytes(data)

    def _count(self, end: str, data: bytes, *, excused: bool) -> None:
        if len(models_in(data)) > 1:
            end = _MIXED
        if end == _CUT and excused:
            end = "ended with its model"
        self.ends[end] += 1
        if end not in {"whole", "reset", "refused", "ended with its model"}:
            self.faults.append(f"{end}: {data[-200:]!r}")
