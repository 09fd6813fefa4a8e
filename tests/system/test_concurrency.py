"""Many commands at once: one of them at a time does something, the others wait or say so."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

from tests.proof.crashing import LASTING, TRACE
from tests.proof.plays import CRASHING, Seen
from tests.system.node import SystemNode

ORDERS = [
    ["activate", "day"],
    ["activate", "night", "--wait"],
    ["resume"],
    ["activate", "day", "--wait"],
    ["deactivate"],
    ["resume", "--wait"],
    ["activate", "night"],
    ["deactivate", "--wait"],
    ["activate", "night"],
    ["adopt", "day"],
]


def test_of_twenty_commands_at_once_one_works_at_a_time(pair: SystemNode, tmp_path: Path) -> None:
    pair.ok("scene", "activate", "day")
    trace = tmp_path / "trace"
    started = [
        (order, pair.start("scene", *order, command=CRASHING, env={TRACE: str(trace)}))
        for order in ORDERS * 2
    ]
    refused = 0
    for order, command in started:
        _, err = command.communicate(timeout=120)
        said = (order, command.returncode, err.decode())
        assert b"Traceback" not in err, said
        if command.returncode == 5:
            refused += 1
            assert "--wait" not in order, said
            holder = re.search(
                r"'scene [\w ]+' holds the node's lock \(pid (\d+), for ", err.decode()
            )
            assert holder is not None, said
            assert int(holder[1]) in {each.pid for _, each in started}, said
        else:
            assert command.returncode == 0 or order[0] == "adopt", said
    assert refused
    assert overlaps(trace.read_text()) == []
    seen = Seen.of(pair)
    assert seen.living == set(seen.pids.values())
    assert pair.status()["verdict"] in ("exact", "idle")
    pair.ok("scene", "resume")
    assert Seen.of(pair) == seen


def overlaps(trace: str) -> list[str]:
    """Commands that changed something, then another did, then they again."""
    calls = [line.split() for line in trace.splitlines()]
    changes = [pid for pid, effect in calls if effect in LASTING - {"try_lock"}]
    turns = [pid for pid, _ in itertools.groupby(changes)]
    return [pid for pid in set(turns) if turns.count(pid) > 1]
