"""Bytes and endings, between scripted peers."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import random
import socket
import struct
import threading

import pytest

from lumbridge_compute.gateway import sockets
from lumbridge_compute.gateway.pipes import PipePool
from tests.gateway.rig import (
    FIN,
    PATIENCE_S,
    RST,
    Rig,
    address_of,
    open_rig,
    open_server,
    reset,
    turning,
)

MIB = 1024 * 1024


def nothing_is_left(rig: Rig) -> bool:
    status = rig.gateway.status()
    return status["connections"] == status["held"] == 0


def test_bytes_pass_unchanged_in_both_directions(rig: Rig) -> None:
    client, server = rig.pair()
    with client, server:
        rig.write(client, b"ask")
        assert rig.read(server, 3) == b"ask"
        rig.write(server, b"answer")
        assert rig.read(client, 6) == b"answer"
    rig.until(lambda: nothing_is_left(rig))
    status = rig.gateway.status()
    assert (status["total"], status["refused"], status["reset"]) == (1, 0, 0)
    assert (status["up_bytes"], status["down_bytes"]) == (3, 6)


def test_a_client_that_half_closes_still_gets_its_answer(rig: Rig) -> None:
    client, server = rig.pair()
    with client, server:
        rig.write(client, b"ask")
        client.shutdown(socket.SHUT_WR)
        assert rig.ending(server) == (b"ask", FIN)
        rig.write(server, b"answer")
        assert rig.read(client, 6) == b"answer"
        server.close()
        assert rig.how_it_ends(client) == FIN
    assert nothing_is_left(rig)
    assert rig.gateway.status()["reset"] == 0


def test_an_upstream_that_half_closes_still_hears_the_client(rig: Rig) -> None:
    client, server = rig.pair()
    with client, server:
        server.shutdown(socket.SHUT_WR)
        assert rig.how_it_ends(client) == FIN
        rig.write(client, b"more")
        client.close()
        assert rig.ending(server) == (b"more", FIN)
    rig.until(lambda: nothing_is_left(rig))
    assert rig.gateway.status()["reset"] == 0


def test_a_client_that_leaves_is_known_to_a_silent_upstream(rig: Rig) -> None:
    client, server = rig.pair()
    with server:
        client.close()
        assert rig.how_it_ends(server) == FIN


@pytest.mark.parametrize("from_client", [True, False])
def test_a_reset_passes_as_a_reset(rig: Rig, *, from_client: bool) -> None:
    client, server = rig.pair()
    leaves, stays = (client, server) if from_client else (server, client)
    with client, server:
        rig.write(leaves, b"x")
        assert rig.read(stays, 1) == b"x"
        reset(leaves)
        assert rig.how_it_ends(stays) == RST
    assert nothing_is_left(rig)
    assert rig.gateway.status()["reset"] == 1


@pytest.mark.parametrize("first_from_client", [True, False])
@pytest.mark.parametrize("by_the_same", [True, False])
def test_a_reset_after_a_half_close_passes(
    rig: Rig, *, first_from_client: bool, by_the_same: bool
) -> None:
    client, server = rig.pair()
    first, second = (client, server) if first_from_client else (server, client)
    with client, server:
        first.shutdown(socket.SHUT_WR)
        assert rig.how_it_ends(second) == FIN
        leaves, stays = (first, second) if by_the_same else (second, first)
        reset(leaves)
        if by_the_same:  # a read finds the FIN again: only a poll or a write tells of the RST
            rig.until(lambda: stays.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
        else:
            assert rig.how_it_ends(stays) == RST
    assert nothing_is_left(rig)


@pytest.mark.parametrize("from_client", [True, False])
def test_bulk_that_is_cut_short_never_ends_cleanly(rig: Rig, *, from_client: bool) -> None:
    client, server = rig.pair()
    sends, reads = (client, server) if from_client else (server, client)
    with client, server:
        got = 0
        chunk = bytes(MIB)
        while got < 8 * MIB:  # long enough to be spliced
            try:
                sends.send(chunk)
            except BlockingIOError:
                rig.settle()
            try:
                got += len(reads.recv(MIB))
            except BlockingIOError:
                rig.settle()
        reset(sends)
        assert rig.ending(reads)[1] == RST
    assert nothing_is_left(rig)


@pytest.mark.parametrize("from_client", [True, False])
def test_a_reader_that_resets_in_the_middle_of_bulk_stops_its_sender(
    rig: Rig, *, from_client: bool
) -> None:
    client, server = rig.pair()
    sends, reads = (client, server) if from_client else (server, client)
    with client, server:
        fill(rig, sends)
        reset(reads)
        rig.until(lambda: sends.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
    assert nothing_is_left(rig)


def test_an_answer_is_heard_before_the_reset_that_follows_it(rig: Rig) -> None:
    client, server = rig.pair()
    with client, server:
        rig.write(client, b"a long request that nobody reads")
        rig.settle()
        server.send(b"413 too long")
        server.close()  # with unread bytes: the kernel sends a RST
        assert rig.ending(client) == (b"413 too long", RST)
    assert nothing_is_left(rig)


def test_urgent_bytes_stay_in_their_place(rig: Rig) -> None:
    client, server = rig.pair()
    with client, server:
        client.send(b"before")
        client.send(b"!", socket.MSG_OOB)
        client.send(b"after")
        client.shutdown(socket.SHUT_WR)
        assert rig.ending(server) == (b"before!after", FIN)


def test_an_urgent_byte_in_bulk_loses_nothing(rig: Rig) -> None:
    client, server = rig.pair()
    with client, server:
        sent = fill(rig, client)
        got = len(rig.read(server, sent - 1000))
        rig.write(client, b"tail")
        rig.until(lambda: client.send(b"!", socket.MSG_OOB) == 1)
        client.shutdown(socket.SHUT_WR)
        rest, how = rig.ending(server)
        assert (got + len(rest), how) == (sent + 5, FIN)
        assert rest.endswith(b"tail!")


def test_an_urgent_byte_and_an_end_behind_bulk_are_both_passed(rig: Rig) -> None:
    """Splice says 0 before an urgent byte as it does at the end."""
    client, server = rig.pair()
    with client, server:
        widen(rig, client, server)
        client.send(bytes(300_000))
        client.send(b"!", socket.MSG_OOB)
        client.send(b"after")
        client.shutdown(socket.SHUT_WR)
        rest, how = rig.ending(server)
        assert (len(rest), rest[-6:], how) == (300_006, b"!after", FIN)


def test_what_a_pipe_held_of_a_cut_stream_reaches_nobody_else(rig: Rig) -> None:
    client, server = rig.pair()
    with client, server:
        widen(rig, client, server)
        (connection,) = rig.gateway._running
        assert connection.upstream is not None
        fill(rig, server)
        while not connection.upstream.piped_bytes:  # the last splice may have fitted to the byte
            client.recv(10_007)
            fill(rig, server)
        reset(client)
        rig.until(lambda: nothing_is_left(rig))
    client, server = rig.pair()
    with client, server:
        data = b"y" * (32 * MIB)
        server.settimeout(PATIENCE_S)
        sender = threading.Thread(target=server.sendall, args=(data,))
        sender.start()
        assert rig.read(client, len(data)) == data
        sender.join()


def test_a_turn_moves_a_bounded_amount_and_the_next_goes_on(rig: Rig) -> None:
    rig.engine.pipes = PipePool(0)
    client, server = rig.pair()
    with client, server:
        widen(rig, client, server)
        before = rig.gateway.status()["down_bytes"]
        for _ in range(4):
            server.send(bytes(MIB))
        assert rig.engine.run_once() == rig.clock.now
        first = rig.gateway.status()["down_bytes"] - before
        assert first == 16 * 65_536
        rig.engine.run_once()
        assert rig.gateway.status()["down_bytes"] - before > first


def widen(rig: Rig, one: socket.socket, other: socket.socket) -> None:
    """Let the kernel learn that this connection takes much at once."""
    for sender, reader in ((one, other), (other, one)):
        sender.settimeout(PATIENCE_S)
        thread = threading.Thread(target=sender.sendall, args=(bytes(64 * MIB),))
        thread.start()
        rig.read(reader, 64 * MIB)
        thread.join()
        rig.settle()
        sender.settimeout(0)


def test_a_slow_reader_holds_its_sender_back(rig: Rig) -> None:
    client, server = rig.pair()
    with client, server:
        sent = fill(rig, server)
        assert rig.engine.run_once() is None, "nothing spins while a reader is stuck"
        assert sent < 64 * MIB
        assert len(rig.read(client, sent)) == sent
        rig.write(server, b"end")
        assert rig.read(client, 3) == b"end"


@pytest.mark.parametrize("pipes", [64, 1, 0])
def test_duplex_traffic_arrives_as_it_was_sent(rig: Rig, pipes: int) -> None:
    """Also where pipes are short, and all connections share one buffer."""
    rig.engine.pipes = PipePool(pipes)
    size = 8 * MIB
    results: list[tuple[str, str]] = []
    with contextlib.ExitStack() as stack:
        talks = []
        for pair in (rig.pair(), rig.pair()):
            for sock in pair:
                stack.enter_context(sock).settimeout(PATIENCE_S)
            talks += [
                threading.Thread(target=talk, args=(sock, other, size, results))
                for sock, other in (pair, pair[::-1])
            ]
        with turning(rig):
            for thread in talks:
                thread.start()
            for thread in talks:
                thread.join()
    assert len(results) == 4
    assert all(sent == got for sent, got in results)
    status = rig.gateway.status()
    assert (status["up_bytes"], status["down_bytes"], status["reset"]) == (2 * size, 2 * size, 0)


def talk(
    sender: socket.socket, reader: socket.socket, size: int, results: list[tuple[str, str]]
) -> None:
    """Send `size` random bytes in random pieces, and read them to the end at the other side."""
    pieces = random.Random(size)
    sent, got = hashlib.md5(), hashlib.md5()

    def send() -> None:
        left = size
        while left:
            piece = os.urandom(min(left, pieces.choice([1, 100, 65_536, 300_000])))
            sender.sendall(piece)
            sent.update(piece)
            left -= len(piece)
        sender.shutdown(socket.SHUT_WR)

    thread = threading.Thread(target=send)
    thread.start()
    while piece := reader.recv(MIB):
        got.update(piece)
    thread.join()
    results.append((sent.hexdigest(), got.hexdigest()))


def test_a_stuck_reader_keeps_its_bytes_while_others_are_served(rig: Rig) -> None:
    rig.engine.pipes = PipePool(0)
    client, server = rig.pair()
    other_client, other_server = rig.pair()
    with client, server, other_client, other_server:
        sent = fill(rig, server)
        rig.write(other_server, b"x" * 65_536)
        assert rig.read(other_client, 65_536) == b"x" * 65_536
        assert rig.read(client, sent) == bytes(sent)


def fill(rig: Rig, sock: socket.socket) -> int:
    """Send until nothing takes any more; how many bytes that were."""
    sent = 0
    chunk = bytes(MIB)
    refused = 0
    while refused < 20:
        try:
            sent += sock.send(chunk)
            refused = 0
        except BlockingIOError:
            refused += 1
            rig.settle()
    return sent


def test_thousands_of_abrupt_connections_leave_no_descriptor(rig: Rig) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for number in range(6000):
        client = rig.client()
        if number % 3:
            client.send(b"x" * (number % 200))
        if number % 2:
            reset(client)
        else:
            client.close()
        rig.settle()
        if number % 50 == 0:
            drop_upstream(rig)
    while not nothing_is_left(rig):
        rig.settle()
        drop_upstream(rig)
    assert rig.gateway.status()["total"] == 6000
    rig.engine.pipes.close()
    assert len(os.listdir("/proc/self/fd")) == before


def drop_upstream(rig: Rig) -> None:
    """Accept and close, every other one with a RST, what has come to the upstream."""
    rig.upstream.settimeout(0)
    for number in itertools.count():
        try:
            server, _ = rig.upstream.accept()
        except BlockingIOError:
            return
        if number % 2:
            reset(server)
        else:
            server.close()


def test_accepted_sockets_have_their_options_from_the_listener(rig: Rig) -> None:
    with rig.client(), rig.server():
        (connection,) = rig.gateway._running
        assert connection.upstream is not None
        for sock in (connection.client.sock, connection.upstream.sock):
            linger = sock.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8)
            assert struct.unpack("ii", linger) == (1, 0)
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert not sock.getblocking()
        keep_idle_s = connection.client.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
        assert keep_idle_s == 60


@pytest.mark.parametrize(
    ("listen", "host", "dial"),
    [
        ("::1", "127.0.0.1", "::1"),
        ("127.0.0.1", "::1", "127.0.0.1"),
        ("::", "::1", "127.0.0.1"),
    ],
)
def test_both_address_families_are_relayed(listen: str, host: str, dial: str) -> None:
    with open_rig(listen=listen, host=host) as rig:
        port = rig.gateway.spec.listen.port
        with socket.create_connection((dial, port)) as client, rig.server() as server:
            rig.write(client, b"over there")
            assert rig.read(server, 10) == b"over there"


def test_a_socket_that_meets_itself_is_recognised() -> None:
    with socket.socket() as sock, open_server() as server:
        sock.bind(("127.0.0.1", 0))
        own = address_of(sock)
        sock.connect((own.host, own.port))
        assert sockets.meets_itself(sock, own)
        assert not sockets.meets_itself(sock, address_of(server))
