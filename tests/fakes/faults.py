"""What can go wrong at one effect of a command."""

from __future__ import annotations

import enum
import errno
from dataclasses import dataclass


class Kind(enum.StrEnum):
    """Each as one word of a replay command."""

    KILL = "kill"
    POWER = "power"
    INTERRUPT = "interrupt"
    INTERRUPT_TWICE = "interrupt-twice"
    LEAVE = "leave"
    EIO = "eio"
    EIO_EVER = "eio-ever"
    ENOSPC = "enospc"
    ENOSPC_EVER = "enospc-ever"
    EACCES_EVER = "eacces-ever"
    EMFILE = "emfile"
    EMFILE_EVER = "emfile-ever"
    MODEL_DIES = "model-dies"
    LEADER_DIES = "leader-dies"
    STRANGER = "stranger"
    FLOOR = "floor"


ERRORS = {
    Kind.EIO: errno.EIO,
    Kind.EIO_EVER: errno.EIO,
    Kind.ENOSPC: errno.ENOSPC,
    Kind.ENOSPC_EVER: errno.ENOSPC,
    Kind.EACCES_EVER: errno.EACCES,
    Kind.EMFILE: errno.EMFILE,
    Kind.EMFILE_EVER: errno.EMFILE,
}
FOR_EVER = frozenset({Kind.EIO_EVER, Kind.ENOSPC_EVER, Kind.EACCES_EVER, Kind.EMFILE_EVER})

READS = frozenset({"read", "names"})
"""Effects on the disk that a full or read-only one still does."""

WRITES = frozenset(
    {"create", "fsync", "rename", "fsync_folder", "remove", "append_history", "trim_log"}
)
NEW_DATA = frozenset({"create", "append_history", "spawn", "fsync"})
"""What a full disk refuses."""

DESCRIPTORS = frozenset(
    {"try_lock", "read", "names", *WRITES, "spawn", "identify", "open_process", "permitted"}
    | {"processes", "process", "carriers", "scope_members", "listeners", "log_tail", "wait"}
)
"""What needs a new descriptor or a look at /proc, and raises OSError where it can't."""

AFFECTED = {
    Kind.EIO: READS | WRITES | {"spawn", "log_tail"},
    Kind.EIO_EVER: READS | WRITES | {"spawn", "log_tail"},
    Kind.ENOSPC: NEW_DATA,
    Kind.ENOSPC_EVER: NEW_DATA,
    Kind.EACCES_EVER: (WRITES | {"spawn"}) - {"fsync_folder"},
    Kind.EMFILE: DESCRIPTORS,
    Kind.EMFILE_EVER: DESCRIPTORS,
}


@dataclass(frozen=True, slots=True)
class Fault:
    """`kind` strikes at effect `number`: before it, or `after` it was done.

    An error that comes `after` is one whose effect took place all the same.
    """

    kind: Kind
    number: int
    after: bool = False

    def __str__(self) -> str:
        return f"{self.kind}@{self.number}{'+' if self.after else ''}"

    @classmethod
    def parse(cls, text: str) -> Fault:
        """The fault of `str`: KIND@NUMBER, with a + for after."""
        kind, _, number = text.partition("@")
        return cls(Kind(kind), int(number.removesuffix("+")), number.endswith("+"))
