from __future__ import annotations

import os
import platform
import signal

import pytest

from lumbridge_compute.core.identity import Identity
from lumbridge_compute.host.left_behind import LeftBehind
from lumbridge_compute.host.pidfd import HeldProcess, identify, open_same
from lumbridge_compute.host.procfs import read_processes
from tests.host.zoo import Zoo, until

KERNEL = tuple(int(part) for part in platform.release().split(".")[:2])
pytestmark = pytest.mark.skipif(KERNEL < (6, 9), reason="PIDFD_SIGNAL_PROCESS_GROUP: Linux 6.9")


def dead_leader(zoo: Zoo, script: str) -> tuple[HeldProcess, int]:
    """A leader held by its pidfd since it lived, reaped by now; and the PID that it printed."""
    child = zoo.shell(f"{script} echo $!; read -r never")
    left = int(zoo.line(child))
    identity = identify(child.pid)
    assert identity is not None
    held = open_same(identity)
    assert held is not None
    child.kill()
    child.wait()
    return held, left


def members(kept: LeftBehind, identity: Identity) -> set[int]:
    return set(kept.members([identity], read_processes()).get(identity, ()))


def test_the_group_of_a_dead_leader_is_known_until_its_last_member_has_gone(zoo: Zoo) -> None:
    held, left = dead_leader(zoo, "sleep 1000 &")
    kept = LeftBehind()
    assert members(kept, held.identity) == set()
    kept.keep(held.identity, held.fileno())
    held.close()
    assert members(kept, held.identity) == {left}
    os.kill(left, signal.SIGKILL)
    until(lambda: members(kept, held.identity) == set(), "nobody is left")


def test_what_has_left_the_group_is_not_of_it(zoo: Zoo) -> None:
    held, left = dead_leader(zoo, "setsid -f sleep 1000; sleep 1000 &")
    kept = LeftBehind()
    kept.keep(held.identity, held.fileno())
    held.close()
    assert members(kept, held.identity) == {left}


def test_nothing_is_kept_of_a_leader_that_left_nobody(zoo: Zoo) -> None:
    held, left = dead_leader(zoo, "sleep 1000 &")
    os.kill(left, signal.SIGKILL)
    until(lambda: left not in read_processes(), "it is reaped")
    kept = LeftBehind()
    before = len(os.listdir("/proc/self/fd"))
    kept.keep(held.identity, held.fileno())
    assert len(os.listdir("/proc/self/fd")) == before
    assert members(kept, held.identity) == set()
    held.close()
