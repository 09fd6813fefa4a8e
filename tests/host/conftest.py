"""Fixtures of the host layer's tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.host.zoo import Zoo


@pytest.fixture
def zoo(tmp_path: Path) -> Iterator[Zoo]:
    folder = tmp_path / "zoo"
    folder.mkdir()
    zoo = Zoo(f"test-{os.urandom(8).hex()}", folder)
    try:
        yield zoo
    finally:
        zoo.close()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[int]:
    """A descriptor for the output of models; its file is tmp_path/log."""
    descriptor = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    yield descriptor
    os.close(descriptor)
