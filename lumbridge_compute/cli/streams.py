"""Writing to stdout and stderr so that no lost reader ever stops or changes a command."""

from __future__ import annotations

import errno
import os
import select
import sys
from collections.abc import Iterable

STDOUT, STDERR = 1, 2
_GONE = frozenset({errno.EPIPE, errno.EBADF, errno.EIO, errno.ECONNRESET})


class Stream:
    """One of the standard streams, unbuffered.

    Nothing that is written raises: once a write has failed, everything after it is dropped, and
    `fault` says why unless the reader has simply gone.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        standard = sys.stdout if descriptor == STDOUT else sys.stderr
        # sys.stdout is None when the descriptor was closed at start.
        self.encoding = (standard.encoding if standard is not None else None) or "utf-8"
        self.gone = False
        self.fault: OSError | None = None

    def write(self, text: str) -> int:
        """Write `text`; what the stream's encoding lacks is spelled out."""
        self.write_bytes(text.encode(self.encoding, "backslashreplace"))
        return len(text)

    def write_lines(self, lines: Iterable[str]) -> None:
        """Write `lines`, each with its line end, at once."""
        text = "".join(f"{line}\n" for line in lines)
        if text:
            self.write(text)

    def write_bytes(self, data: bytes) -> None:
        """Write `data` as it is."""
        rest = memoryview(data)
        while rest and not self.gone:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:
                # Whoever shares the descriptor has made it non-blocking.
                select.select([], [self._descriptor], [])
            except OSError as error:
                self.gone = True
                self.fault = None if error.errno in _GONE else error

    def flush(self) -> None:
        """Nothing is ever held back."""

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def fileno(self) -> int:
        return self._descriptor

    def width(self) -> int | None:
        """The columns of the terminal; None where there is no limit."""
        try:
            columns = os.get_terminal_size(self._descriptor).columns
        except OSError:
            return None
        return columns or None

    def reader_left(self, within_s: float = 0.0) -> bool:
        """True as soon as nobody will ever read what is written to this pipe or terminal, False
        when that has not happened `within_s` seconds from now."""
        if self.gone:
            return True
        poll = select.poll()
        poll.register(self._descriptor, 0)  # errors and hang-ups are always told
        return bool(poll.poll(within_s * 1000))


def fill_standard_descriptors() -> None:
    """Open /dev/null where stdin, stdout or stderr is closed.

    Else the next file that is opened would get that number, and what is meant for a person would
    be written into it.  Source: open(2), "lowest-numbered file descriptor".
    """
    for descriptor in (0, STDOUT, STDERR):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
