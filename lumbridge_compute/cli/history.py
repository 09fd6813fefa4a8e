"""`history`: the transactions of the past."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lumbridge_compute.cli.call import Call
from lumbridge_compute.cli.node import private_path
from lumbridge_compute.core.tables import render_table
from lumbridge_compute.core.units import render_bytes, render_seconds
from lumbridge_compute.effects import HISTORY_FILE
from lumbridge_compute.errors import Exit
from lumbridge_compute.store.history import HistoryEntry, read_history

DEFAULT_LINES = 20
_HEADER = ("TIME", "COMMAND", "SCENE", "OUTCOME", "EXIT", "TOOK", "STARTED")


def run_history(call: Call) -> int:
    """The newest entries, the newest last."""
    given: int | None = call.options.lines
    count = DEFAULT_LINES if given is None else given
    entries = read_history(private_path(call.root(), HISTORY_FILE))[-count:] if count else ()
    if call.json:
        call.print_document({"entries": [_document(entry) for entry in entries]})
    elif entries:
        table = render_table(_HEADER, [_cells(entry) for entry in entries], width=call.out.width())
        call.out.write_lines(_with_errors(table, entries))
    else:
        call.out.write_lines(["nothing has been recorded yet"])
    return Exit.DONE


def _document(entry: HistoryEntry) -> dict[str, Any]:
    return {
        "time": entry.time,
        "command": entry.command,
        "scene": entry.scene,
        "outcome": entry.outcome,
        "exit": entry.exit,
        "duration_s": entry.duration_s,
        "error": entry.error,
        "models": {
            name: {"load_s": started.load_s, "memory_bytes": started.memory_bytes}
            for name, started in entry.started.items()
        },
        "figures": dict(entry.figures),
    }


def _cells(entry: HistoryEntry) -> tuple[str, ...]:
    return (
        entry.time,
        entry.command,
        entry.scene or "-",
        entry.outcome,
        "-" if entry.exit is None else str(entry.exit),
        "-" if entry.duration_s is None else render_seconds(entry.duration_s),
        ", ".join(_started(entry)) or "-",
    )


def _started(entry: HistoryEntry) -> Iterable[str]:
    for name, started in entry.started.items():
        cost = f", {render_bytes(started.memory_bytes)}" if started.memory_bytes else ""
        yield f"{name} ({render_seconds(started.load_s)}{cost})"


def _with_errors(table: list[str], entries: Iterable[HistoryEntry]) -> Iterable[str]:
    yield table[0]
    for line, entry in zip(table[1:], entries, strict=True):
        yield line
        if entry.error is not None:
            yield f"    {entry.error}"
