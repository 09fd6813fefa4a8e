"""Whom a gateway takes, and when it relays, holds, drains and cuts."""

from __future__ import annotations

import contextlib
import itertools
import select
import socket
from collections.abc import Iterator

import pytest

from lumbridge_compute.gateway.connection import State
from lumbridge_compute.gateway.drain import FINISHED_AFTER_S
from lumbridge_compute.gateway.held import RETRY_S
from tests.gateway.rig import RST, Rig, open_rig, open_server, reset


@pytest.fixture
def no_upstream() -> Iterator[Rig]:
    """A gateway whose upstream refuses: its port is bound, and nobody listens."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        with open_rig(upstream=server) as rig:
            yield rig


def held(rig: Rig) -> int:
    rig.settle()
    return rig.gateway.status()["held"]


def nobody_came(rig: Rig) -> bool:
    rig.settle()
    rig.upstream.settimeout(0)
    try:
        rig.upstream.accept()[0].close()
    except BlockingIOError:
        return True
    return False


# --- allow


@pytest.mark.parametrize("allow", ["127.0.0.0/8", "::ffff:127.0.0.0/104", "::/0"])
def test_a_client_of_an_allowed_network_is_relayed(allow: str) -> None:
    with open_rig(allow=("10.0.0.0/8", allow)) as rig, rig.client(), rig.server():
        pass


def test_a_client_of_another_network_is_reset() -> None:
    with open_rig(allow=("10.0.0.0/8", "::1/128")) as rig, rig.client() as client:
        assert rig.how_it_ends(client) == RST
        assert nobody_came(rig)
        status = rig.gateway.status()
        assert (status["total"], status["refused"], status["reset"]) == (1, 1, 0)


@pytest.mark.parametrize("allowed", [True, False])
def test_an_ipv4_client_of_an_ipv6_listener_is_judged_by_its_ipv4_address(*, allowed: bool) -> None:
    allow = ("127.0.0.1/32" if allowed else "127.0.0.2/32",)
    with open_rig(listen="::", host="127.0.0.1", allow=allow) as rig:
        port = rig.gateway.spec.listen.port
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.settimeout(0)
            if allowed:
                rig.server().close()
            else:
                assert rig.how_it_ends(client) == RST


# --- an upstream that refuses


def test_a_client_of_a_refusing_upstream_is_reset_at_once(no_upstream: Rig) -> None:
    rig = no_upstream
    with rig.client() as client:
        assert rig.how_it_ends(client) == RST
    status = rig.gateway.status()
    assert (status["total"], status["refused"]) == (1, 1)
    assert (status["connections"], status["reset"]) == (0, 0)


def test_an_expected_upstream_that_refuses_holds_its_clients(no_upstream: Rig) -> None:
    rig = no_upstream
    rig.gateway.expect()
    assert rig.gateway.status()["mode"] == "expecting"
    with rig.client() as first, rig.client() as second:
        first.send(b"1")
        second.send(b"2")
        rig.until(lambda: held(rig) == 2)
        rig.advance(RETRY_S)
        rig.until(lambda: held(rig) == 2)
        rig.upstream.listen()
        rig.advance(RETRY_S)
        with rig.server() as one, rig.server() as other:
            assert {rig.read(one, 1), rig.read(other, 1)} == {b"1", b"2"}
        assert rig.gateway.status()["held"] == 0


def test_an_expected_upstream_that_accepts_is_relayed_to(rig: Rig) -> None:
    rig.gateway.expect()
    with rig.client(), rig.server():
        assert rig.gateway.status()["connections"] == 1


def test_what_still_refuses_when_it_is_settled_resets_the_held(no_upstream: Rig) -> None:
    rig = no_upstream
    rig.gateway.expect()
    with rig.client() as client:
        rig.until(lambda: held(rig) == 1)
        rig.gateway.settle()
        assert rig.how_it_ends(client) == RST
    assert rig.gateway.status()["refused"] == 1


def test_an_expected_upstream_is_tried_again_when_the_one_it_was_tried_for_has_left(
    no_upstream: Rig,
) -> None:
    rig = no_upstream
    rig.gateway.expect()
    with rig.client() as first, rig.client() as second:
        second.send(b"2")
        rig.until(lambda: held(rig) == 2)
        first.close()
        rig.until(lambda: held(rig) == 1)
        rig.upstream.listen()
        rig.advance(RETRY_S)
        with rig.server() as server:
            assert rig.read(server, 1) == b"2"


def test_an_expected_upstream_is_tried_again_when_the_one_being_connected_has_left(
    no_upstream: Rig,
) -> None:
    rig = no_upstream
    rig.gateway.expect()
    first, second = rig.client(), rig.client()
    second.send(b"2")
    rig.until(lambda: held(rig) == 2)
    rig.upstream.listen(0)
    with fill_backlog(rig.upstream) as fillers:
        rig.advance(RETRY_S)
        assert held(rig) == 2, "the attempt hangs"
        reset(first)
        rig.until(lambda: held(rig) == 1)
        for _ in range(fillers):
            rig.upstream.accept()[0].close()
    rig.advance(RETRY_S)
    with second, rig.server() as server:
        assert rig.read(server, 1) == b"2"


def test_a_held_client_that_was_being_connected_waits_again(no_upstream: Rig) -> None:
    rig = no_upstream
    rig.gateway.expect()
    with rig.client():
        rig.until(lambda: held(rig) == 1)
        rig.upstream.listen(0)
        with fill_backlog(rig.upstream):
            rig.advance(RETRY_S)
            assert [each.state for each in rig.gateway._held] == [State.CONNECTING]
            rig.gateway.hold()
            assert [each.state for each in rig.gateway._held] == [State.WAITING]


@contextlib.contextmanager
def fill_backlog(upstream: socket.socket) -> Iterator[int]:
    """Connections that fill the backlog of `upstream`; how many it has."""
    with contextlib.ExitStack() as stack:
        for count in itertools.count():
            filler = stack.enter_context(socket.socket())
            filler.settimeout(0)
            filler.connect_ex(upstream.getsockname())
            if not select.select([], [filler], [], 0)[1]:
                filler.close()
                yield count
                return


# --- hold


def test_a_held_client_is_served_after_the_release(rig: Rig) -> None:
    rig.gateway.hold()
    with rig.client() as client:
        client.send(b"early")
        rig.until(lambda: held(rig) == 1)
        assert nobody_came(rig)
        rig.gateway.release()
        with rig.server() as server:
            assert rig.read(server, 5) == b"early"
            rig.write(server, b"late")
            assert rig.read(client, 4) == b"late"
    assert rig.gateway.status()["refused"] == 0


def test_running_connections_go_on_while_new_ones_are_held(rig: Rig) -> None:
    client, server = rig.pair()
    with client, server:
        rig.gateway.hold()
        rig.write(client, b"x")
        assert rig.read(server, 1) == b"x"


@pytest.mark.parametrize("by_reset", [True, False])
def test_a_held_client_that_leaves_is_dropped(rig: Rig, *, by_reset: bool) -> None:
    rig.gateway.hold()
    client = rig.client()
    client.send(b"never mind")
    rig.until(lambda: held(rig) == 1)
    if by_reset:
        reset(client)
    else:
        client.close()
    rig.until(lambda: held(rig) == 0)
    rig.gateway.release()
    assert nobody_came(rig)


def test_held_clients_are_bounded_in_number() -> None:
    with open_rig(max_held=2) as rig:
        rig.gateway.hold()
        with rig.client(), rig.client():
            rig.until(lambda: held(rig) == 2)
            with rig.client() as third:
                assert rig.how_it_ends(third) == RST
            assert (rig.gateway.status()["held"], rig.gateway.status()["refused"]) == (2, 1)


def test_held_clients_are_bounded_in_time() -> None:
    with open_rig(hold_s=600) as rig:
        rig.gateway.hold()
        with rig.client() as old:
            rig.until(lambda: held(rig) == 1)
            rig.advance(300)
            with rig.client() as young:
                rig.until(lambda: held(rig) == 2)
                rig.advance(299.9)
                assert held(rig) == 2
                rig.advance(0.1)
                assert rig.how_it_ends(old) == RST
                assert held(rig) == 1
                rig.advance(300)
                assert rig.how_it_ends(young) == RST


def test_a_hold_of_no_time_refuses_at_once() -> None:
    with open_rig(hold_s=0) as rig:
        rig.gateway.hold()
        with rig.client() as client:
            assert rig.how_it_ends(client) == RST


def test_many_held_clients_are_released_over_several_turns() -> None:
    with open_rig() as rig:
        rig.gateway.hold()
        clients = [rig.client() for _ in range(100)]
        rig.until(lambda: held(rig) == 100)
        rig.gateway.release()
        for _ in clients:
            rig.server().close()
        for client in clients:
            client.close()


def test_a_client_whose_upstream_has_not_accepted_is_held_too() -> None:
    """Linux drops a SYN when the backlog is full: the connection attempt stays open."""
    with open_server(backlog=0) as server, open_rig(upstream=server) as rig:
        clients = [rig.client() for _ in range(4)]
        rig.settle()
        rig.gateway.hold()
        stuck = held(rig)
        assert stuck >= 1
        assert rig.gateway.status()["connections"] == 4 - stuck
        clients[-1].close()
        rig.until(lambda: held(rig) == stuck - 1)
        for client in clients:
            client.close()


def test_one_that_left_while_connecting_is_not_held() -> None:
    with open_server(backlog=0) as server, open_rig(upstream=server) as rig:
        clients = [rig.client() for _ in range(4)]
        rig.settle()
        for client in clients:
            client.close()
        rig.settle()
        rig.gateway.hold()
        assert held(rig) == 0


# --- drain and cut


def test_a_connection_that_was_answered_and_fell_silent_has_finished(rig: Rig) -> None:
    client, server = rig.pair()
    with client, server:
        rig.write(client, b"ask")
        assert rig.read(server, 3) == b"ask"
        rig.advance(1)
        rig.write(server, b"answer")
        assert rig.read(client, 6) == b"answer"
        empty: list[bool] = []
        rig.gateway.drain(when_empty=lambda: empty.append(True))
        rig.advance(FINISHED_AFTER_S - 0.1)
        assert not empty
        rig.advance(0.1)
        assert rig.how_it_ends(client) == rig.how_it_ends(server) == RST
        assert empty == [True]


def test_one_that_was_silent_before_the_drain_is_reset_at_once(rig: Rig) -> None:
    client, server = rig.pair()
    with client, server:
        rig.write(client, b"ask")
        assert rig.read(server, 3) == b"ask"
        rig.write(server, b"answer")
        rig.clock.now += 0.01
        assert rig.read(client, 6) == b"answer"
        rig.advance(60)
        rig.gateway.drain()
        assert rig.how_it_ends(client) == RST


def test_one_that_was_never_used_does_not_delay_a_drain(rig: Rig) -> None:
    client, server = rig.pair()
    with client, server:
        rig.advance(FINISHED_AFTER_S)
        rig.gateway.drain()
        assert rig.how_it_ends(client) == RST


def test_one_that_waits_for_its_answer_may_finish_until_the_time_is_over(rig: Rig) -> None:
    client, server = rig.pair()
    with client, server:
        rig.advance(1)
        rig.write(client, b"ask")
        assert rig.read(server, 3) == b"ask"
        rig.advance(10)
        rig.gateway.drain(30)
        rig.advance(29.9)
        assert rig.gateway.status()["connections"] == 1
        rig.advance(0.1)
        assert rig.how_it_ends(client) == RST


def test_tokens_keep_a_stream_alive_while_it_drains(rig: Rig) -> None:
    client, server = rig.pair()
    with client, server:
        rig.gateway.drain(30)
        for _ in range(15):
            rig.write(server, b"token")
            assert rig.read(client, 5) == b"token"
            rig.advance(1.9)
        server.close()
        client.close()
        rig.until(lambda: rig.gateway.status()["connections"] == 0)
        assert rig.gateway.status()["reset"] == 0


def test_a_drain_without_time_cuts_at_once(rig: Rig) -> None:
    client, server = rig.pair()
    empty: list[bool] = []
    with client, server:
        rig.write(client, b"ask")
        rig.settle()
        rig.gateway.drain(0, when_empty=lambda: empty.append(True))
        assert empty == [True]
        assert rig.how_it_ends(client) == RST


def test_a_drain_of_nothing_is_over_at_once(rig: Rig) -> None:
    empty: list[bool] = []
    rig.gateway.drain(when_empty=lambda: empty.append(True))
    assert empty == [True]


def test_a_release_gives_a_drain_up(rig: Rig) -> None:
    client, server = rig.pair()
    empty: list[bool] = []
    with client, server:
        rig.gateway.drain(30, when_empty=lambda: empty.append(True))
        rig.gateway.release()
        rig.advance(100)
        rig.write(client, b"still here")
        assert rig.read(server, 10) == b"still here"
        assert not empty


def test_a_cut_in_the_middle_of_a_stream_is_a_reset_on_both_sides(rig: Rig) -> None:
    client, server = rig.pair()
    with client, server:
        rig.write(server, b"token")
        assert rig.read(client, 5) == b"token"
        rig.gateway.cut()
        assert rig.how_it_ends(client) == rig.how_it_ends(server) == RST
    assert rig.gateway.status()["reset"] == 1


def test_a_cut_leaves_the_held_alone(rig: Rig) -> None:
    rig.gateway.hold()
    with rig.client():
        rig.until(lambda: held(rig) == 1)
        rig.gateway.cut()
        assert held(rig) == 1


def test_a_closed_gateway_resets_all_and_leaves_its_listener_open(rig: Rig) -> None:
    client, server = rig.pair()
    with client, server:
        rig.gateway.hold()
        with rig.client() as waiting:
            rig.until(lambda: held(rig) == 1)
            rig.gateway.close()
            assert rig.how_it_ends(client) == rig.how_it_ends(waiting) == RST
    with rig.client():
        assert nobody_came(rig)
