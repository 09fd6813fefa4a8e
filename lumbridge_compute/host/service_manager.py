"""The service manager: what it is told, and what it keeps from one agent to the next.

Where none listens, nothing happens here, and none is needed: a message that can't be delivered is
dropped, and a descriptor that was not kept is opened anew.

Source: sd_notify(3), sd_watchdog_enabled(3), sd_listen_fds(3); systemd.service(5)
FileDescriptorStoreMax=.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import socket
import time
from collections.abc import Sequence

_SOCKET = "NOTIFY_SOCKET"
_STORED = "FDNAME=gateway"
_FIRST_DESCRIPTOR = 3  # SD_LISTEN_FDS_START
_DESCRIPTORS_A_MESSAGE = 253  # SCM_MAX_FD of the kernel
_ASSIGNMENT_BYTES = 1024  # systemd drops a message above 4096 bytes whole
_SEND_TIMEOUT_S = 1.0
_HANDED_OVER = ("LISTEN_PID", "LISTEN_PIDFDID", "LISTEN_FDS", "LISTEN_FDNAMES")


def notify(*assignments: str) -> bool:
    """Tell `assignments`, such as "READY=1", in one message.  True when it is on its way.

    Each is one line of at most 1 KiB: what is more is cut off.  While the service manager is busy
    with more messages than the kernel queues, this blocks, for a second at most.
    """
    return _send(assignments, ())


def notify_reloading() -> bool:
    """Tell that the configuration is being read again; `notify("READY=1")` ends that."""
    return notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")


def watchdog_period_s() -> float | None:
    """Within which time WATCHDOG=1 is wanted, again and again; None where nobody waits for it."""
    wanted = os.environ.get("WATCHDOG_USEC", "")
    pid = os.environ.get("WATCHDOG_PID") or str(os.getpid())
    if not os.environ.get(_SOCKET) or not _is_number(wanted) or pid != str(os.getpid()):
        return None
    return int(wanted) / 1_000_000 or None


def store_descriptors(descriptors: Sequence[int]) -> bool:
    """Leave copies of `descriptors` with the service manager, which hands them to the next agent.

    It keeps each open file once, and until `forget_descriptors`, also when a socket's peer hangs
    up.  True when all are on their way.
    """
    words = ("FDSTORE=1", _STORED, "FDPOLL=0")
    starts = range(0, len(descriptors), _DESCRIPTORS_A_MESSAGE)
    return all(
        _send(words, descriptors[start : start + _DESCRIPTORS_A_MESSAGE]) for start in starts
    )


def forget_descriptors() -> bool:
    """Let the service manager close every descriptor that was left with it."""
    return notify("FDSTOREREMOVE=1", _STORED)


def take_descriptors() -> list[int]:
    """The descriptors that the service manager hands over; they belong to the caller.

    They are not inherited by children, and the variables that announce them leave the environment:
    a second call gives none.
    """
    said = {name: os.environ.pop(name, "") for name in _HANDED_OVER}
    if said["LISTEN_PID"] != str(os.getpid()) or not _is_number(said["LISTEN_FDS"]):
        return []
    announced = range(_FIRST_DESCRIPTOR, _FIRST_DESCRIPTOR + int(said["LISTEN_FDS"]))
    return list(itertools.takewhile(_keep_to_ourselves, announced))


def _keep_to_ourselves(descriptor: int) -> bool:
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
    except OSError:  # announced, and not there
        return False
    return True


def _send(assignments: Sequence[str], descriptors: Sequence[int]) -> bool:
    address = os.environ.get(_SOCKET, "")
    if address.startswith("@"):
        address = "\0" + address[1:]
    elif not address.startswith("/"):
        return False
    message = b"\n".join(_one_line(each) for each in assignments)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.settimeout(_SEND_TIMEOUT_S)
            sock.connect(address)
            socket.send_fds(sock, [message], list(descriptors))
    except OSError:
        return False
    return True


def _one_line(text: str) -> bytes:
    """`text` as systemd takes it: UTF-8 without line breaks and NULs.

    A character that the cut leaves incomplete goes as a whole.
    """
    line = text.replace("\n", " ").replace("\0", " ").encode(errors="replace")
    return line[:_ASSIGNMENT_BYTES].decode(errors="ignore").encode()


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()
