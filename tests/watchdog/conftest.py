"""A meminfo that a test writes, and models that a test may see stopped."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lumbridge_compute.core.units import GIB

TOTAL = 64 * GIB
IGNORES_TERM = ("sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1000 & wait; done")
PLAIN = ("sh", "-c", "echo ready; exec sleep 1000")


class FakeMeminfo:
    """A regular file that is rewritten in place, with one write of one length."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self.set(32 * GIB)

    def set(self, available_bytes: float) -> None:
        kib = int(available_bytes) // 1024
        self.write(
            f"MemTotal:    {TOTAL // 1024:16d} kB\nMemFree:     {1:16d} kB\n"
            f"MemAvailable:{kib:16d} kB\n"
        )

    def write(self, text: str) -> None:
        os.pwrite(self._descriptor, text.encode().ljust(256, b"\n"), 0)

    def close(self) -> None:
        os.close(self._descriptor)


class Model:
    """A process in a session of its own, and its pidfd."""

    def __init__(self, command: tuple[str, ...]) -> None:
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.pid = self.process.pid
        self.pidfd = os.pidfd_open(self.pid)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"ready\n"

    def wait(self) -> int:
        """The number of the signal that ended it."""
        return -self.process.wait(timeout=30)

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def end(self) -> None:
        try:
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL, None, 4)
        except OSError:
            self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        os.close(self.pidfd)


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[FakeMeminfo]:
    fake = FakeMeminfo(tmp_path / "meminfo")
    yield fake
    fake.close()


@pytest.fixture
def start_model() -> Iterator[Callable[..., Model]]:
    models: list[Model] = []

    def start(*, ignores_term: bool = False) -> Model:
        models.append(Model(IGNORES_TERM if ignores_term else PLAIN))
        return models[-1]

    yield start
    for model in models:
        model.end()
