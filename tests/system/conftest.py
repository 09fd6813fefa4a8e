"""A fresh node for each test; whatever it started ends with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.node import SystemNode


@pytest.fixture
def node(tmp_path: Path) -> Iterator[SystemNode]:
    made = SystemNode(tmp_path)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def pair(node: SystemNode) -> SystemNode:
    """Two Scenes that share a model and a port."""
    port = node.model("small")
    node.model("large", port=port)
    node.model("voice")
    node.scene("day", "small", "voice")
    node.scene("night", "large", "voice")
    node.write()
    return node
