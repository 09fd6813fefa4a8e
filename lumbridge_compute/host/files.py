"""Files of the node: reading within bounds, and the pieces of an atomic replacement.

Everything in the private folder is reached through a descriptor of it, so that long roots work
and nothing is written through a symbolic link.

Source: open(2), rename(2), fsync(2).
"""

from __future__ import annotations

import enum
import errno
import os
import shlex
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from lumbridge_compute.errors import BadInput, Refused

PRIVATE_FOLDER = ".kuda"
_PRIVATE_FILE_MODE = 0o600
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK_BYTES = 1 << 20


class Fault(enum.Enum):
    """Why a file that is there can't be read: the cause, and the operator's next step."""

    FOLDER = "it is a folder", "look at what is in it, then move it away: mv {0} {0}.old"
    SPECIAL = "it is not a regular file", "look what it is: ls -ld {0}"
    DANGLING = "it is a symbolic link to nothing", "see where it leads: ls -ld {0}"
    LOOP = "it is a symbolic link that leads back to itself", "see where it leads: ls -ld {0}"
    FORBIDDEN = "permission denied", "run the command as the owner of the file: ls -ld {0}"
    TOO_LARGE = "it is too large", "look what it is: ls -ld {0}"
    BROKEN = "the disk does not give it", "look at the disk and its file system: dmesg | tail"


class Unreadable(BadInput):
    """A file is there and can't be read; the message is a sentence with the file's name."""

    def __init__(self, path: str, fault: Fault, detail: str | None = None) -> None:
        cause, hint = fault.value
        super().__init__(f"cannot read {path!r}: {detail or cause}", hint.format(shlex.quote(path)))
        self.path = path
        self.fault = fault


def read_bounded(
    path: str, limit_bytes: int, *, folder: int | None = None, shown: str | None = None
) -> bytes | None:
    """The whole of a regular file; None when nothing has that name.

    `path` is relative to the descriptor `folder` where given; `shown` is the name for sentences.
    Links are followed.  Raises Unreadable for all else.
    """
    shown = shown or path
    try:
        # Without O_NONBLOCK, a FIFO would hold us until somebody writes to it.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=folder)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not _is_link(path, folder):
            return None
        raise _judge(error, shown) from error
    try:
        return _read_open(descriptor, limit_bytes, shown)
    finally:
        os.close(descriptor)


def _read_open(descriptor: int, limit_bytes: int, shown: str) -> bytes:
    status = os.fstat(descriptor)
    if stat.S_ISDIR(status.st_mode):
        raise Unreadable(shown, Fault.FOLDER)
    if not stat.S_ISREG(status.st_mode):
        raise Unreadable(shown, Fault.SPECIAL)
    data = bytearray()
    try:
        while chunk := os.read(descriptor, min(_CHUNK_BYTES, limit_bytes + 1 - len(data))):
            data += chunk
            if len(data) > limit_bytes:
                size = f"it has more than {limit_bytes} bytes"
                raise Unreadable(shown, Fault.TOO_LARGE, size)
    except OSError as error:
        raise Unreadable(shown, Fault.BROKEN, error.strerror) from error
    return bytes(data)


def _judge(error: OSError, shown: str) -> Unreadable:
    if isinstance(error, FileNotFoundError):
        return Unreadable(shown, Fault.DANGLING)
    if isinstance(error, PermissionError):
        return Unreadable(shown, Fault.FORBIDDEN)
    if error.errno == errno.ELOOP:
        return Unreadable(shown, Fault.LOOP)
    if error.errno == errno.ENXIO:  # a socket
        return Unreadable(shown, Fault.SPECIAL)
    return Unreadable(shown, Fault.BROKEN, error.strerror)


def _is_link(path: str, folder: int | None) -> bool:
    try:
        return stat.S_ISLNK(os.stat(path, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False


def make_private_folder(root: str) -> None:
    """Make `root`/.kuda with mode 0700 where it is missing.

    Raises Refused where it can't be made, or what has that name is no folder, a link, or writable
    by others.
    """
    path = os.path.join(root, PRIVATE_FOLDER)
    try:
        with suppress(FileExistsError):
            os.mkdir(path, 0o700)
            _fsync_path(root)
        mode = os.stat(path, follow_symlinks=False).st_mode
    except OSError as error:
        raise Refused(
            f"cannot make the folder {path!r}: {error.strerror}",
            f"run the command as the owner of {root!r}, on a disk that takes writes",
        ) from error
    _check_private(path, mode)


def _check_private(path: str, mode: int) -> None:
    quoted = shlex.quote(path)
    if stat.S_ISLNK(mode):
        raise Refused(
            f"cannot use {path!r}: it is a symbolic link, wanted a folder",
            f"see where it leads, then put the folder itself in its place: ls -ld {quoted}",
        )
    if not stat.S_ISDIR(mode):
        raise Refused(
            f"cannot use {path!r}: it is not a folder", f"move it away: mv {quoted} {quoted}.old"
        )
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise Refused(
            f"cannot use {path!r}: others may write to it, its mode is "
            f"{stat.S_IMODE(mode):04o}, wanted 0700",
            f"look at what is in it, then: chmod 700 {quoted}",
        )


@contextmanager
def open_private_folder(root: str) -> Iterator[int]:
    """A descriptor of `root`/.kuda for the length of a block; it has to exist.

    Raises OSError, and NotADirectoryError for a link or a file in its place.
    """
    descriptor = os.open(os.path.join(root, PRIVATE_FOLDER), _OPEN_FOLDER)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def create(folder: int, name: str, data: bytes) -> None:
    """Write a new file of mode 0600; raises FileExistsError rather than touch an old one."""
    descriptor = os.open(name, _CREATE, _PRIVATE_FILE_MODE, dir_fd=folder)
    try:
        _write_all(descriptor, data)
    finally:
        os.close(descriptor)


def fsync(folder: int, name: str) -> None:
    """Return when the content of a file is on the disk."""
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def rename(folder: int, source: str, target: str) -> None:
    """Put `source` in the place of `target`: a reader sees the old file or the new."""
    os.rename(source, target, src_dir_fd=folder, dst_dir_fd=folder)


def remove(folder: int, name: str) -> None:
    """Remove a file; one that is missing is as good as removed."""
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _fsync_path(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
