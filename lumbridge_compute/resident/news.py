"""What happens in the agent, for whoever listens: clients of the control socket, the log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import trio

from lumbridge_compute.core.events import Event

_BACKLOG = 1024


class News:
    """Tells each event to every listener; one that does not keep up loses the newest."""

    def __init__(self) -> None:
        self._listeners: set[trio.MemorySendChannel[Event]] = set()

    def tell(self, event: Event) -> None:
        for listener in self._listeners:
            try:
                listener.send_nowait(event)
            except (trio.WouldBlock, trio.BrokenResourceError):
                continue

    @contextmanager
    def listen(self) -> Iterator[trio.MemoryReceiveChannel[Event]]:
        """The events from now on; for as long as the block runs."""
        send, receive = trio.open_memory_channel[Event](_BACKLOG)
        self._listeners.add(send)
        try:
            with send, receive:
                yield receive
        finally:
            self._listeners.discard(send)
