"""What the floor did is in the history, also when the agent leaves right after it."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from lumbridge_compute.effects import HISTORY_FILE
from lumbridge_compute.host_effects import HostEffects
from lumbridge_compute.resident.floor_watch import FloorWatch
from lumbridge_compute.store.history import HistoryEntry, parse_history
from lumbridge_compute.watchdog.protocol import FloorEvent, FloorEventKind

TERM = FloorEvent(FloorEventKind.TERM, 1.0, 10, 100, 50, victim="hog", grace_s=1.0)
KILL = FloorEvent(FloorEventKind.KILL, 2.0, 5, 100, 50, victim="hog")
STOPPED = FloorEvent(FloorEventKind.STOPPED, 3.0, 90, 100, 50, victim="hog", exit_s=1.0)


async def history_after(root: Path, *events: FloorEvent) -> list[HistoryEntry]:
    """What the history says when the agent leaves in the moment after `events`."""
    (root / ".kuda").mkdir(mode=0o700)
    watch = FloorWatch(HostEffects(str(root)), 0)
    async with trio.open_nursery() as nursery:
        await nursery.start(watch.run)
        for event in events:
            watch._hear(event)
        nursery.cancel_scope.cancel()
    file = root / ".kuda" / HISTORY_FILE
    return list(parse_history(file.read_bytes() if file.exists() else b""))


@pytest.mark.parametrize(
    "events",
    [(TERM,), (TERM, KILL), (TERM, STOPPED), (TERM, KILL, STOPPED)],
    ids=["signalled", "twice", "stopped", "killed"],
)
async def test_an_agent_that_leaves_right_after_a_stop_leaves_one_line(
    tmp_path: Path, events: tuple[FloorEvent, ...]
) -> None:
    (line,) = await history_after(tmp_path, *events)
    assert line.command == "floor"
    assert "the memory floor stopped 'hog'" in (line.error or "")
    assert line.figures["victim"] == "hog"


async def test_a_quiet_floor_leaves_none(tmp_path: Path) -> None:
    assert await history_after(tmp_path) == []
