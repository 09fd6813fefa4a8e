"""The real command killed at its own effects and struck at its system calls: a resume converges.

A sample of what `scripts/prove --real` does at every one.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.proof.plays import KILLED, PLAYS, Death, build, render_broken, strike
from tests.proof.real import count_effects
from tests.proof.syscalls import Struck, why_no_strace
from tests.system.node import SystemNode

DEATHS = {"activate": 1, "switch": 2, "bad": 1, "resume": 1, "deactivate": 1, "adopt": 1}
"""How many effects of each play are struck, others in each run."""

BLOWS = {
    "activate": ["write:2:ENOSPC", "rename:2:KILL"],
    "deactivate": ["fsync:5:ENOSPC", "openat:14:KILL"],
}


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[SystemNode]:
    node = build(tmp_path)
    try:
        yield node
    finally:
        node.close()


@pytest.mark.parametrize("play", PLAYS)
def test_a_command_killed_at_any_effect_is_put_right_by_a_resume(
    stage: SystemNode, play: str
) -> None:
    points = count_effects(stage, play)
    struck = random.sample(points, DEATHS[play])
    for turn, point in enumerate(struck, 1):
        ran, broken = strike(stage, PLAYS[play], Death(point))
        words = " ".join(map(str, struck[:turn]))
        assert not broken, render_broken(stage, play, words, ran, broken)


@pytest.mark.parametrize("play", BLOWS)
def test_a_command_struck_at_a_system_call_is_put_right_by_a_resume(
    stage: SystemNode, play: str
) -> None:
    if (why := why_no_strace()) is not None:
        pytest.skip(why)
    for turn, words in enumerate(BLOWS[play], 1):
        blow = Struck.parse(words)
        ran, broken = strike(stage, PLAYS[play], blow)
        said = render_broken(stage, play, " ".join(BLOWS[play][:turn]), ran, broken)
        assert not broken, said
        assert (ran.exit == KILLED) == (blow.fault == "KILL"), said
        assert "symbolic link" not in ran.err, said
