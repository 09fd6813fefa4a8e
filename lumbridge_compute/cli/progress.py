"""Live progress of a transaction on stderr, written by a thread of its own.

A terminal that was stopped with Ctrl-S, or a pipe that nobody empties, must hold up no
transaction: the transaction only puts its events into a queue.
"""

from __future__ import annotations

import queue
import threading
import time
from typing import IO, cast

from lumbridge_compute.cli.streams import Stream
from lumbridge_compute.core.events import Event
from lumbridge_compute.core.report_plan import render_plan
from lumbridge_compute.core.report_progress import Board, fold, render_board, render_event

_REDRAW_S = 0.25
_LAST_WORDS_S = 1.0

_Events = queue.SimpleQueue[tuple[float, Event] | None]


class Progress:
    """Tells a person what goes on.  Close it before the result is written."""

    def __init__(self, stream: Stream, *, live: bool, stamps: bool) -> None:
        self._events: _Events = queue.SimpleQueue()
        self._thread = threading.Thread(
            target=_show, args=(self._events, stream, live, stamps), name="progress", daemon=True
        )
        self._thread.start()

    def tell(self, event: Event) -> None:
        """Show `event`, soon.  Never waits."""
        self._events.put((time.monotonic(), event))

    def close(self) -> None:
        """Show what is left; give up on a stream that takes nothing within a second."""
        self._events.put(None)
        self._thread.join(_LAST_WORDS_S)


def _show(events: _Events, stream: Stream, live: bool, stamps: bool) -> None:  # noqa: FBT001 - thread
    if live:
        try:
            _show_live(events, stream)
        except Exception:  # noqa: BLE001 - a terminal that rich can't use still takes lines
            live = False
    if not live:
        _show_plain(events, stream, stamps=stamps)


def _show_plain(events: _Events, stream: Stream, *, stamps: bool) -> None:
    begin_s = time.monotonic()
    while (item := events.get()) is not None:
        at_s, event = item
        stamp = f"[{at_s - begin_s:6.1f} s] " if stamps else ""
        if event.plan is not None:
            stream.write_lines(render_plan(event.plan, stream.width()))
        else:
            stream.write_lines([stamp + render_event(event)])


def _show_live(events: _Events, stream: Stream) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    board = Board()

    def draw() -> Text:
        text = "\n".join(render_board(board, time.monotonic()))
        return Text(text, no_wrap=True, overflow="ellipsis")

    console = Console(file=cast("IO[str]", stream), force_terminal=True)
    with Live(
        console=console,
        auto_refresh=False,
        get_renderable=draw,
        redirect_stdout=False,
        redirect_stderr=False,
    ) as shown:
        while True:
            try:
                item = events.get(timeout=_REDRAW_S)
            except queue.Empty:
                shown.refresh()
                continue
            if item is None:
                return
            at_s, event = item
            if event.plan is not None:
                plan = "\n".join(render_plan(event.plan, stream.width()))
                console.print(Text(plan, no_wrap=True))
            board = fold(board, event, at_s)
            shown.refresh()
