"""What runs in the box: the real unit, the real agent, stand-ins for the models."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from tests.systemd.service import Service

IN_A_BOX = os.path.exists("/run/lumbridge-box")
collect_ignore_glob = [] if IN_A_BOX else ["test_*.py"]


@pytest.fixture
def service() -> Iterator[Service]:
    """The unit as installed, not started; two Scenes on one gateway that share a model."""
    installed = Service()
    yield installed
    subprocess.run(
        ["journalctl", "--no-pager", "--lines=200"], check=True
    )  # shown when the test has failed
