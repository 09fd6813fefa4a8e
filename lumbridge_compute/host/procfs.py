"""What /proc tells: processes, sessions, environments, cgroups, memory.

Every reader takes the root folder of proc.  A process that vanishes while it is being read, or
that we may not read, is left out; nothing here raises for that.  When it is we who can't read
(out of descriptors or memory), that is raised as OSError: blind is not the same as nobody there.

Source: proc(5), proc_pid_stat(5), proc_pid_environ(5), proc_pid_cgroup(5), proc_meminfo(5).
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Collection, Iterator, Mapping

from lumbridge_compute.core.identity import Process
from lumbridge_compute.core.launch import TOKEN_VARIABLE
from lumbridge_compute.core.world import Memory

PROC = "/proc"
_CHUNK_BYTES = 65536
_KERNEL_THREAD = 0x00200000  # PF_KTHREAD
_BLIND = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
_EXEC_S = 0.25  # of waiting for one that a busy machine leaves in the middle of it
_SWEEPS = 50  # ended by a machine that forks without pause; else by nothing new


def read_file(path: str) -> bytes | None:
    """The whole of a proc file; None where it is gone or hidden from us.

    Raises OSError where we have no descriptor left to look.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise_if_blind(error)
        return None
    try:
        data = os.read(descriptor, _CHUNK_BYTES)
        if not data:
            return data
        # A short read is not the end: seq files hand out about a page at a time.
        parts = [data]
        while data := os.read(descriptor, _CHUNK_BYTES):
            parts.append(data)
        return b"".join(parts)
    except OSError as error:
        raise_if_blind(error)
        return None
    finally:
        os.close(descriptor)


def raise_if_blind(error: OSError) -> None:
    """Raise `error` where it tells of us, not of what we wanted to look at."""
    if error.errno in _BLIND:
        raise error


def read_boot_id(proc: str = PROC) -> str:
    """The id of this boot; raises OSError where the kernel hides it."""
    with open(f"{proc}/sys/kernel/random/boot_id", "rb") as file:
        return file.read().decode().strip()


def read_uptime_s(proc: str = PROC) -> float:
    """Seconds since boot, the clock that start ticks count on."""
    with open(f"{proc}/uptime", "rb") as file:
        return float(file.read().split()[0])


def ticks_to_seconds(ticks: int) -> float:
    """Clock ticks, as in `start_ticks`, in seconds."""
    return ticks / os.sysconf("SC_CLK_TCK")


def read_pids(proc: str = PROC) -> Iterator[int]:
    """Every PID, and then those that came meanwhile, unordered.

    A process that forks and ends between a look at the list and a look at itself would hide its
    child: whoever reads each PID when it is given has seen the one or sees the other.
    """
    seen: set[int] = set()
    for _ in range(_SWEEPS):
        fresh = {int(name) for name in os.listdir(proc) if name.isdecimal()} - seen
        if not fresh:
            return
        yield from fresh
        seen |= fresh


def parse_stat(data: bytes) -> Process | None:
    """One row of the process table; None where `data` is not a stat line.

    The name in field 2 may hold spaces and brackets, so the line is split after the last `)`.
    """
    head, bracket, tail = data.rpartition(b")")
    fields = tail.split()
    if not bracket or len(fields) < 20:
        return None
    try:
        return Process(
            pid=int(head.split(b" ", 1)[0]),
            parent_pid=int(fields[1]),
            group=int(fields[2]),
            session=int(fields[3]),
            state=fields[0].decode("ascii"),
            start_ticks=int(fields[19]),
            thread_count=int(fields[17]),
        )
    except ValueError:
        return None


def read_process(pid: int, proc: str = PROC) -> Process | None:
    """The row of `pid`; None when nothing visible has that PID."""
    data = read_file(f"{proc}/{pid}/stat")
    return parse_stat(data) if data else None


def read_processes(proc: str = PROC) -> dict[int, Process]:
    """The whole process table, zombies included."""
    rows = (read_process(pid, proc) for pid in read_pids(proc))
    return {row.pid: row for row in rows if row is not None}


def read_ancestors(pid: int, proc: str = PROC) -> frozenset[int]:
    """The parents of `pid`, up to the first process of its namespace; without `pid` itself."""
    found: set[int] = set()
    while (row := read_process(pid, proc)) is not None:
        pid = row.parent_pid
        if pid <= 0 or pid in found:
            break
        found.add(pid)
    return frozenset(found)


def read_own_pids(
    pid: int | None = None, proc: str = PROC, table: Mapping[int, Process] | None = None
) -> frozenset[int]:
    """The process `pid`, by default this one, its group and its ancestors: never targets of a
    signal.  Empty when `pid` is gone.  `table` saves reading the process table again."""
    own, table = pid or os.getpid(), read_processes(proc) if table is None else table
    if own not in table:
        return frozenset()
    group = table[own].group
    mates = {row.pid for row in table.values() if row.group == group}
    return frozenset({own, group, *mates}) | read_ancestors(own, proc)


