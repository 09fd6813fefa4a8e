"""The output of each model, bounded: MODEL.log, and MODEL.log.1 for the part before.

The model writes to MODEL.log by itself, through a descriptor with O_APPEND, so nothing is piped
through us and a chatty model never waits.  Between two trims the file may therefore be of any
size; no function here reads more than a fixed part of it.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO

from lumbridge_compute.errors import Refused

TOTAL_BYTES = 10 * 1024 * 1024
LIVE_BYTES = 4 * 1024 * 1024
"""The share of MODEL.log; a trim moves what it holds when it has grown beyond."""

PART_BYTES = TOTAL_BYTES - LIVE_BYTES
"""The share of MODEL.log.1."""

HEAD_BYTES = 64 * 1024
"""How much of the beginning of the newest start outlives every trim."""

TAIL_BYTES = 256 * 1024
LINE_CHARS = 2000
_MARKER_BYTES = 128
# Room for what the model writes while the rest is being copied.
_CATCH_UP_BYTES = 1024 * 1024
_KEPT_BYTES = PART_BYTES - _CATCH_UP_BYTES

_START = b"==== start: "
_START_LINE = re.compile(rb"^==== start: .* ====$", re.MULTILINE)
_MARKER_LINE = re.compile(rb"^\.\.\. ([0-9]{1,20}) bytes left out \.\.\.\n", re.MULTILINE)
_TERMINAL_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def open_log(path: str) -> int:
    """A descriptor that appends to the log; the file is made with mode 0600.  Close it.

    Raises: Refused when something that is no regular file has this name (a link is never
    followed, a pipe never waited for), or when it can't be opened.
    """
    try:
        descriptor = os.open(path, _APPEND, 0o600)
    except OSError as error:
        raise Refused(
            f"cannot open the log {path!r}: {_cause(path, error)}",
            "move it away; the next start makes a new one",
        ) from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Refused(
            f"cannot open the log {path!r}: it is not a regular file",
            "move it away; the next start makes a new one",
        )
    # The model inherits the flag with the descriptor.
    os.set_blocking(descriptor, True)
    return descriptor


def begin_start(path: str, header: str) -> int:
    """Trim the log, write the line that begins a start, and give the descriptor for its output.

    `header` says for people which start it is.  A trim that fails does not hinder the start.
    Raises: as `open_log`; OSError when the line can't be written.
    """
    # Trimmed first, every start begins in the first LIVE_BYTES of MODEL.log or in MODEL.log.1:
    # it is found again without reading what a model may have written since.
    with suppress(OSError):
        trim_log(path)
    descriptor = open_log(path)
    try:
        line = _START + printable(header).encode() + b" ====\n"
        os.write(descriptor, line if _ends_with_line(path) else b"\n" + line)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def trim_log(path: str) -> bool:
    """Bring MODEL.log and MODEL.log.1 back within TOTAL_BYTES; True when there was need.

    What survives is the first HEAD_BYTES of the newest start and the newest lines, older ones as
    far as there is room.  Lines written during the trim itself, after its last look, are lost.
    Nothing is done where the log is a link or no file, or while somebody else trims it.
    Raises: OSError when MODEL.log.1 can't be written; both files are then as they were.
    """
    with _opened(path, os.O_RDWR) as live, _opened(path + ".1") as part:
        if live is None:
            return False
        sizes = _size(part), _size(live)
        if sizes[0] <= PART_BYTES and sizes[1] <= LIVE_BYTES:
            return False
        try:
            fcntl.flock(live, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        _replace_part(path + ".1", live, _Output(part, live, *sizes))
        os.ftruncate(live, 0)
        return True


def log_tail(path: str, lines: int) -> tuple[str, ...]:
    """The newest `lines` lines of the output, oldest first, from MODEL.log.1 too where needed.

    At most TAIL_BYTES are read and LINE_CHARS of a line given; all characters are printable.
    Empty where there is no log, or none that can be read.
    """
    if lines <= 0:
        return ()
    with _opened(path) as live, _opened(path + ".1") as part:
        output = _Output(part, live, _size(part), _size(live))
        begin = max(0, output.size - TAIL_BYTES)
        data = output.read(begin, output.size)
    if begin > 0:
        data = data[data.find(b"\n") + 1 :]
    if not data:
        return ()
    text = data.decode(errors="backslashreplace").removesuffix("\n")
    return tuple(printable(line) for line in text.split("\n")[-lines:])


def start_tail(path: str, lines: int) -> tuple[str, ...]:
    """As `log_tail`, of the newest start alone, without the line that begins it."""
    tail = log_tail(path, lines)
    begins = [i for i, line in enumerate(tail) if _START_LINE.fullmatch(line.encode())]
    return tail[begins[-1] + 1 :] if begins else tail


def printable(line: str) -> str:
    """One line as a terminal would leave it, with every other control character spelled out."""
    line = _TERMINAL_SEQUENCE.sub("", line.rstrip("\r\n"))
    line = line[line.rfind("\r") + 1 :].expandtabs()
    if len(line) > LINE_CHARS:
        line = line[: LINE_CHARS - 3] + "..."
    if line.isprintable():
        return line
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in line
    )


@dataclass(frozen=True, slots=True)
class _Output:
    """MODEL.log.1 and MODEL.log as one text; either may be missing."""

    part: int | None
    live: int | None
    part_size: int
    live_size: int

    @property
    def size(self) -> int:
        return self.part_size + self.live_size

    def read(self, begin: int, end: int) -> bytes:
        split = self.part_size
        older = _read_range(self.part, begin, min(end, split))
        return older + _read_range(self.live, max(begin - split, 0), end - split)

    def newest_start(self) -> int:
        """Where the newest start begins; the beginning of everything where none is marked."""
        for begin in (self.part_size, max(0, self.part_size - PART_BYTES)):
            text = self.read(begin, begin + PART_BYTES)
            starts = [found.start() for found in _START_LINE.finditer(text)]
            if starts:
                return begin + starts[-1]
        return 0


def _kept(output: _Output) -> Iterator[bytes]:
    """What MODEL.log.1 becomes: at most _KEPT_BYTES."""
    if output.size <= _KEPT_BYTES:
        yield output.read(0, output.size)
        return
    start = output.newest_start()
    begin = output.size - _KEPT_BYTES + _MARKER_BYTES
    head = _Head(b"", 0, 0)
    if start < begin:
        head = _head(output.read(start, start + HEAD_BYTES), start)
        begin += len(head.text)
    tail = output.read(begin, output.size)
    cut = tail.find(b"\n", 0, HEAD_BYTES) + 1
    yield head.text
    yield b"... %d bytes left out ...\n" % (head.left_out + begin + cut - head.end)
    yield tail[cut:]


@dataclass(frozen=True, slots=True)
class _Head:
    """The first whole lines of a start, where the output goes on behind them, and how many bytes
    an earlier trim has left out between the two."""

    text: bytes
    end: int
    left_out: int


def _head(text: bytes, start: int) -> _Head:
    marker = _MARKER_LINE.search(text)
    if marker is not None:
        return _Head(text[: marker.start()], start + marker.end(), int(marker[1]))
    whole = text.rfind(b"\n") + 1
    if whole == 0:
        return _Head(text + b"\n", start + len(text), 0)
    return _Head(text[:whole], start + whole, 0)


def _replace_part(path: str, live: int, output: _Output) -> None:
    new = path + ".new"
    with suppress(FileNotFoundError):
        os.unlink(new)
    descriptor = os.open(new, _CREATE, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.writelines(_kept(output))
            _catch_up(file, live, output.live_size)
        os.rename(new, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(new)
        raise


def _catch_up(file: IO[bytes], live: int, copied: int) -> None:
    """Copy what was written meanwhile, as far as there is room."""
    end = copied + PART_BYTES - file.tell()
    while (now := min(_size(live), end)) > copied:
        file.write(_read_range(live, copied, now))
        copied = now


@contextmanager
def _opened(path: str, mode: int = os.O_RDONLY) -> Iterator[int | None]:
    """A descriptor of the regular file at `path`, or None where there is no such file."""
    try:
        descriptor = os.open(path, _READ | mode)
    except OSError:
        yield None
        return
    try:
        yield descriptor if stat.S_ISREG(os.fstat(descriptor).st_mode) else None
    finally:
        os.close(descriptor)


def _size(descriptor: int | None) -> int:
    return 0 if descriptor is None else os.fstat(descriptor).st_size


def _read_range(descriptor: int | None, begin: int, end: int) -> bytes:
    pieces: list[bytes] = []
    while descriptor is not None and begin < end:
        piece = os.pread(descriptor, min(end - begin, 1024 * 1024), begin)
        if not piece:
            break
        pieces.append(piece)
        begin += len(piece)
    return b"".join(pieces)


def _ends_with_line(path: str) -> bool:
    with _opened(path) as descriptor:
        size = _size(descriptor)
        return size == 0 or _read_range(descriptor, size - 1, size) == b"\n"


def _cause(path: str, error: OSError) -> str:
    if os.path.islink(path):
        return "it is a symbolic link"
    return (error.strerror or str(error)).lower()
