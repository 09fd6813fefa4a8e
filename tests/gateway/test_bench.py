"""The bench of the gateway still runs; what it measures is not judged here."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "scripts" / "bench.d" / "gateway.py"


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
@pytest.mark.parametrize("task", ["bulk", "echo", "50 ", "connect", "idle"])
def test_every_kind_of_measurement_gives_a_table(task: str) -> None:
    short = ["--rounds", "1", "--seconds", "0.05", "--bulk", "4", "--relays", "lumbridge"]
    result = subprocess.run(
        [sys.executable, str(BENCH), "--only", task, *short],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert "| lumbridge | " in result.stdout
