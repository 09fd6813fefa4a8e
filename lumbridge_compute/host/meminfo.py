"""MemAvailable, read from a descriptor that is kept open.

Opening takes memory, and a path may be hidden when it matters; pread on an open descriptor makes
the kernel write the text anew.

Source: proc_meminfo(5).
"""

from __future__ import annotations

import os

PATH = "/proc/meminfo"
_HEAD_BYTES = 256  # MemTotal is the first line and MemAvailable the third


class Meminfo:
    """An open meminfo; close it."""

    def __init__(self, path: str = PATH) -> None:
        self._path = path
        self._descriptor = -1

    def read(self) -> tuple[int | None, int | None]:
        """MemAvailable and MemTotal in bytes, unjudged; None for what can't be read."""
        try:
            if self._descriptor < 0:
                self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            head = os.pread(self._descriptor, _HEAD_BYTES, 0)
        except OSError:
            self.close()
            return None, None
        return parse_field(head, b"MemAvailable:"), parse_field(head, b"MemTotal:")

    def close(self) -> None:
        """Closing twice is harmless."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def parse_field(head: bytes, key: bytes) -> int | None:
    """One value of meminfo, which counts in KiB, in bytes; None where no whole line has it."""
    start = head.find(key)
    end = head.find(b"\n", start)
    if start < 0 or end < 0 or (start > 0 and head[start - 1] != 10):
        return None
    words = head[start + len(key) : end].split()
    if len(words) != 2 or words[1] != b"kB":
        return None
    try:
        return int(words[0]) * 1024
    except ValueError:
        return None
