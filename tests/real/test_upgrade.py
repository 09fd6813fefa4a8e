"""A node of a real server is installed, upgraded under a stream and taken back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.systemd.test_in_a_box import run_inside

pytestmark = pytest.mark.real


def test_an_upgrade_and_its_way_back_under_a_stream(llama_server: Path) -> None:
    run_inside(
        "tests/real/boxed.py::test_an_upgrade_and_its_way_back_under_a_stream",
        show=[llama_server.parents[1]],
    )
