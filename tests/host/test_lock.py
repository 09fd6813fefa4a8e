from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumbridge_compute.host.lock import (
    LockHolder,
    NodeLock,
    parse_flocks,
    read_lock_holder,
    try_lock,
)
from lumbridge_compute.host.procfs import read_boot_id, read_process, read_uptime_s
from tests.host.zoo import Zoo

HOLD = """
import sys
from lumbridge_compute.host.lock import try_lock
lock = try_lock(sys.argv[1], "scene activate a", client_pid=77)
print(type(lock).__name__, flush=True)
sys.stdin.readline()
lock.release()
print("released", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "lock")


@pytest.fixture
def locked(path: str) -> Iterator[NodeLock]:
    lock = try_lock(path, "scene resume")
    assert isinstance(lock, NodeLock)
    yield lock
    lock.release()


def taken(path: str) -> bool:
    """Take the lock and give it back; False when it is held."""
    lock = try_lock(path, "test")
    if isinstance(lock, NodeLock):
        lock.release()
        return True
    return False


def test_a_second_process_is_told_who_holds_the_lock(zoo: Zoo, path: str) -> None:
    child = zoo.python(HOLD, path)
    assert zoo.line(child) == "NodeLock"
    for holder in (try_lock(path, "test"), read_lock_holder(path)):
        assert isinstance(holder, LockHolder)
        assert (holder.pid, holder.command, holder.client_pid) == (
            child.pid,
            "scene activate a",
            77,
        )
        assert holder.age_s is not None
        assert 0 <= holder.age_s < 60
    assert child.stdin is not None
    child.stdin.write("release\n")
    child.stdin.flush()
    assert zoo.line(child) == "released"
    assert read_lock_holder(path) is None
    assert taken(path)


def test_the_lock_ends_with_its_holder(zoo: Zoo, path: str) -> None:
    child = zoo.python(HOLD, path)
    zoo.line(child)
    assert not taken(path)
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert "scene activate a" in Path(path).read_text()
    assert read_lock_holder(path) is None
    assert taken(path)


def test_the_file_is_private_and_stays(path: str, locked: NodeLock) -> None:
    assert os.stat(path).st_mode & 0o7777 == 0o600
    info = json.loads(Path(path).read_text())
    assert info["pid"] == os.getpid()
    assert info["since"].endswith("Z")
    locked.release()
    locked.release()
    assert Path(path).read_bytes() == b""


def test_one_process_holds_it_once(path: str, locked: NodeLock) -> None:
    holder = try_lock(path, "test")
    assert isinstance(holder, LockHolder)
    assert (holder.pid, holder.command) == (os.getpid(), "scene resume")
    locked.release()
    assert taken(path)


def test_a_lock_that_nobody_holds_has_no_holder_whatever_its_file_says(path: str) -> None:
    assert read_lock_holder(path) is None
    row = read_process(os.getppid())
    assert row is not None
    Path(path).write_text(
        json.dumps(
            {
                "pid": row.pid,
                "start_ticks": row.start_ticks,
                "boot_id": read_boot_id(),
                "command": "scene activate x",
                "since": "2025-01-01T00:00:00Z",
                "since_uptime_s": read_uptime_s(),
                "client_pid": None,
            }
        )
    )
    assert read_lock_holder(path) is None
    assert taken(path)


@pytest.mark.parametrize(
    "change",
    [
        {"boot_id": "another"},
        {"start_ticks": 1},
        {"pid": 1 << 22},
        {"pid": "x"},
        {"since_uptime_s": None},
        {"since_uptime_s": 10**400},
        {"start_ticks": float("inf")},
        "[" * 4000,
        "\0" * 100,
    ],
    ids=lambda change: str(change)[:30].replace("\0", "0"),
)
def test_what_the_file_says_of_another_process_is_not_believed(
    path: str, locked: NodeLock, change: dict[str, object] | str
) -> None:
    info = json.loads(Path(path).read_text())
    text = change if isinstance(change, str) else json.dumps({**info, **change})
    with open(path, "r+") as file:
        file.truncate()
        file.write(text)
    for holder in (try_lock(path, "test"), read_lock_holder(path)):
        assert isinstance(holder, LockHolder)
        assert (holder.pid, holder.command, holder.client_pid) == (os.getpid(), "", None)


def test_a_file_put_in_place_of_the_lock_is_locked_anew(path: str, locked: NodeLock) -> None:
    os.unlink(path)
    assert read_lock_holder(path) is None
    assert taken(path)


def test_a_link_in_place_of_the_lock_is_not_followed(path: str, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("precious")
    os.symlink("elsewhere", path)
    with pytest.raises(OSError, match="symbolic links"):
        try_lock(path, "test")
    assert (tmp_path / "elsewhere").read_text() == "precious"


def test_a_refusal_leaves_no_descriptor(path: str, locked: NodeLock) -> None:
    before = os.listdir("/proc/self/fd")
    try_lock(path, "test")
    read_lock_holder(path)
    assert os.listdir("/proc/self/fd") == before


def test_the_device_may_differ_where_the_pid_agrees(
    path: str, locked: NodeLock, tmp_path: Path
) -> None:
    """As on file systems whose devices in /proc/locks are not those of stat."""
    inode, pid = os.stat(path).st_ino, os.getpid()
    proc = tmp_path / "proc"
    proc.mkdir()
    for name in (str(pid), "uptime", "sys"):
        (proc / name).symlink_to(f"/proc/{name}")
    for holder, expected in ((pid, pid), (pid + 1, None)):
        (proc / "locks").write_text(f"1: FLOCK  ADVISORY  WRITE {holder} ff:fe:{inode} 0 EOF\n")
        found = read_lock_holder(path, proc=str(proc))
        assert (found and found.pid) == expected


def test_waiters_and_other_kinds_of_locks_are_no_holders() -> None:
    text = (
        b"1: FLOCK  ADVISORY  WRITE 12 08:1a:77 0 EOF\n"
        b"1: -> FLOCK  ADVISORY  WRITE 13 08:1a:77 0 EOF\n"
        b"2: POSIX  ADVISORY  WRITE 14 08:1a:78 0 EOF\n"
        b"3: OFDLCK ADVISORY  READ -1 00:1a:79 0 EOF\n"
    )
    assert parse_flocks(text) == [(12, os.makedev(8, 0x1A), 77)]


@given(st.binary())
def test_any_text_in_place_of_the_locks_is_read_without_an_error(data: bytes) -> None:
    assert parse_flocks(data + b"\n1: FLOCK A B x 0:0:y") == parse_flocks(data)
