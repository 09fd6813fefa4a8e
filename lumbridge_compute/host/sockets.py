"""Who listens on a TCP port: the LISTEN sockets, and the processes that hold them.

Source: proc_net_tcp(5); the kernel's include/net/tcp_states.h (LISTEN is 0A).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection
from contextlib import suppress
from socket import AF_INET, AF_INET6, inet_ntop

from lumbridge_compute.core.world import Listener
from lumbridge_compute.host.procfs import PROC, raise_if_blind, read_file, read_pids
from lumbridge_compute.host.sock_diag import read_diag_listeners

_LISTEN_ROW = re.compile(
    rb"^ *\d+: (?P<address>[0-9A-F]{8}|[0-9A-F]{32}):(?P<port>[0-9A-F]{4}) [0-9A-F]+:[0-9A-F]{4} 0A"
    rb" \S+ \S+ \S+ +(?P<uid>\d+) +\d+ (?P<inode>\d+)",
    re.MULTILINE,
)


def read_listeners(
    ports: Collection[int], among: Collection[int] | None = None, proc: str = PROC
) -> tuple[Listener, ...]:
    """Every LISTEN socket of `ports`, IPv4 and IPv6, with the processes seen to hold it.

    Holders are looked for in every process, or only `among` these PIDs: a socket of theirs may
    then be held by others too.
    Those of our own network namespace (by netlink; by `proc`, where that is another or netlink is
    closed to us); `who` is left empty.  Raises OSError where we can't look.
    """
    wanted = frozenset(ports)
    found = [listener for listener in _read_all(proc) if listener.port in wanted]
    if not found:
        return ()
    holders = read_holders({listener.inode for listener in found}, among, proc)
    return tuple(
        Listener(
            listener.address,
            listener.port,
            listener.inode,
            listener.uid,
            holders.get(listener.inode, frozenset()),
        )
        for listener in found
    )


def _read_all(proc: str) -> list[Listener]:
    if proc == PROC:
        with suppress(OSError):
            return read_diag_listeners()
    return [
        listener
        for name in ("tcp", "tcp6")
        for listener in parse_listeners(read_file(f"{proc}/net/{name}") or b"")
    ]


def parse_listeners(data: bytes) -> list[Listener]:
    """The LISTEN rows of /proc/net/tcp or tcp6, holders not known."""
    return [
        Listener(
            address=parse_address(row["address"].decode("ascii")),
            port=int(row["port"], 16),
            inode=int(row["inode"]),
            uid=int(row["uid"]),
        )
        for row in _LISTEN_ROW.finditer(data)
    ]


def parse_address(text: str) -> str:
    """An address as the kernel prints it (32-bit words in the byte order of the machine).

    An IPv4 address mapped into IPv6 is told as IPv4: that is what it listens on.
    """
    words = (int(text[at : at + 8], 16) for at in range(0, len(text), 8))
    packed = b"".join(word.to_bytes(4, sys.byteorder) for word in words)
    mapped = b"\0" * 10 + b"\xff\xff"
    if len(packed) == 16 and packed.startswith(mapped):
        packed = packed[12:]
    return inet_ntop(AF_INET6 if len(packed) == 16 else AF_INET, packed)


def read_holders(
    inodes: Collection[int], among: Collection[int] | None = None, proc: str = PROC
) -> dict[int, frozenset[int]]:
    """For each socket inode, the PIDs with a descriptor of it; those hidden from us are left out.

    All of proc is looked through, or only the processes `among`: more than one may hold a socket.
    """
    targets = {f"socket:[{inode}]": inode for inode in inodes}
    found: dict[int, set[int]] = {}
    for pid in read_pids(proc) if among is None else among:
        folder = f"{proc}/{pid}/fd"
        try:
            names = os.listdir(folder)
        except OSError as error:
            raise_if_blind(error)
            continue
        for name in names:
            try:
                target = os.readlink(f"{folder}/{name}")
            except OSError as error:
                raise_if_blind(error)
                continue
            if target in targets:
                found.setdefault(targets[target], set()).add(pid)
    return {inode: frozenset(pids) for inode, pids in found.items()}
