"""Which process is it, and is it ours?"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from lumbridge_compute.core.values import dataclass, field


class Ownership(enum.StrEnum):
    """How a record relates to what lives now (DESIGN section 6)."""

    OWNED = "owned"
    SURVIVORS = "survivors"
    GONE = "gone"
    FOREIGN = "foreign"
    LEGACY = "legacy"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Identity:
    """Names one process for ever.

    `start_ticks` is field 22 of /proc/PID/stat, in clock ticks since boot.  `pidfd_inode` is the
    inode of the process's pidfd where the kernel has pidfs (Linux 6.9), else None: two processes
    that got one PID within one tick differ by it alone.

    Source: proc_pid_stat(5), field 22; kernel fs/pidfs.c.
    """

    boot_id: str
    pid: int
    start_ticks: int
    pidfd_inode: int | None = field(default=None, compare=False)

    def matches(self, other: Identity) -> bool:
        """True when both name the same process: the inode decides too where both know it."""
        if self != other:
            return False
        return None in (self.pidfd_inode, other.pidfd_inode) or (
            self.pidfd_inode == other.pidfd_inode
        )


@dataclass(frozen=True, slots=True)
class Process:
    """One row of the process table, as the kernel tells it.

    Source: proc_pid_stat(5), fields 1, 3 to 6, 20 and 22.
    """

    pid: int
    parent_pid: int
    group: int
    session: int
    state: str
    start_ticks: int
    thread_count: int = 1

    @property
    def alive(self) -> bool:
        """False for a zombie; a process whose first thread alone has ended still lives."""
        return self.state not in "ZXx" or (self.state == "Z" and self.thread_count > 1)


@dataclass(frozen=True, slots=True)
class Claim:
    """What a record is worth now.

    `leader` is the recorded process while it lives; `members` are the PIDs of all living
    processes proved ours, the leader included; `strays` are living PIDs that still carry the
    leader's group or session number but can't be proved ours: named, never signalled.
    """

    ownership: Ownership
    leader: Process | None = None
    members: frozenset[int] = frozenset()
    strays: frozenset[int] = frozenset()


def compare(
    identity: Identity,
    now: Identity | None,
    table: Mapping[int, Process],
    *,
    proved: AbstractSet[int] = frozenset(),
) -> Claim:
    """Judge the record of `identity` against the process table.

    `now` is the identity that its PID has at this moment (None when nothing has that PID);
    `proved` are PIDs that carry the record's token, sit in its cgroup, or were held by a pidfd
    since the start.  Leader gone: only those count, since its group number may have been reused.
    """
    leader = table.get(identity.pid)
    if now is None or leader is None or not leader.alive or not identity.matches(now):
        return _leaderless(identity, now, table, proved)
    if leader.group != leader.pid:
        return Claim(Ownership.FOREIGN, leader, frozenset({leader.pid}))
    own_session = leader.session == leader.pid
    members = {
        row.pid
        for row in table.values()
        if row.alive and (row.group == leader.pid or (own_session and row.session == leader.pid))
    }
    return Claim(Ownership.OWNED, leader, frozenset(members | _living(proved, table)))


def _leaderless(
    identity: Identity, now: Identity | None, table: Mapping[int, Process], proved: AbstractSet[int]
) -> Claim:
    members = _living(proved, table)
    reused = now is not None and not identity.matches(now)
    strays = {
        row.pid
        for row in table.values()
        if row.alive and not reused and identity.pid in (row.group, row.session)
    }
    ownership = Ownership.SURVIVORS if members else Ownership.GONE
    return Claim(ownership, None, members, frozenset(strays - members))


def _living(pids: AbstractSet[int], table: Mapping[int, Process]) -> frozenset[int]:
    return frozenset(pid for pid in pids if pid in table and table[pid].alive)
