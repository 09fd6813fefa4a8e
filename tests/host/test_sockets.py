from __future__ import annotations

import ipaddress
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumbridge_compute.host.sockets import parse_address, parse_listeners, read_listeners
from tests.host.zoo import Zoo

LISTEN = """
import os, socket, sys
family, host, port, backlog = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), 5
server = socket.socket(family, socket.SOCK_STREAM)
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
server.bind((host, port))
server.listen(backlog)
print(server.getsockname()[1], flush=True)
sys.stdin.read()
"""


@pytest.fixture(params=["/proc", "/proc/."], ids=["netlink", "proc"])
def proc(request: pytest.FixtureRequest) -> str:
    """Both ways to ask the kernel: the second path has no netlink of its own."""
    return str(request.param)


@pytest.fixture
def sockets() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def listen(stack: ExitStack, family: socket.AddressFamily, host: str, port: int = 0) -> int:
    server = stack.enter_context(socket.socket(family))
    if family == socket.AF_INET6:
        server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    server.bind((host, port))
    server.listen()
    return int(server.getsockname()[1])


@pytest.mark.parametrize(
    ("family", "host", "shown"),
    [
        (socket.AF_INET, "127.0.0.1", "127.0.0.1"),
        (socket.AF_INET, "127.8.9.10", "127.8.9.10"),
        (socket.AF_INET, "0.0.0.0", "0.0.0.0"),
        (socket.AF_INET6, "::1", "::1"),
        (socket.AF_INET6, "::", "::"),
        (socket.AF_INET6, "::ffff:127.0.0.1", "127.0.0.1"),
    ],
)
def test_a_listener_is_seen_with_its_address_and_its_holder(
    sockets: ExitStack, family: socket.AddressFamily, host: str, shown: str, proc: str
) -> None:
    port = listen(sockets, family, host)
    (found,) = read_listeners({port}, proc=proc)
    assert (found.address, found.port, found.uid) == (shown, port, os.geteuid())
    assert found.pids == {os.getpid()}
    assert found.who == ""


def test_two_families_on_one_port_are_two_listeners(sockets: ExitStack, proc: str) -> None:
    port = listen(sockets, socket.AF_INET, "127.0.0.1")
    listen(sockets, socket.AF_INET6, "::1", port)
    assert {each.address for each in read_listeners({port}, proc=proc)} == {"127.0.0.1", "::1"}


def test_processes_that_share_a_port_by_reuseport_are_told_apart(zoo: Zoo, proc: str) -> None:
    first = zoo.python(LISTEN, str(int(socket.AF_INET)), "127.0.0.1", "0")
    port = int(zoo.line(first))
    second = zoo.python(LISTEN, str(int(socket.AF_INET)), "127.0.0.1", str(port))
    assert int(zoo.line(second)) == port
    found = read_listeners({port}, proc=proc)
    assert sorted(sorted(each.pids) for each in found) == sorted([[first.pid], [second.pid]])
    assert len({each.inode for each in found}) == 2


def test_every_process_with_the_socket_is_a_holder(sockets: ExitStack, zoo: Zoo, proc: str) -> None:
    server = sockets.enter_context(socket.socket())
    server.bind(("127.0.0.1", 0))
    server.listen()
    server.set_inheritable(True)
    child = zoo.start("sleep", "1000", close_fds=False)
    (found,) = read_listeners({int(server.getsockname()[1])}, proc=proc)
    assert found.pids == {os.getpid(), child.pid}


def test_a_connection_is_not_a_listener(sockets: ExitStack, proc: str) -> None:
    port = listen(sockets, socket.AF_INET, "127.0.0.1")
    client = sockets.enter_context(socket.create_connection(("127.0.0.1", port)))
    assert read_listeners({int(client.getsockname()[1])}, proc=proc) == ()
    assert len(read_listeners({port}, proc=proc)) == 1


def test_a_closed_port_is_free_although_its_connections_linger(proc: str) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = int(server.getsockname()[1])
        with socket.create_connection(("127.0.0.1", port)):
            server.accept()[0].close()
    assert read_listeners({port}, proc=proc) == ()


def test_a_bound_socket_that_does_not_listen_is_no_listener(sockets: ExitStack, proc: str) -> None:
    bound = sockets.enter_context(socket.socket())
    bound.bind(("127.0.0.1", 0))
    assert read_listeners({bound.getsockname()[1]}, proc=proc) == ()


@given(st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)))
def test_addresses_are_read_as_the_kernel_prints_them(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    packed = address.packed
    words = [packed[at : at + 4] for at in range(0, len(packed), 4)]
    text = "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
    mapped = getattr(address, "ipv4_mapped", None)
    assert ipaddress.ip_address(parse_address(text)) == (mapped or address)


@given(st.binary())
def test_any_text_in_place_of_the_table_is_read_without_an_error(data: bytes) -> None:
    assert parse_listeners(data) == []


def test_holders_that_the_kernel_hides_leave_the_listener(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    row = "0100007F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000    33        0 654"
    (tmp_path / "net" / "tcp").write_text(f"  sl  local_address\n   0: {row} 1 0 100 0 0 10 0\n")
    (found,) = read_listeners({8000}, proc=str(tmp_path))
    assert (found.address, found.uid, found.inode, found.pids) == (
        "127.0.0.1",
        33,
        654,
        frozenset(),
    )
