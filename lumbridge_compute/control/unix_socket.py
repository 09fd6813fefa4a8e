"""The control socket in the node's private folder, and who is at its other end.

It is bound through a descriptor of the folder: the path of a unix socket holds 107 bytes, a root
may be longer.

Source: unix(7), "Address format" and SO_PEERCRED; proc(5), /proc/PID/fd.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from lumbridge_compute.control.protocol import SOCKET_NAME
from lumbridge_compute.errors import Refused
from lumbridge_compute.host.files import make_private_folder, open_private_folder

_BACKLOG = 64
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


@contextmanager
def open_control_socket(root: str) -> Iterator[socket.socket]:
    """The listening socket of the agent at `root`, mode 0600; its file is gone after the block.

    What an earlier agent left is replaced, so the caller holds the agent's lock.  Raises Refused.
    """
    make_private_folder(root)
    with open_private_folder(root) as folder, socket.socket(socket.AF_UNIX) as sock:
        try:
            _bind(sock, folder)
        except OSError as error:
            raise Refused(
                f"cannot make the control socket in {root!r}: {error.strerror or error}",
                f"look at what is there: ls -ld {SOCKET_NAME}",
            ) from error
        try:
            yield sock
        finally:
            with suppress(OSError):
                os.unlink(SOCKET_NAME, dir_fd=folder)


def _bind(sock: socket.socket, folder: int) -> None:
    """Nobody can connect before the mode is right: it does not listen until then."""
    new = f"{SOCKET_NAME}.new"
    with suppress(FileNotFoundError):
        os.unlink(new, dir_fd=folder)
    sock.bind(f"/proc/self/fd/{folder}/{new}")
    os.chmod(new, 0o600, dir_fd=folder)
    os.rename(new, SOCKET_NAME, src_dir_fd=folder, dst_dir_fd=folder)
    sock.settimeout(0)
    sock.listen(_BACKLOG)


def read_peer_uid(descriptor: int) -> int:
    """The user who made the connection.  Raises OSError."""
    with socket.socket(fileno=os.dup(descriptor)) as sock:
        data = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    uid: int = _CREDENTIALS.unpack(data)[1]
    return uid
