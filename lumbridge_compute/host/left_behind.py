"""What dead leaders left behind: their groups, proved by a pidfd that was held while they lived.

A process may overwrite its environment, the token in it included, and a group's number alone
proves nothing once its leader is gone: it might be another's by now.  The pidfd tells: the kernel
frees no number while a process carries it as its group, so a group that the dead leader's pidfd
still reaches has kept its number all the while.

Source: pidfd_send_signal(2), PIDFD_SIGNAL_PROCESS_GROUP (Linux 6.9); the kernel's kernel/pid.c.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from lumbridge_compute.core.identity import Identity, Process
from lumbridge_compute.host.pidfd import HeldProcess


class LeftBehind:
    """Keeps leaders' pidfds beyond their death, for as long as somebody of their group lives."""

    def __init__(self) -> None:
        self._kept: list[HeldProcess] = []

    def keep(self, identity: Identity, descriptor: int) -> None:
        """Keep a copy of `descriptor`, the pidfd of `identity`, a leader that has ended, where its
        group lives on.  Before Linux 6.9 that can't be told, and nothing is kept."""
        if any(kept.identity.matches(identity) for kept in self._kept):
            return
        try:
            held = HeldProcess(os.dup(descriptor), identity)
        except OSError:  # out of descriptors: what is left proves itself by token or cgroup, or not
            return
        if _reaches_somebody(held):
            self._kept.append(held)
        else:
            held.close()

    def members(
        self, leaders: Iterable[Identity], table: Mapping[int, Process]
    ) -> Mapping[Identity, frozenset[int]]:
        """The PIDs in `table`, which was read just now, of each kept group of `leaders`."""
        # Asked after the table was read: whose number it is now, it was then.
        self._drop_ended()
        found = {}
        for identity in leaders:
            if any(kept.identity.matches(identity) for kept in self._kept):
                group = identity.pid
                found[identity] = frozenset(
                    row.pid for row in table.values() if row.alive and row.group == group
                )
        return found

    def _drop_ended(self) -> None:
        for kept in tuple(self._kept):
            if not _reaches_somebody(kept):
                self._kept.remove(kept)
                kept.close()


def _reaches_somebody(held: HeldProcess) -> bool:
    """Is anybody left of its group?  A zombie counts: its number is not free either."""
    try:
        return held.signal_group(0)
    except PermissionError:
        return True
