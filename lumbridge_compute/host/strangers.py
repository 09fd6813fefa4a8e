"""Who holds a port that is not ours, named for a person."""

from __future__ import annotations

from lumbridge_compute.core.world import Listener
from lumbridge_compute.host.procfs import read_name

_CUT_AT_BYTES = 15  # TASK_COMM_LEN - 1: a name of this length may be cut
_NAMED = 3


def describe_holders(listener: Listener) -> str:
    """ "pid 7 (nginx)", else the socket's user where the kernel hides the holder from us."""
    if not listener.pids:
        return describe_user(listener.uid)
    pids = sorted(listener.pids)
    shown = ", ".join(describe_process(pid) for pid in pids[:_NAMED])
    more = len(pids) - _NAMED
    return f"{shown} and {more} more" if more > 0 else shown


def describe_process(pid: int) -> str:
    """ "pid 7 (nginx)"; "pid 7" when it has ended.

    The kernel keeps 15 bytes of a name.  psutil finds the rest in the command line; it costs 50 ms
    to load, so it is asked only for a name that may have been cut.
    """
    name = read_name(pid)
    if name is not None and len(name.encode()) >= _CUT_AT_BYTES:
        name = _whole_name(pid) or name
    return f"pid {pid} ({name})" if name else f"pid {pid}"


def describe_user(uid: int) -> str:
    """ "user www-data (uid 33)"; "uid 33" when the machine has no name for it."""
    import pwd

    try:
        return f"user {pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"


def _whole_name(pid: int) -> str | None:
    import psutil

    try:
        return str(psutil.Process(pid).name())
    except psutil.Error:
        return None
