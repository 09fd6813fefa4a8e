"""A signal through a pidfd to one process or its group, for those who may load little else.

`host/pidfd.py` proves whose a pidfd is; this only uses one.

Source: pidfd_send_signal(2); process_mrelease(2); proc_pid_stat(5).
"""

from __future__ import annotations

import _thread
import contextlib
import errno
import os
import select
import signal

PROCESS_GROUP = 4  # PIDFD_SIGNAL_PROCESS_GROUP, Linux 6.9
_MRELEASE = 448  # process_mrelease, Linux 5.15: one number on every architecture


def has_ended(descriptor: int) -> bool:
    """True when every thread behind the pidfd has ended; a zombie has."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def send(descriptor: int, number: int, flags: int = 0) -> bool:
    """Signal through the pidfd; False when there is nobody.  Raises OSError."""
    try:
        signal.pidfd_send_signal(descriptor, number, None, flags)
    except ProcessLookupError:
        return False
    return True


def send_group(descriptor: int, pid: int, number: int) -> bool:
    """Signal the group that process `pid` behind the pidfd leads or led; False when none is left.

    Zombies count as left.  On a kernel older than 6.9, a group whose leader has ended can't be
    told from another group of its number, and gets nothing.  Raises OSError.
    """
    try:
        return send(descriptor, number, PROCESS_GROUP)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    return kill_group(descriptor, pid, number)


def kill_group(descriptor: int, pid: int, number: int) -> bool:
    """The same by the group's number; for kernels that can't do it through a pidfd."""
    # While the leader lives, its PID and with it the number of its group are nobody else's.
    if has_ended(descriptor) or os.getpgid(pid) != pid:
        return False
    try:
        os.killpg(pid, number)  # noqa: TID251 - one of the two modules that signal
    except ProcessLookupError:
        return False
    return True


def group_lives(descriptor: int, pid: int) -> bool:
    """True while a process of the group that `pid` leads or led is alive; zombies are not."""
    if not has_ended(descriptor):
        return True
    try:
        return send(descriptor, 0, PROCESS_GROUP) and _has_live_member(pid)
    except OSError:
        return False


def release_memory(descriptor: int) -> None:
    """Help a killed process to give its memory back; returns at once, and nothing where the kernel
    can't."""
    with contextlib.suppress(OSError, RuntimeError):
        copy = os.dup(descriptor)
        try:
            _thread.start_new_thread(_release, (copy,))
        except RuntimeError:
            os.close(copy)


def _release(descriptor: int) -> None:
    # Freeing many GiB takes seconds; at the sampler's own priority it would hold a core so long.
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    try:
        import ctypes

        ctypes.CDLL(None).syscall(_MRELEASE, descriptor, 0)
    finally:
        os.close(descriptor)


def _has_live_member(group: int) -> bool:
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
            if int(fields[2]) == group and fields[0] not in (b"Z", b"X"):
                return True
    return False
