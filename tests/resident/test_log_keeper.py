"""Logs are trimmed by the clock, and trouble is told once."""

from __future__ import annotations

import logging
from collections.abc import Callable
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


def sizes(folder: Path) -> int:
    return sum(each.stat().st_size for each in folder.iterdir())


async def periods_until(holds: Callable[[], object], clock: trio.testing.MockClock) -> None:
    """Let periods pass until `holds`.

    The disk is written in threads, for which the mock clock does not wait: it gets real time.
    """
    clock.autojump_threshold = 0.01
    for _ in range(3000):
        if holds():
            return
        await trio.sleep(PERIOD_S)
    raise AssertionError("never came")


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
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_logs, effects)
        await trio.sleep(0.5 * PERIOD_S)
        chat(log)
        await periods_until(lambda: sizes(log.parent) <= 10 * 1024 * 1024, autojump_clock)
        nursery.cancel_scope.cancel()


async def test_a_state_that_can_not_be_read_is_said_once(
    effects: HostEffects,
    tmp_path: Path,
    autojump_clock: trio.testing.MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (tmp_path / ".kuda" / "state.yaml").write_text("")
    async with trio.open_nursery() as nursery:
        with caplog.at_level(logging.WARNING):
            nursery.start_soon(keep_logs, effects)
            await periods_until(lambda: caplog.records, autojump_clock)
            for _ in range(3):
                await trio.sleep(PERIOD_S)
        nursery.cancel_scope.cancel()
    assert len(caplog.records) == 1
