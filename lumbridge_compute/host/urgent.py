"""Make this process one that is on time when the machine is not, each step where allowed.

Source: sched(7), mlockall(2), proc_pid_oom_score_adj(5), prctl(2).
"""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_MCL_CURRENT, _MCL_FUTURE, _MCL_ONFAULT = 1, 2, 4
_PRIORITY = 10  # any real-time priority is above every ordinary task


def end_with_parent(parent_pid: int) -> bool:
    """Be killed when the thread that started us ends; False when it has ended already."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    return os.getppid() == parent_pid


def set_name(name: str) -> None:
    """Name this process as ps shows it; the kernel keeps 15 bytes."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, ctypes.c_char_p(name.encode("ascii")), 0, 0, 0)


def take_priority() -> bool:
    """Run before every ordinary task; False where only niceness, or nothing, was allowed."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(_PRIORITY))
    except OSError:
        try:
            os.setpriority(os.PRIO_PROCESS, 0, -20)
        except OSError:
            return False
        return False
    return True


def lock_memory() -> bool:
    """Keep in memory what was used once; False where that is not allowed."""
    return not ctypes.CDLL(None).mlockall(_MCL_CURRENT | _MCL_FUTURE | _MCL_ONFAULT)


def avoid_oom_kill() -> bool:
    """Be the last that the kernel's OOM killer would take; False where that is not allowed."""
    try:
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write("-1000")
    except OSError:
        return False
    return True
