"""Processes held by pidfd: the only module that signals.

A PID is a number that the kernel hands out again; a pidfd is one process for as long as it is
held.  So: open the pidfd, then compare the identity, then signal through the pidfd.

Source: pidfd_open(2), pidfd_send_signal(2); the kernel's include/uapi/linux/pidfd.h.
"""

from __future__ import annotations

import errno
import os
import select
import signal
from collections.abc import Callable
from functools import cache
from types import TracebackType
from typing import Self

from lumbridge_compute.core.identity import Identity, Process
from lumbridge_compute.core.values import dataclass
from lumbridge_compute.host.exits import read_exit_cause
from lumbridge_compute.host.procfs import read_ancestors, read_boot_id, read_process

_PROCESS_GROUP = 4  # PIDFD_SIGNAL_PROCESS_GROUP, Linux 6.9
_PID_LIMIT = 1 << 22  # PID_MAX_LIMIT of the kernel: no PID is larger
_NO_SUCH_PROCESS = (errno.ESRCH, errno.EINVAL, errno.ENOENT)  # the latter two: PID of a thread


@dataclass(frozen=True, slots=True)
class Sent:
    """One signal about to leave: to process `pid`, or to the group that it leads or led."""

    pid: int
    number: int
    group: bool


observers: list[Callable[[Sent], None]] = []
"""Called with each signal before it leaves, probes with signal 0 included."""


class HeldProcess:
    """One process held open, so that a signal can reach no other.  Close it, or use `with`."""

    def __init__(self, descriptor: int, identity: Identity) -> None:
        """Take over `descriptor`, a pidfd that was seen to be that of `identity`."""
        self._descriptor = descriptor
        self.identity = identity

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def fileno(self) -> int:
        """The pidfd, readable when the process has ended; it stays ours."""
        return self._descriptor

    @property
    def ended(self) -> bool:
        """True when every thread of it has ended; a zombie has."""
        return _readable(self._descriptor)

    def signal(self, number: int) -> bool:
        """Signal this process; False when it has ended.

        Raises PermissionError where the kernel does not let us.
        """
        refuse_target(self.identity.pid)
        if self.ended:
            return False
        return _send(self._descriptor, self.identity.pid, number)

    def signal_group(self, number: int) -> bool:
        """Signal every process of the group that it leads or led; False when none is left.

        Zombies count as left.  On a kernel older than 6.9, a group whose leader has ended can't
        be told from another group of its number, and gets nothing.  Raises PermissionError where
        the kernel lets us signal none of them.
        """
        pid = self.identity.pid
        refuse_target(pid)
        try:
            return _send(self._descriptor, pid, number, group=True)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
        return _kill_group(self._descriptor, pid, number)

    async def wait(self) -> None:
        """Return when the process has ended (a zombie has).  Cancelling it changes nothing."""
        import trio

        # trio lets one task wait on a descriptor; on a copy each, any number may, and a close
        # of the handle meanwhile pulls nothing away.
        descriptor = os.dup(self._descriptor)
        try:
            await trio.lowlevel.wait_readable(descriptor)
        finally:
            os.close(descriptor)

    def exit_cause(self) -> str | None:
        """How it ended: "exit code 1", "killed by SIGKILL"; None while it lives or if not known.

        Reaps the process where it is our child.
        """
        return read_exit_cause(self._descriptor, self.identity) if self.ended else None

    def close(self) -> None:
        """Let go; a child of ours that has ended is reaped here, and not by whoever started it.

        Closing twice is harmless.
        """
        if self._descriptor < 0:
            return
        self.exit_cause()
        os.close(self._descriptor)
        self._descriptor = -1


def open_same(identity: Identity) -> HeldProcess | None:
    """Hold the process of `identity`; None when it has ended, or its PID is another's by now.

    Raises ValueError for a PID that must never be signalled: 1 and below, this process, the
    leader of its group, its ancestors.
    """
    refuse_target(identity.pid)
    return _open_same(identity)


def identify(pid: int) -> Identity | None:
    """The identity that `pid` has now, a zombie's included; None when nothing has that PID."""
    for _ in range(3):
        descriptor = _open(pid)
        if descriptor is None:
            return None
        try:
            process = read_process(pid)
            # Ended, and yet its row is not a zombie's: the row is that of the next with this PID.
            if process is None or (process.alive and _readable(descriptor)):
                continue
            return _identity(descriptor, process)
        finally:
            os.close(descriptor)
    return None


def permitted(identity: Identity) -> bool:
    """False when the kernel would not let us signal that process; True also when it is gone."""
    held = _open_same(identity)
    if held is None:
        return True
    with held:
        try:
            _send(held.fileno(), identity.pid, 0)
        except PermissionError:
            return False
        return True


def hold_child(pid: int) -> HeldProcess:
    """Hold a child of ours that nobody has reaped; raises OSError where it can't be."""
    descriptor = os.pidfd_open(pid)
    process = read_process(pid)
    if process is None:
        os.close(descriptor)
        raise ProcessLookupError(errno.ESRCH, f"cannot hold child {pid}: it was reaped elsewhere")
    return HeldProcess(descriptor, _identity(descriptor, process))


def refuse_target(pid: int) -> None:
    """Raise ValueError for what must never be signalled, whatever a plan says."""
    if pid <= 1:
        raise ValueError(f"pid {pid} is never a target")
    if pid in (os.getpid(), os.getpgrp()) or pid in read_ancestors(os.getpid()):
        raise ValueError(f"pid {pid} is this command, its group or one of its ancestors")


def _open(pid: int) -> int | None:
    if not 0 < pid <= _PID_LIMIT:
        return None
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        if error.errno in _NO_SUCH_PROCESS:
            return None
        raise


def _open_same(identity: Identity) -> HeldProcess | None:
    descriptor = _open(identity.pid)
    if descriptor is None:
        return None
    process = read_process(identity.pid)
    if process is not None and process.alive:
        now = _identity(descriptor, process)
        # Asked last: not ended now means that the PID was its own while the row was read.
        if identity.matches(now) and not _readable(descriptor):
            return HeldProcess(descriptor, now)
    os.close(descriptor)
    return None


def _identity(descriptor: int, process: Process) -> Identity:
    inode = os.fstat(descriptor).st_ino if _has_pidfs() else None
    return Identity(read_boot_id(), process.pid, process.start_ticks, inode)


@cache
def _has_pidfs() -> bool:
    """True where each process has an inode of its own behind its pidfd (Linux 6.9).

    Before, all pidfds shared the one inode of anonymous files, as an epoll descriptor does.
    """
    own = os.pidfd_open(os.getpid())
    try:
        with select.epoll() as anonymous:
            return os.fstat(own).st_dev != os.fstat(anonymous.fileno()).st_dev
    finally:
        os.close(own)


def _readable(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def _send(descriptor: int, pid: int, number: int, *, group: bool = False) -> bool:
    for observer in observers:
        observer(Sent(pid, number, group))
    try:
        signal.pidfd_send_signal(descriptor, number, None, _PROCESS_GROUP if group else 0)
    except ProcessLookupError:
        return False
    return True


def _kill_group(descriptor: int, pid: int, number: int) -> bool:
    # While the leader lives, its PID and with it the number of its group are nobody else's.
    if _readable(descriptor) or os.getpgid(pid) != pid:
        return False
    try:
        os.killpg(pid, number)  # noqa: TID251 - this is the module that signals
    except ProcessLookupError:
        return False
    return True
