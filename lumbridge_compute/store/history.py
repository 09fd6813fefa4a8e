"""history.jsonl: one line for each finished transaction and each action of the watchdog."""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

MAX_BYTES = 1024 * 1024
"""A history beyond this size is cut back to its newest half."""

MEASURED_FROM = 5
"""From how many of its newest starts a model's cost is taken."""

_ERROR_CHARS = 2000
_MAX_SECONDS = 1e12
_MAX_WHOLE = 2**63
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Started:
    """What one start of a model cost.

    `definition` is its `process_digest`; `load_s` the seconds until it was exactly healthy;
    `memory_bytes` how much available memory it took, None where that could not be told.
    """

    definition: str
    load_s: float
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One line.

    `time` is UTC in ISO 8601; `command` what was asked ("activate", "floor"); `outcome` one word
    ("committed", "restored", "failed", ...); `exit` the exit code, None for the watchdog;
    `started` are the models that became exactly healthy; `figures` what the watchdog measured.
    """

    time: str
    command: str
    outcome: str
    scene: str | None = None
    exit: int | None = None
    duration_s: float | None = None
    error: str | None = None
    started: Mapping[str, Started] = field(default_factory=dict)
    figures: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Cost:
    """What a model's start takes, by the median of its newest starts; None where never measured."""

    load_s: float
    memory_bytes: int | None


def render_entry(entry: HistoryEntry) -> bytes:
    """The entry as one line, with its line end; what is not given is left out."""
    value: dict[str, Any] = {
        "time": entry.time,
        "command": entry.command,
        "scene": entry.scene,
        "outcome": entry.outcome,
        "exit": entry.exit,
        "duration_s": None if entry.duration_s is None else round(entry.duration_s, 3),
        "error": None if entry.error is None else entry.error[:_ERROR_CHARS],
        "models": {name: _plain(started) for name, started in entry.started.items()},
        "figures": dict(entry.figures),
    }
    given = {key: part for key, part in value.items() if part not in (None, {})}
    return json.dumps(given, separators=(",", ":")).encode() + b"\n"


def history_document(entry: HistoryEntry) -> dict[str, Any]:
    """The entry as `history --json` and the agent tell it, with null for what is not known."""
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


def parse_history(data: bytes) -> tuple[HistoryEntry, ...]:
    """The entries, oldest first; a torn line and anything that is no entry is passed over."""
    entries = (_parse_line(line) for line in data.split(b"\n") if line.strip())
    return tuple(entry for entry in entries if entry is not None)


def measured(entries: Iterable[HistoryEntry]) -> Mapping[tuple[str, str], Cost]:
    """What starts cost, by model name and `process_digest`; `entries` are oldest first."""
    starts: dict[tuple[str, str], list[Started]] = {}
    for entry in entries:
        for name, started in entry.started.items():
            starts.setdefault((name, started.definition), []).append(started)
    return {key: _cost(each[-MEASURED_FROM:]) for key, each in starts.items()}


def read_history(path: str) -> tuple[HistoryEntry, ...]:
    """The entries of the file, oldest first, from its newest MAX_BYTES.

    None at all where there is no such file or it can't be read: the history is a help, and never
    a reason to stop.
    """
    try:
        descriptor = os.open(path, _READ)
    except OSError:
        return ()
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return ()
        return parse_history(_read_end(descriptor, status.st_size, MAX_BYTES))
    except OSError:
        return ()
    finally:
        os.close(descriptor)


def append_history(path: str, line: bytes) -> None:
    """Append one rendered line; then cut the file back when it has grown beyond MAX_BYTES.

    A torn last line is ended first, so that it takes no other with it.  The file is made with mode
    0600.  A line that another process appends at the very moment of the cut is lost.
    Raises: OSError when the file can't be written, or is a link or no regular file.
    """
    descriptor = os.open(path, _APPEND, 0o600)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(None, "not a regular file", path)
        torn = _read_end(descriptor, status.st_size, 1) not in (b"", b"\n")
        os.write(descriptor, b"\n" + line if torn else line)
        size = os.fstat(descriptor).st_size
        if size > MAX_BYTES:
            newest = _read_end(descriptor, size, MAX_BYTES // 2)
            _replace(path, newest[newest.find(b"\n") + 1 :])
    finally:
        os.close(descriptor)


def _plain(started: Started) -> dict[str, Any]:
    value: dict[str, Any] = {
        "definition": started.definition,
        "load_s": round(started.load_s, 3),
    }
    if started.memory_bytes is not None:
        value["memory_bytes"] = started.memory_bytes
    return value


def _parse_line(line: bytes) -> HistoryEntry | None:
    # A file of a great many short lines must not cost a parser's run for each.
    if b'"outcome"' not in line:
        return None
    try:
        value = _DECODER.decode(line.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    time, command, outcome = (_text(value.get(key)) for key in ("time", "command", "outcome"))
    if time is None or command is None or outcome is None:
        return None
    models, figures = value.get("models"), value.get("figures")
    return HistoryEntry(
        time,
        command,
        outcome,
        scene=_text(value.get("scene")),
        exit=_whole(value.get("exit")),
        duration_s=_seconds(value.get("duration_s")),
        error=_text(value.get("error")),
        started=_parse_started(models) if isinstance(models, dict) else {},
        figures=figures if isinstance(figures, dict) else {},
    )


def _parse_started(models: Mapping[str, Any]) -> dict[str, Started]:
    found: dict[str, Started] = {}
    for name, value in models.items():
        if not isinstance(value, dict):
            continue
        definition, load_s = _text(value.get("definition")), _seconds(value.get("load_s"))
        if definition is not None and load_s is not None:
            found[name] = Started(definition, load_s, _whole(value.get("memory_bytes")))
    return found


def _finite(text: str) -> float:
    """A number that JSON can hold: what is read here is written as JSON again."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


# `json.loads` makes a decoder each time that it is given a hook.
_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_finite)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _whole(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if abs(value) < _MAX_WHOLE else None


def _seconds(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < _MAX_SECONDS else None


def _cost(starts: list[Started]) -> Cost:
    # Memory that did not shrink (page cache given back meanwhile) says nothing about the model.
    sizes = [each.memory_bytes for each in starts if each.memory_bytes and each.memory_bytes > 0]
    return Cost(_median([each.load_s for each in starts]), int(_median(sizes)) if sizes else None)


def _median(values: list[float] | list[int]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2


def _read_end(descriptor: int, size: int, count: int) -> bytes:
    return os.pread(descriptor, count, max(0, size - count))


def _replace(path: str, data: bytes) -> None:
    new = path + ".new"
    with suppress(FileNotFoundError):
        os.unlink(new)
    descriptor = os.open(new, _CREATE, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.rename(new, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(new)
        raise
