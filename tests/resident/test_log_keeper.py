"""Logs are trimmed by the clock, and trouble is told once."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import trio
import trio.testing

from lumbridge_compute.core.identity import Identity
from lumbridge_compute.core.registry import Model
from lumbridge_compute.core.state import Bound, NodeState
from lumbridge_compute.host_effects import HostEffects
from lumbridge_compute.journal import Journal
from lumbridge_compute.resident.log_keeper import PERIOD_S, keep_logs
from lumbridge_compute.store.model_log import open_log

CHATTY_BYTES = 32 * 1024 * 1024


def chat(log: Path) -> None:
    with open(open_log(str(log)), "wb") as file:
        file.write(b"line\n" * (CHATTY_BYTES // 5))


@pytest.fixture
async def effects(tmp_path: Path) -> HostEffects:
    made = HostEffects(str(tmp_path))
    model = Model("m", ("m",), 8001, "m")
    record = Bound(Identity("another-boot", 7, 7), model)
    await Journal(made).update(lambda _state: NodeState(processes={"m": record}))
    return made


async def test_a_log_that_has_grown_is_trimmed_by_the_next_period(
    effects: HostEffects, tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    log = tmp_path / ".kuda" / "logs" / "m.log"
    log.parent.mkdir(mode=0o700)
    with trio.move_on_after(2.5 * PERIOD_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep_logs, effects)
            await trio.sleep(0.5 * PERIOD_S)
            chat(log)
    assert sum(each.stat().st_size for each in log.parent.iterdir()) <= 10 * 1024 * 1024


async def test_a_state_that_can_not_be_read_is_said_once(
    effects: HostEffects,
    tmp_path: Path,
    autojump_clock: trio.testing.MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (tmp_path / ".kuda" / "state.yaml").write_text("")
    with caplog.at_level(logging.WARNING), trio.move_on_after(3.5 * PERIOD_S):
        await keep_logs(effects)
    assert len(caplog.records) == 1
