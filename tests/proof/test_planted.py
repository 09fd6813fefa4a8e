"""Tests of the tests: each planted bug is caught, by the promise that it breaks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.proof.planted import BUGS, Planted

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def catches() -> dict[str, str]:
    """What caught each bug, from one process of their own: they change modules."""
    ended = subprocess.run(
        [sys.executable, "-m", "tests.proof.planted"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not ended.stderr
    return dict(line.split("\t", 1) for line in ended.stdout.splitlines())


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name.replace(" ", "-"))
def test_a_planted_bug_is_caught(bug: Planted, catches: dict[str, str]) -> None:
    assert catches[bug.name].startswith(bug.caught_by)
