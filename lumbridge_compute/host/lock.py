"""The exclusive lock of the node, and who holds it.

The kernel frees a flock when its holder ends, however.  The holder writes who it is into the
file; that text is believed only while the process it names lives.

Source: flock(2), proc_locks(5).
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from contextlib import suppress

from lumbridge_compute.core.identity import Identity
from lumbridge_compute.core.values import dataclass
from lumbridge_compute.host.procfs import (
    PROC,
    read_boot_id,
    read_file,
    read_process,
    read_uptime_s,
    ticks_to_seconds,
)

LOCK_NAME = "lock"
AGENT_LOCK_NAME = "agent.lock"
_INFO_LIMIT_BYTES = 4096
_OPEN = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_TRIES = 5


@dataclass(frozen=True, slots=True)
class LockHolder:
    """Who holds a lock.

    `pid` is 0 where the kernel hides it (another pid namespace).  `age_s` is seconds since it took
    the lock, else since its process started, else None.  `client_pid` is the command that an agent
    holds it for.
    """

    pid: int
    command: str = ""
    age_s: float | None = None
    client_pid: int | None = None


@dataclass(frozen=True, slots=True)
class _Info:
    """What the holder wrote about itself."""

    identity: Identity
    command: str
    since_uptime_s: float
    client_pid: int | None


class NodeLock:
    """A lock that is held.  Release it; it ends with the process in any case."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def is_at(self, path: str, folder: int | None = None) -> bool:
        """False once another file, or none, is at `path`: then it keeps nobody out.

        Raises OSError.
        """
        return _is_file_at(self._descriptor, path, folder)

    def release(self) -> None:
        """Free the lock; its file stays, empty.  Releasing twice is harmless."""
        if self._descriptor < 0:
            return
        # Else the next holder would go by our name until it has written its own.
        with suppress(OSError):
            os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)
        self._descriptor = -1


def try_lock(
    path: str, command: str, *, folder: int | None = None, client_pid: int | None = None
) -> NodeLock | LockHolder:
    """Take the lock of file `path` without waiting, else tell who holds it.

    The file is made when missing (mode 0600) and never deleted.  `path` is relative to the
    descriptor `folder` where given.  Raises OSError.
    """
    for _ in range(_TRIES):
        descriptor = os.open(path, _OPEN, 0o600, dir_fd=folder)
        try:
            if (found := _take(descriptor, path, folder, command, client_pid)) is not None:
                return found
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
    return LockHolder(pid=0)


def read_lock_holder(
    path: str, *, folder: int | None = None, proc: str = PROC
) -> LockHolder | None:
    """Who holds the lock of file `path`, without taking it; None when nobody does, or no file.

    Raises OSError where the file is there and can't be read.
    """
    try:
        # Without O_NONBLOCK a FIFO of that name would hold us up until someone writes to it.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        descriptor = os.open(path, flags, dir_fd=folder)
    except FileNotFoundError:
        return None
    try:
        return _holder_of(descriptor, proc)
    finally:
        os.close(descriptor)


def parse_flocks(data: bytes) -> list[tuple[int, int, int]]:
    """The held flocks of /proc/locks: pid, device (as st_dev), inode.

    Waiting ones, with `->` after the number, are left out.
    """
    found = []
    for line in data.decode("ascii", "replace").splitlines():
        words = line.split()
        if len(words) < 6 or words[1] != "FLOCK":
            continue
        try:
            major, minor, inode = words[5].split(":")
            device = os.makedev(int(major, 16), int(minor, 16))
            found.append((int(words[4]), device, int(inode)))
        except ValueError:
            continue
    return found


def _take(
    descriptor: int, path: str, folder: int | None, command: str, client_pid: int | None
) -> NodeLock | LockHolder | None:
    """Lock the open file, or tell who holds it; None when the file or the holder has gone."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = _holder_of_refusal(descriptor)
        if holder is not None:
            os.close(descriptor)
        return holder
    if not _is_file_at(descriptor, path, folder):  # removed meanwhile: lock the new one
        return None
    _write_info(descriptor, command, client_pid)
    return NodeLock(descriptor)


def _holder_of(descriptor: int, proc: str = PROC) -> LockHolder | None:
    """The holder by /proc/locks; None when it shows none."""
    info = _read_info(descriptor)
    status = os.fstat(descriptor)
    for pid, device, inode in parse_flocks(read_file(f"{proc}/locks") or b""):
        # Some file systems tell another device number here than stat does.
        named = info is not None and info.identity.pid == pid
        if inode == status.st_ino and (device == status.st_dev or named):
            return _describe(pid, info, proc)
    return None


def _holder_of_refusal(descriptor: int) -> LockHolder | None:
    """The holder, by its own word alone where /proc/locks hides it; None when it has let go."""
    if (holder := _holder_of(descriptor)) is not None:
        return holder
    info = _read_info(descriptor)
    if info is None:
        return None
    holder = _describe(info.identity.pid, info, PROC)
    return holder if holder.command else None


def _describe(pid: int, info: _Info | None, proc: str) -> LockHolder:
    """Tell of the process `pid` what `info` says, where `info` is its own."""
    row = read_process(pid, proc)
    if row is None or not row.alive:
        return LockHolder(pid)
    now_s = read_uptime_s(proc)
    if info is None or info.identity != Identity(read_boot_id(proc), pid, row.start_ticks):
        return LockHolder(pid, age_s=max(0.0, now_s - ticks_to_seconds(row.start_ticks)))
    return LockHolder(pid, info.command, max(0.0, now_s - info.since_uptime_s), info.client_pid)


def _write_info(descriptor: int, command: str, client_pid: int | None) -> None:
    pid = os.getpid()
    row = read_process(pid)
    info = {
        "pid": pid,
        "start_ticks": row.start_ticks if row is not None else 0,
        "boot_id": read_boot_id(),
        "command": command,
        "since": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "since_uptime_s": read_uptime_s(),
        "client_pid": client_pid,
    }
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(info).encode() + b"\n", 0)
    except OSError as error:
        # The name is a courtesy: on a full disk the lock still holds.
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise


def _read_info(descriptor: int) -> _Info | None:
    try:
        info = json.loads(os.pread(descriptor, _INFO_LIMIT_BYTES, 0))
        identity = Identity(str(info["boot_id"]), int(info["pid"]), int(info["start_ticks"]))
        client_pid = info["client_pid"]
        return _Info(
            identity,
            str(info["command"]),
            float(info["since_uptime_s"]),
            client_pid if isinstance(client_pid, int) else None,
        )
    except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None


def _is_file_at(descriptor: int, path: str, folder: int | None) -> bool:
    try:
        at_path = os.stat(path, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(descriptor), at_path)
