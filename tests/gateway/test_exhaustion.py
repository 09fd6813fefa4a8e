"""Out of descriptors: accepting pauses, and nothing spins."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCENARIO = Path(__file__).with_name("exhausted.py")
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("left", [0, 1, 2])
def test_out_of_descriptors_accepting_pauses_and_comes_back(left: int) -> None:
    """In a process of its own, whose limit is lowered."""
    result = subprocess.run(
        [sys.executable, "-W", "error", str(SCENARIO), str(left)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
