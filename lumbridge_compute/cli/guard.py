"""Who may change a node: its owner, and root only where nobody else decides what is run; and no
process that would run out of descriptors half-way."""

from __future__ import annotations

import os
import resource
import stat

from lumbridge_compute.cli.call import REGISTRY_FILE
from lumbridge_compute.errors import Refused

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_DESCRIPTORS = 64
"""What a transaction may need at a time: 16, and up to 4 for each model that it stops and starts,
on the way back too."""


def check_owner(root: str, arguments: str) -> None:
    """Refuse a command whose user does not own the node's root; `arguments` are for the hint.

    As root, also where someone else could have written the commands that would be run.
    Raises Refused.
    """
    uid, folder = os.geteuid(), _stat(root)
    if folder.st_uid != uid:
        owner = _name(folder.st_uid)
        raise Refused(
            f"cannot change the node at {root!r}: its folder belongs to {owner}, this command runs "
            f"as {_name(uid)}",
            f"sudo -u {owner} lumbridge-compute --root {_quoted(root)} {arguments}",
        )
    if uid == 0:
        registry = os.path.join(root, REGISTRY_FILE)
        _check_closed(root, folder, "folder")
        if os.path.exists(registry):
            _check_closed(registry, _stat(registry), "registry")
            if os.path.islink(registry):
                # Who may write to the folder that it really lies in may put another in its place.
                real = os.path.dirname(os.path.realpath(registry))
                _check_closed(real, _stat(real), "registry's folder")


def check_descriptors() -> None:
    """Refuse where too few files may be opened: the old Scene would be stopped and no other
    started.  Raises Refused."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return
    try:
        free = limit - len(os.listdir("/proc/self/fd"))
    except OSError:
        free = 0  # not even one for that folder
    if free < _DESCRIPTORS:
        raise Refused(
            f"cannot change the node with {max(0, free)} free descriptors, wanted {_DESCRIPTORS}: "
            f"this process may open {limit} files",
            "ulimit -n 1024, then repeat",
        )


def _check_closed(path: str, status: os.stat_result, what: str) -> None:
    if status.st_uid != 0:
        raise Refused(
            f"cannot run as root what others may change: the {what} {path!r} belongs to "
            f"{_name(status.st_uid)}",
            f"chown root {_quoted(path)}",
        )
    if status.st_mode & _OTHERS_WRITE:
        mode = stat.S_IMODE(status.st_mode)
        raise Refused(
            f"cannot run as root what others may change: the {what} {path!r} is writable by others "
            f"(mode {mode:04o})",
            f"chmod go-w {_quoted(path)}",
        )


def _stat(path: str) -> os.stat_result:
    try:
        return os.stat(path)
    except OSError as error:
        raise Refused(
            f"cannot look at {path!r}: {error.strerror}", "mend its permissions"
        ) from error


def _name(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"#{uid}"


def _quoted(path: str) -> str:
    import shlex

    return shlex.quote(path)
