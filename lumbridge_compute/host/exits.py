"""How a process ended, as far as the kernel tells us.

Source: waitid(2); proc_pid_stat(5), field 52; the kernel's include/uapi/linux/pidfd.h.
"""

from __future__ import annotations

import fcntl
import os
import signal
import struct

from lumbridge_compute.core.identity import Identity
from lumbridge_compute.host.procfs import PROC, parse_stat, read_file

_INFO_SIZE = 64  # PIDFD_INFO_SIZE_VER0
_GET_INFO = (3 << 30) | (_INFO_SIZE << 16) | (0xFF << 8) | 11  # _IOWR(0xFF, 11, pidfd_info)
_INFO_EXIT = 1 << 3  # PIDFD_INFO_EXIT, Linux 6.15
_REMEMBERED = 256

_ends: dict[Identity, str] = {}
"""How our own children ended: the kernel tells once, but two handles may ask."""


def read_exit_cause(descriptor: int, identity: Identity) -> str | None:
    """How the process behind the pidfd ended: "exit code 1", "killed by SIGKILL".

    None while it lives, and where nobody tells.  Reaps it where it is our child.
    """
    if identity in _ends:
        return _ends[identity]
    try:
        result = os.waitid(os.P_PIDFD, descriptor, os.WEXITED | os.WNOHANG)
    except ChildProcessError:
        return _read_cause_of_stranger(descriptor, identity)
    if result is None:
        return None
    while len(_ends) >= _REMEMBERED:
        del _ends[next(iter(_ends))]
    if result.si_code == os.CLD_EXITED:
        _ends[identity] = _render_exit(result.si_status)
    else:
        _ends[identity] = _render_kill(result.si_status, dumped=result.si_code == os.CLD_DUMPED)
    return _ends[identity]


def read_zombie_status(pid: int, start_ticks: int, proc: str = PROC) -> int | None:
    """The wait status of a zombie; None where it is not one or the kernel hides it."""
    try:
        data = read_file(f"{proc}/{pid}/stat")
    except OSError:  # the cause is a courtesy, asked for by those who only clean up
        return None
    process = parse_stat(data) if data else None
    if data is None or process is None or process.alive or process.start_ticks != start_ticks:
        return None
    fields = data.rpartition(b")")[2].split()
    # Without the right to look into the process the kernel says 0: as good as nothing.
    return (int(fields[49]) or None) if len(fields) >= 50 else None


def _read_cause_of_stranger(descriptor: int, identity: Identity) -> str | None:
    status = _read_reaped_status(descriptor)
    if status is None:
        status = read_zombie_status(identity.pid, identity.start_ticks)
    if status is None:
        return None
    if os.WIFEXITED(status):
        return _render_exit(os.WEXITSTATUS(status))
    return _render_kill(os.WTERMSIG(status), dumped=os.WCOREDUMP(status))


def _read_reaped_status(descriptor: int) -> int | None:
    """The wait status of a process that its parent has reaped, where the kernel keeps it."""
    # struct pidfd_info: u64 mask and cgroupid, eleven u32 of ids, s32 exit_code.
    buffer = bytearray(_INFO_SIZE)
    struct.pack_into("=Q", buffer, 0, _INFO_EXIT)
    try:
        fcntl.ioctl(descriptor, _GET_INFO, buffer)
    except OSError:
        return None
    (mask,) = struct.unpack_from("=Q", buffer, 0)
    (status,) = struct.unpack_from("=i", buffer, _INFO_SIZE - 4)
    return int(status) if mask & _INFO_EXIT else None


def _render_exit(code: int) -> str:
    return f"exit code {code}"


def _render_kill(number: int, *, dumped: bool) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    return f"killed by {name}" + (" (core dumped)" if dumped else "")
