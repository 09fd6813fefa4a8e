"""The listening sockets of the gateways."""

from __future__ import annotations

import os
import socket

import pytest

from lumbridge_compute.core.registry import Address, GatewaySpec, Model
from lumbridge_compute.errors import Refused
from lumbridge_compute.gateway import sockets
from lumbridge_compute.gateway.listeners import open_listeners, validate
from tests.gateway.rig import address_of, open_server

UPSTREAM = Address("127.0.0.1", 1)
NOT_OURS = Address("192.0.2.1", 8011)  # TEST-NET-1, RFC 5737


def spec(listen: Address) -> GatewaySpec:
    return GatewaySpec(listen, UPSTREAM)


def free_address() -> Address:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return address_of(sock)


def test_a_listener_is_opened_for_each_gateway() -> None:
    specs = [spec(Address("127.0.0.1", 0)), spec(Address("::1", 0))]
    listeners = open_listeners(specs)
    assert [each.spec for each in listeners] == specs
    for each in listeners:
        with each.sock, socket.create_connection(each.sock.getsockname()[:2]):
            assert not each.sock.getblocking()


def test_every_address_that_cannot_be_had_is_told_and_nothing_stays_open() -> None:
    with open_server() as taken:
        before = os.listdir("/proc/self/fd")
        wanted = [spec(Address("127.0.0.1", 0)), spec(address_of(taken)), spec(NOT_OURS)]
        with pytest.raises(Refused) as caught:
            open_listeners(wanted)
        assert os.listdir("/proc/self/fd") == before
        reasons = caught.value.message.split("; ")
        assert reasons[0].startswith(
            f"cannot listen on {address_of(taken)}: the address is taken by pid {os.getpid()} ("
        )
        assert reasons[1] == (
            "cannot listen on 192.0.2.1:8011: no interface of this machine has this address"
        )


def test_a_listener_handed_over_is_taken_by_its_address() -> None:
    address = free_address()
    sock = sockets.open_listener(address)
    unwanted = sockets.open_listener(Address("127.0.0.1", 0))
    with socket.create_connection(sock.getsockname()):  # waits in the backlog meanwhile
        sock.settimeout(None)
        (listener,) = open_listeners([spec(address)], [unwanted, sock])
        assert listener.sock is sock
        assert not sock.getblocking()
        assert unwanted.fileno() == -1
        with sock:
            sock.accept()[0].close()


def test_one_ipv6_address_is_the_same_however_it_is_written() -> None:
    sock = sockets.open_listener(Address("::1", 0))
    address = Address("0:0:0:0:0:0:0:1", sock.getsockname()[1])
    (listener,) = open_listeners([spec(address)], [sock])
    with listener.sock:
        assert listener.sock is sock


def test_what_is_handed_over_and_does_not_listen_is_closed() -> None:
    idle = socket.socket()
    one, other = socket.socketpair()
    with other:
        assert open_listeners([], [idle, one]) == ()
        assert idle.fileno() == one.fileno() == -1


def test_declarations_that_cannot_work_are_refused_with_every_reason() -> None:
    model = Model("qwen", ("serve",), 8001, "qwen")
    specs = [spec(Address("0.0.0.0", 8001)), GatewaySpec(UPSTREAM, UPSTREAM)]
    with pytest.raises(Refused) as caught:
        validate(specs, {"qwen": model})
    assert caught.value.message == (
        "cannot serve the gateways: 0.0.0.0:8001 is on the port of the model 'qwen'; "
        "127.0.0.1:1 would relay to itself: its upstream is 127.0.0.1:1; "
        "127.0.0.1:1 is the upstream of gateways[0]"
    )
    validate([spec(Address("0.0.0.0", 8011))], {"qwen": model})
