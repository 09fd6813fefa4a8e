"""What the tests of the gateway share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.gateway.rig import Rig, open_rig


@pytest.fixture
def rig() -> Iterator[Rig]:
    with open_rig() as opened:
        yield opened
