"""`demo`: the guided tour, on this terminal."""

from __future__ import annotations

import gc
import os

from lumbridge_compute.cli.call import Call
from lumbridge_compute.cli.streams import Stream
from lumbridge_compute.errors import Exit


def run_demo(call: Call) -> int:
    """0 when every step did what it says; with --json or -q nothing is shown of them.

    Raises OperatorError, and KeyboardInterrupt when a signal ended it; nothing is left either way.
    """
    from lumbridge_compute.demo.tour import run_tour

    gc.enable()
    if call.json or call.options.quiet:
        with open(os.devnull, "wb") as nowhere:
            run_tour(call.environ, Stream(nowhere.fileno()), coloured=False)
    else:
        run_tour(call.environ, call.out, coloured=_coloured(call))
    if call.json:
        call.print_document({"ok": True, "exit": int(Exit.DONE)})
    return Exit.DONE


def _coloured(call: Call) -> bool:
    """Source: no-color.org."""
    plain = call.environ.get("NO_COLOR") or call.environ.get("TERM", "dumb") == "dumb"
    return call.out.isatty() and not plain
