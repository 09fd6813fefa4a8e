"""Run by test_exhaustion: a gateway in a process with no descriptors left, or with some few.

A client waits in the backlog while there are none for it but those that the agent keeps for itself.
Accepting pauses, nothing is readable meanwhile, and clients are served again when descriptors have
come back and the pause is over.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import sys
from collections.abc import Iterator

from lumbridge_compute.gateway.acceptor import PAUSE_S
from tests.gateway.rig import Rig, open_rig


@contextlib.contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """Within it, `count` descriptors can be opened."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = os.listdir("/proc/self/fd")  # one of them is the listing's own
    holes = set(range(max(map(int, used)) + 1)) - set(map(int, used))
    fillers = [os.open("/dev/null", os.O_RDONLY) for _ in holes]
    limit = max(int(name) for name in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit + count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for filler in fillers:
            os.close(filler)


def is_quiet(rig: Rig) -> bool:
    """Whether the engine would sleep now, although a client is in the backlog."""
    deadline = rig.engine.run_once()
    asleep = deadline is not None and deadline == rig.clock.now + PAUSE_S
    return asleep and not select.select([rig.engine.fileno()], [], [], 0)[0]


def main(left: int) -> None:
    with open_rig() as rig:
        first, second = rig.client(), rig.client()
        with descriptors_left(left):
            rig.engine.run_once()
            assert is_quiet(rig)
            rig.clock.now += PAUSE_S
            rig.engine.run_once()
            rig.engine.run_once()
            assert is_quiet(rig)
            for _ in range(left):  # the clients did not use them up
                os.dup(0)
        rig.clock.now += PAUSE_S
        for client in (first, second):
            client.send(b"x")
            with rig.server() as server:
                assert rig.read(server, 1) == b"x"
        assert rig.gateway.status()["refused"] == 0
        with rig.client(), rig.server():
            pass
        first.close()
        second.close()


main(int(sys.argv[1]))
