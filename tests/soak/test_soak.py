"""A short soak is part of every test run, and leaves nothing behind however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.node import until

ROOT = Path(__file__).parents[2]
SEED = 5


def start_soak(folder: Path, minutes: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.soak.soak", "--minutes", str(minutes), "--seed", str(SEED)],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(folder)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def left(folder: Path) -> list[str]:
    """Living processes and files that a soak in `folder` has left."""
    mark = f"LUMBRIDGE_TEST_NODE={folder}".encode()
    return [*map(str, folder.iterdir()), *(pid for pid in os.listdir("/proc") if has(pid, mark))]


def has(pid: str, mark: bytes) -> bool:
    try:
        return mark in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


def test_a_short_soak_breaks_no_promise_and_leaves_nothing(tmp_path: Path) -> None:
    soak = start_soak(tmp_path, 0.25)
    out, _ = soak.communicate(timeout=300)
    assert soak.returncode == 0, out
    assert f"--seed {SEED}" in out
    assert left(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_soak_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    soak = start_soak(tmp_path, 5)
    until(lambda: len(left(tmp_path)) > 1, "something runs")
    soak.send_signal(number)
    out, _ = soak.communicate(timeout=60)
    assert soak.returncode == 130, out
    assert left(tmp_path) == []
