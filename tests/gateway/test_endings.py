"""Whatever two peers do, nobody takes a part of a stream for the whole."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gateway.rig import FIN, RST, Rig, open_rig, reset

SIZES = (1, 1000, 65_536, 65_537, 400_000)
ACTIONS = st.one_of(
    st.tuples(st.just("send"), st.sampled_from(SIZES)),
    st.tuples(st.sampled_from(["end", "reset", "turn", "settle", "cut"]), st.just(0)),
    st.tuples(st.just("read"), st.sampled_from(SIZES)),
)
PROGRAMS = st.lists(st.tuples(st.booleans(), ACTIONS), max_size=14)


@dataclass
class Peer:
    """One end, and what it has done and seen."""

    sock: socket.socket
    byte: bytes
    sent: int = 0
    got: bytearray = field(default_factory=bytearray)
    ended: bool = False
    was_reset: bool = False
    gone: bool = False
    told: bool = False

    def act(self, rig: Rig, action: str, size: int) -> None:
        if action == "turn":
            rig.engine.run_once()
        elif action == "settle":
            rig.settle()
        elif action == "cut":
            rig.gateway.cut()
            self.was_reset = True
        elif not self.gone:
            try:
                self.move(action, size)
            except BlockingIOError:
                pass
            except OSError:  # this call has taken the error: a read would find a clean end now
                self.told = True

    def move(self, action: str, size: int) -> None:
        if action == "send" and not self.ended:
            self.sent += self.sock.send(self.byte * size)
        elif action == "read":
            self.got += self.sock.recv(size)
        elif action == "end" and not self.ended:
            self.ended = True
            self.sock.shutdown(socket.SHUT_WR)
        elif action == "reset":
            self.gone = self.was_reset = True
            reset(self.sock)


@settings(max_examples=100)
@given(PROGRAMS)
def test_a_clean_end_comes_after_all_bytes_and_only_where_the_peer_ended(
    program: list[tuple[bool, tuple[str, int]]],
) -> None:
    with open_rig() as rig:
        socks = rig.pair()
        client, server = Peer(socks[0], b"c"), Peer(socks[1], b"s")
        with socks[0], socks[1]:
            for by_client, (action, size) in program:
                (client if by_client else server).act(rig, action, size)
            disturbed = client.was_reset or server.was_reset
            for reader, writer in ((client, server), (server, client)):
                writer.act(rig, "end", 0)
                if reader.told:
                    assert disturbed
                elif not reader.gone:
                    judge(rig, reader, writer, disturbed=disturbed)
        rig.until(lambda: rig.gateway.status()["connections"] == 0, "the end of the connection")


def judge(rig: Rig, reader: Peer, writer: Peer, *, disturbed: bool) -> None:
    """What `reader` got is a beginning of what was sent, and all of it if it ended cleanly."""
    rest, how = rig.ending(reader.sock)
    got = bytes(reader.got) + rest
    assert got == writer.byte * len(got)
    assert len(got) <= writer.sent
    if how == FIN:
        assert writer.ended
        assert len(got) == writer.sent
    else:
        assert how == RST
        assert disturbed
