"""`logs MODEL`: the output of a model, and what it goes on to say."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable
from contextlib import suppress

from lumbridge_compute.cli.call import Call
from lumbridge_compute.cli.node import private_path, registry_of, state_of
from lumbridge_compute.core.nearest import nearest
from lumbridge_compute.errors import BadInput, Exit, OperatorError
from lumbridge_compute.store.model_log import log_tail, printable

DEFAULT_LINES = 100
_POLL_S = 0.25
_PIECE_BYTES = 256 * 1024
_TAIL_TRIES = 3
"""A model that writes without a pause gets a line shown twice rather than never."""

_LINE_BYTES = 16 * 1024


def run_logs(call: Call) -> int:
    """The newest lines; with -f until Ctrl-C or until the reader has left, both of which end it
    with 0.  Raises BadInput for a model that nobody knows."""
    root, name = call.root(), call.options.name
    path = private_path(root, os.path.join("logs", f"{name}.log"))
    _check_known(root, name)
    follower = _Follower(path)
    lines = follower.tail(_lines(call))
    if call.json:
        call.print_document({"model": name, "lines": list(lines)})
        return Exit.DONE
    if not lines and not os.path.exists(path):
        call.err.write_lines([f"{name!r} has no output: it was not started here"])
    call.out.write_lines(lines)
    if call.options.follow:
        _follow(call, follower)
    return Exit.DONE


def _lines(call: Call) -> int:
    given: int | None = call.options.lines
    return DEFAULT_LINES if given is None else given


def _follow(call: Call, follower: _Follower) -> None:
    gc.enable()
    try:
        while not call.out.reader_left(_POLL_S):
            call.out.write_lines(follower.news())
    except KeyboardInterrupt:
        call.out.write_lines(follower.rest())


def _check_known(root: str, name: str) -> None:
    known = _known_names(root)
    if name in known:
        return
    near = nearest(name, known)
    raise BadInput(
        f"cannot show the output of {name!r}: no such model, and no log of one",
        f"did you mean {near!r}?" if near is not None else "lumbridge-compute status",
    )


def _known_names(root: str) -> list[str]:
    """Models that are declared, recorded, or have left a log; what can't be read names none."""
    names: dict[str, None] = {}
    with suppress(OperatorError):
        names |= dict.fromkeys(registry_of(root).models)
    with suppress(OperatorError):
        names |= dict.fromkeys(name for name in state_of(root).processes if "/" not in name)
    with suppress(OSError):
        logs = [name for name in os.listdir(private_path(root, "logs")) if name.endswith(".log")]
        names |= dict.fromkeys(name.removesuffix(".log") for name in logs)
    return list(names)


class _Follower:
    """Reads what is appended to a log, also over its truncation and replacement."""

    def __init__(self, path: str) -> None:
        self._path = path
        # Held open, so that no file that replaces it can get its inode number.
        self._file: int | None = None
        self._position = 0
        self._partial = b""

    def tail(self, count: int) -> tuple[str, ...]:
        """The newest `count` lines; `news` goes on behind them."""
        lines: tuple[str, ...] = ()
        for _ in range(_TAIL_TRIES):
            self._reopen()
            self._position = self._size()
            lines = log_tail(self._path, count)
            if self._position == self._size():
                break
        return lines

    def news(self) -> Iterable[str]:
        """The lines that have been completed since the last call."""
        *whole, self._partial = (self._partial + self._read()).split(b"\n")
        if len(self._partial) > _LINE_BYTES:
            whole.append(self._partial)
            self._partial = b""
        return [_line(line) for line in whole]

    def rest(self) -> Iterable[str]:
        """What was said last, without a line end."""
        return [_line(self._partial)] if self._partial else []

    def _read(self) -> bytes:
        """What was appended; of a file that was replaced, first what it had left."""
        data = self._read_on()
        if not data and self._reopen():
            data = self._read_on()
        return data

    def _read_on(self) -> bytes:
        if self._file is None:
            return b""
        if self._size() < self._position:
            self._position = 0
        data = os.pread(self._file, _PIECE_BYTES, self._position)
        self._position += len(data)
        return data

    def _reopen(self) -> bool:
        """Open the file that has the name now; True when it is another one than before."""
        try:
            file = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return False
        if self._file is not None:
            if os.path.sameopenfile(file, self._file):
                os.close(file)
                return False
            os.close(self._file)
        self._file, self._position = file, 0
        return True

    def _size(self) -> int:
        return os.fstat(self._file).st_size if self._file is not None else 0


def _line(data: bytes) -> str:
    return printable(data.decode(errors="backslashreplace"))
