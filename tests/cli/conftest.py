"""A fresh node for each test; whatever it started ends with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.node import SystemNode


@pytest.fixture
def node(tmp_path: Path) -> Iterator[SystemNode]:
    """Two Scenes that share a port and a model; nothing runs yet."""
    made = SystemNode(tmp_path / "root")
    made.root.mkdir()
    port = made.model("small")
    made.model("large", port=port)
    made.model("voice")
    made.scene("day", "small", "voice")
    made.scene("night", "large", "voice")
    made.write()
    try:
        yield made
    finally:
        made.close()
