"""What a service manager would receive; a datagram socket plays its part."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lumbridge_compute.host.service_manager import (
    forget_descriptors,
    notify,
    notify_reloading,
    store_descriptors,
    watchdog_period_s,
)
from tests.host.zoo import Zoo

ABSTRACT = f"@lumbridge-test-{os.urandom(8).hex()}"


@pytest.fixture(params=["path", "abstract"])
def manager(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[socket.socket]:
    """The socket that is notified, by its name in the environment."""
    name = str(tmp_path / "notify") if request.param == "path" else ABSTRACT
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sock:
        sock.bind(name.replace("@", "\0"))
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        yield sock


def received(manager: socket.socket) -> list[str]:
    return manager.recv(65536).decode().split("\n")


def test_all_that_is_told_at_once_is_one_message(manager: socket.socket) -> None:
    assert notify("READY=1", "STATUS=at rest; floor 4 GiB")
    assert received(manager) == ["READY=1", "STATUS=at rest; floor 4 GiB"]


def test_a_status_can_not_smuggle_in_another_assignment(manager: socket.socket) -> None:
    assert notify("STATUS=two\nREADY=1\0lines \udc80", "WATCHDOG=1")
    assert received(manager) == ["STATUS=two READY=1 lines ?", "WATCHDOG=1"]


def test_a_long_status_does_not_cost_what_is_told_beside_it(manager: socket.socket) -> None:
    assert notify("STATUS=" + "ü" * 9000, "WATCHDOG=1")
    message = manager.recv(65536)
    assert len(message) <= 4096
    status, rest = message.decode().split("\n")
    assert status.startswith("STATUS=üü")
    assert rest == "WATCHDOG=1"


def test_a_reload_is_told_with_its_moment(manager: socket.socket) -> None:
    before = time.monotonic_ns() // 1000
    assert notify_reloading()
    after = time.monotonic_ns() // 1000
    word, moment = received(manager)
    assert word == "RELOADING=1"
    assert before <= int(moment.removeprefix("MONOTONIC_USEC=")) <= after


def test_stored_descriptors_are_the_very_same_files(manager: socket.socket) -> None:
    with socket.socket() as first, socket.socket() as second:
        assert store_descriptors([first.fileno(), second.fileno()])
        message, descriptors, _, _ = socket.recv_fds(manager, 4096, 10)
        assert message.decode().split("\n") == ["FDSTORE=1", "FDNAME=gateway", "FDPOLL=0"]
        inodes = [os.fstat(descriptor).st_ino for descriptor in descriptors]
        for descriptor in descriptors:
            os.close(descriptor)
        assert inodes == [os.fstat(sock.fileno()).st_ino for sock in (first, second)]


def test_more_descriptors_than_a_message_holds_go_in_several(manager: socket.socket) -> None:
    descriptors = [manager.fileno()] * 300
    assert store_descriptors(descriptors)
    counts = []
    for _ in range(2):
        _, got, _, _ = socket.recv_fds(manager, 4096, 300)
        counts.append(len(got))
        for descriptor in got:
            os.close(descriptor)
    assert counts == [253, 47]


def test_no_descriptors_are_no_message(manager: socket.socket) -> None:
    assert store_descriptors([])
    with pytest.raises(BlockingIOError):
        manager.recv(4096)


def test_stored_descriptors_are_forgotten_by_their_name(manager: socket.socket) -> None:
    assert forget_descriptors()
    assert received(manager) == ["FDSTOREREMOVE=1", "FDNAME=gateway"]


@pytest.mark.parametrize("address", [None, "", "vsock:2:1234", "relative", "/no/such/socket"])
def test_without_a_service_manager_nothing_happens(
    address: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    if address is not None:
        monkeypatch.setenv("NOTIFY_SOCKET", address)
    assert not notify("READY=1")
    assert not notify_reloading()
    assert not store_descriptors([0])
    assert not forget_descriptors()


def test_a_socket_path_that_is_too_long_is_no_service_manager(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", "/" + "x" * 200)
    assert not notify("READY=1")


def test_a_descriptor_that_is_closed_already_is_not_stored(manager: socket.socket) -> None:
    assert not store_descriptors([2**24])


def test_a_service_manager_that_does_not_read_costs_a_second_at_most(
    manager: socket.socket,
) -> None:
    sent = 0
    while notify("WATCHDOG=1"):
        sent += 1
    assert sent > 0
    assert received(manager) == ["WATCHDOG=1"]


@pytest.mark.parametrize(
    ("usec", "pid", "period_s"),
    [
        ("30000000", None, 30.0),
        ("1500000", "self", 1.5),
        ("30000000", "1", None),
        ("0", None, None),
        ("-5", None, None),
        ("soon", None, None),
        ("", None, None),
        (None, None, None),
    ],
)
def test_the_watchdog_period_is_ours_or_none(
    usec: str | None,
    pid: str | None,
    period_s: float | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = {"WATCHDOG_USEC": usec, "WATCHDOG_PID": str(os.getpid()) if pid == "self" else pid}
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/systemd/notify")
    for name, value in told.items():
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    assert watchdog_period_s() == period_s


def test_nobody_waits_for_a_watchdog_without_a_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    monkeypatch.setenv("WATCHDOG_USEC", "30000000")
    assert watchdog_period_s() is None


# What is handed over starts at descriptor 3: only in a process of its own does it have its place.
_TAKE = """
import os, sys
from lumbridge_compute.host.service_manager import take_descriptors
if sys.argv[1] != "other":
    os.environ["LISTEN_PID"] = str(os.getpid())
os.environ["LISTEN_FDS"] = sys.argv[2]
os.environ["LISTEN_FDNAMES"] = "gateway:gateway"
taken = take_descriptors()
kept = [os.get_inheritable(each) for each in taken]
left = [name for name in os.environ if name.startswith("LISTEN_")]
print(taken, kept, left, take_descriptors())
"""


def take(zoo: Zoo, whose: str, count: str) -> str:
    """What such a process takes over when 3 and 4 are open and may be inherited."""
    script = 'exec 3</dev/null 4</dev/null; exec "$@"'
    prefix = ("/bin/sh", "-c", script, "sh")
    return zoo.output(zoo.python(_TAKE, whose, count, prefix=prefix))


def test_what_is_handed_over_is_taken_once_and_is_inherited_by_nobody(zoo: Zoo) -> None:
    assert take(zoo, "ours", "2") == "[3, 4] [False, False] [] []"


@pytest.mark.parametrize("count", ["3", "9" * 18])
def test_what_is_announced_and_not_there_is_left_out(zoo: Zoo, count: str) -> None:
    assert take(zoo, "ours", count) == "[3, 4] [False, False] [] []"


@pytest.mark.parametrize(("whose", "count"), [("other", "2"), ("ours", ""), ("ours", "-1")])
def test_what_is_meant_for_another_process_is_left_alone(zoo: Zoo, whose: str, count: str) -> None:
    assert take(zoo, whose, count) == "[] [] [] []"
