"""The PID of a dead model is a stranger's now."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]


def test_a_stranger_with_the_pid_of_a_model_lives_through_every_command(tmp_path: Path) -> None:
    unshare = shutil.which("unshare")
    if unshare is None or os.geteuid() != 0:
        pytest.skip("a pid namespace of our own needs root and unshare")
    namespace = [unshare, "--pid", "--fork", "--mount-proc", "--kill-child"]
    probe = [*namespace, "test", "-w", "/proc/sys/kernel/ns_last_pid"]
    if subprocess.run(probe, capture_output=True, check=False).returncode != 0:
        pytest.skip("no pid namespace with ns_last_pid on this machine")
    program = [*namespace, sys.executable, "-m", "tests.system.pid_reuse", str(tmp_path)]
    ran = subprocess.run(
        program, capture_output=True, text=True, cwd=CHECKOUT, timeout=120, check=False
    )
    assert ran.returncode == 0, ran
    # One that does nothing is nothing to us.  One that serves on the model's port refuses what
    # needs that port, and nothing else.
    assert ran.stdout.splitlines() == ["None 0 0 0 0 0", "None 0 3 3 0 0"], ran
