"""What holds for every test."""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

BOXES = Path(__file__).parent / "systemd"

# In the background of a shell SIGINT is ignored, and so it would be in all that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A machine may be busy: how long an example takes says nothing about the code.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("busy"), derandomize=True)
# Hours for the fuzzers: CONTRIBUTING, Tests.
settings.register_profile("long", settings.get_profile("busy"), max_examples=20_000)
settings.load_profile("ci" if os.environ.get("CI") else "busy")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first: one that begins as the last would leave the other workers idle."""
    items.sort(key=lambda item: not item.path.is_relative_to(BOXES))


@pytest.fixture(scope="session")
def locks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all workers of this run share."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(autouse=True)
def _room(request: pytest.FixtureRequest, locks: Path) -> Iterator[None]:
    """Keep the others out while a test marked `alone` runs.

    Everybody comes in by way of the door, and one who wants the room for itself waits in the door:
    it is not overtaken for ever.
    """
    alone = request.node.get_closest_marker("alone") is not None
    with (locks / "room.lock").open("w") as room:
        with (locks / "door.lock").open("w") as door:
            fcntl.flock(door, fcntl.LOCK_EX)
            fcntl.flock(room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield
