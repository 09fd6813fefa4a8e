"""A command with too few descriptors is refused before its first change, not lost in the middle."""

from __future__ import annotations

import resource
from collections.abc import Callable

import pytest

from lumbridge_compute.cli.loop import NEEDED_DESCRIPTORS
from tests.system.agent import start_agent
from tests.system.node import SystemNode

FEWEST = 6  # Python itself needs some to begin
ENOUGH = NEEDED_DESCRIPTORS + 12


def limit(count: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))


@pytest.mark.parametrize("resident", [False, True], ids=["alone", "with an agent"])
def test_too_few_descriptors_are_refused(pair: SystemNode, *, resident: bool) -> None:
    pair.ok("scene", "activate", "day")
    before = (pair.root / ".kuda" / "state.yaml").read_bytes()
    if resident:
        start_agent(pair)
    for count in (FEWEST, 9, 12, 16, 24, 40):
        ran = pair.run("scene", "activate", "night", "--json", preexec_fn=limit(count))
        assert ran.exit == 3, (count, ran)
        assert "cannot begin: too many open files" in ran.json["error"]
        assert "ulimit -n" in ran.json["hint"]
        assert (pair.root / ".kuda" / "state.yaml").read_bytes() == before
    assert pair.status()["verdict"] == "exact"
    pair.ok("scene", "activate", "night", preexec_fn=limit(ENOUGH))
