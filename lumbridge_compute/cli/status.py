"""`status`: once, or again on every change."""

from __future__ import annotations

import gc
from typing import Any

from lumbridge_compute.cli.call import Call
from lumbridge_compute.cli.node import read_status
from lumbridge_compute.core.report import NodeStatus, Verdict, judge, passes_check
from lumbridge_compute.core.report_status import render_status, status_document
from lumbridge_compute.errors import Exit

WATCH_PERIOD_S = 2.0
_REDRAW = "\x1b[H\x1b[J"
"""Cursor home, erase below.  Source: ECMA-48, CUP and ED."""


def run_status(call: Call) -> int:
    """0; 2 where the registry or the state can't be read; 4 where --check is not passed."""
    root = call.root()
    if call.options.watch:
        return _watch(call, root)
    status = read_status(root, call.environ)
    if call.json:
        call.print_document(status_document(status))
    else:
        call.out.write_lines(render_status(status, call.out.width()))
    return _exit(status, check=call.options.check)


def _exit(status: NodeStatus, *, check: bool) -> Exit:
    if judge(status) is Verdict.UNKNOWN:
        return Exit.BAD_INPUT
    return Exit.DEGRADED if check and not passes_check(status) else Exit.DONE


def _watch(call: Call, root: str) -> int:
    """Ctrl-C and a reader that has left are the ways to end this, so both end with 0."""
    gc.enable()
    terminal = call.out.isatty()
    shown: dict[str, Any] | None = None
    try:
        while True:
            status = read_status(root, call.environ)
            lines = render_status(status, call.out.width())
            # Available memory is never the same twice, and alone is no news.
            news = status_document(status) | {"memory": None}
            if terminal:
                call.out.write(_REDRAW + "\n".join(lines) + "\n")
            elif news != shown:
                call.out.write_lines(lines if shown is None else ["", *lines])
            shown = news
            if call.out.reader_left(WATCH_PERIOD_S):
                break
    except KeyboardInterrupt:
        pass
    return Exit.DONE
