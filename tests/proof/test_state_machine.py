"""Lives of simulated nodes that Hypothesis chooses: no promise breaks, and all is reached often."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.fakes.faults import Kind
from tests.proof.circumstances import NAMES
from tests.proof.life import live
from tests.proof.lives import live_quickly

AT_LEAST = 3
"""How often each circumstance, command and answer is met at the least."""

ROOT = Path(__file__).parents[2]
EXITS = ("exit 0", "exit 1", "exit 2", "exit 3", "exit 4", "exit 130", "killed")
RUNS = ("activate", "resume", "plan", "deactivate", "adopt", "forget", "status")


def test_no_promise_breaks_and_everything_is_met_often() -> None:
    wanted = (
        *NAMES,
        *EXITS,
        *(f"run {name}" for name in RUNS),
        "converged",
        "converged to a Scene",
    )

    def missed(reached: Counter[str]) -> dict[str, int]:
        faults = {f"fault {kind}": 1 for kind in Kind}
        least = dict.fromkeys(wanted, AT_LEAST) | faults
        return {name: reached[name] for name in least if reached[name] < least[name]}

    assert missed(live_quickly(lambda reached: not missed(reached))) == {}


@pytest.mark.parametrize("bug", ["record removed too early", "identity not compared"])
def test_lives_by_chance_come_upon_a_planted_bug(bug: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "tests.proof.planted", "--lives", bug],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith(f"{bug}\t")


# Lives that were found, each with what broke.


def test_a_scene_is_not_restored_without_a_model_whose_record_was_forgotten() -> None:
    """It was called restored and verified, and was active, with one of its models missing."""
    live("start night 0; die think whole; run forget-think; run activate-night model-dies@60; end")