def read_name(pid: int, proc: str = PROC) -> str | None:
    """The name of a process as the kernel keeps it, cut to 15 bytes; None when it is gone."""
    data = read_file(f"{proc}/{pid}/comm")
    return data.decode(errors="backslashreplace").rstrip("\n") if data else None


def read_carriers(tokens: Collection[str], proc: str = PROC) -> dict[str, frozenset[int]]:
    """For each token, the PIDs whose environment holds exactly it.

    Absence proves nothing: a process may overwrite its environment, and that of another user
    can't be read.
    """
    entries = {token: f"\0{TOKEN_VARIABLE}={token}\0".encode() for token in tokens}
    found: dict[str, set[int]] = {token: set() for token in tokens}
    variable = TOKEN_VARIABLE.encode()
    for pid in read_pids(proc) if entries else ():
        data = read_environment(pid, proc)
        if variable not in data:
            continue
        framed = b"\0" + data + b"\0"
        for token, entry in entries.items():
            if entry in framed:
                found[token].add(pid)
    return {token: frozenset(pids) for token, pids in found.items()}


def read_environment(pid: int, proc: str = PROC) -> bytes:
    """The environment of `pid`, each entry ended by a NUL; empty where there is none to be read.

    Waits, for a blink, for a process that is just in the middle of an exec: it has none then.
    """
    path = f"{proc}/{pid}/environ"
    data = read_file(path)
    if data != b"":
        return data or b""
    end = time.monotonic() + _EXEC_S
    while not data and _has_environment(pid, proc) and time.monotonic() < end:
        os.sched_yield()
        data = read_file(path)
    return data or b""


def _has_environment(pid: int, proc: str) -> bool:
    """True for a living process that has an environment, or is about to get one from its exec.

    Source: proc_pid_stat(5), field 9 (flags; PF_KTHREAD of the kernel's linux/sched.h), 26
    (startcode), 50 and 51 (env_start, env_end).  The kernel's fs/binfmt_elf.c sets the last two
    equal first, env_end to its place once the strings are counted, and startcode after that.
    """
    data = read_file(f"{proc}/{pid}/stat")
    fields = data.rpartition(b")")[2].split() if data else []
    if len(fields) < 50 or fields[0] in (b"Z", b"X") or int(fields[6]) & _KERNEL_THREAD:
        return False
    return b"0" in (fields[48], fields[23]) or fields[47] != fields[48]


def read_cgroup(pid: int, proc: str = PROC) -> str | None:
    """The cgroups of `pid`, one line a hierarchy; None when it is gone."""
    data = read_file(f"{proc}/{pid}/cgroup")
    return None if data is None else data.decode(errors="surrogateescape")


def parse_cgroup_paths(text: str) -> list[list[str]]:
    """The components of each path of a cgroup file.

    Source: cgroups(7), /proc/PID/cgroup: `hierarchy-ID:controller-list:cgroup-path`.
    """
    lines = (line.split(":", 2) for line in text.splitlines())
    return [parts[2].split("/") for parts in lines if len(parts) == 3]


def read_scope_members(scopes: Collection[str], proc: str = PROC) -> dict[str, frozenset[int]]:
    """For each scope, the PIDs that sit in its cgroup or below."""
    found: dict[str, set[int]] = {scope: set() for scope in scopes}
    needles = {scope: scope.encode() for scope in scopes}
    for pid, data in _read_each("cgroup", proc) if scopes else ():
        for scope, needle in needles.items():
            if needle not in data:
                continue
            paths = parse_cgroup_paths(data.decode(errors="surrogateescape"))
            if any(scope in path for path in paths):
                found[scope].add(pid)
    return {scope: frozenset(pids) for scope, pids in found.items()}


def read_memory(proc: str = PROC) -> Memory | None:
    """MemAvailable and MemTotal, in bytes; None where they can't be read."""
    try:
        return parse_meminfo(read_file(f"{proc}/meminfo") or b"")
    except OSError:
        return None


def parse_meminfo(data: bytes) -> Memory | None:
    """The two numbers out of the text of meminfo, which counts in KiB."""
    found: dict[bytes, int] = {}
    for line in data.splitlines():
        key, _, rest = line.partition(b":")
        words = rest.split()
        if key in (b"MemAvailable", b"MemTotal") and words and words[0].isdigit():
            found[key] = int(words[0]) * 1024
    if len(found) < 2:
        return None
    return Memory(available_bytes=found[b"MemAvailable"], total_bytes=found[b"MemTotal"])


def _read_each(name: str, proc: str) -> Iterator[tuple[int, bytes]]:
    for pid in read_pids(proc):
        if data := read_file(f"{proc}/{pid}/{name}"):
            yield pid, data
