"""Real processes for tests: each is ended, also when a test fails."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from lumbridge_compute.core.launch import TOKEN_VARIABLE
from lumbridge_compute.host.procfs import read_carriers

PATIENCE_S = 30.0
REPOSITORY = Path(__file__).parents[2]


def until(condition: Callable[[], object], what: str = "the condition") -> None:
    """Return when `condition` holds; for what tells nobody that it has happened."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, f"{what} did not come about within {PATIENCE_S} s"
        time.sleep(0.002)


@dataclass
class Zoo:
    """Starts processes that carry `token`; whatever carries it at the end of the test is ended."""

    token: str
    folder: Path
    children: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def env(self) -> dict[str, str]:
        return {"PATH": "/usr/bin:/bin", TOKEN_VARIABLE: self.token}

    def start(
        self, *argv: str, env: Mapping[str, str] | None = None, close_fds: bool = True
    ) -> subprocess.Popen[str]:
        """Start a program in a session of its own, with pipes for stdin and stdout."""
        child = subprocess.Popen(
            argv,
            env={**self.env, **(env or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            close_fds=close_fds,
        )
        self.children.append(child)
        return child

    def sleeper(self) -> subprocess.Popen[str]:
        """A process that lives until it is signalled."""
        return self.start("sleep", "1000")

    def shell(self, script: str) -> subprocess.Popen[str]:
        return self.start("/bin/sh", "-c", script)

    def python(
        self, script: str, *arguments: str, prefix: Sequence[str] = (), close_fds: bool = True
    ) -> subprocess.Popen[str]:
        """Our own interpreter with our package; `prefix` is a program to run it under."""
        path = os.pathsep.join([str(REPOSITORY), *filter(None, sys.path)])
        command = (*prefix, sys.executable, "-c", script, *arguments)
        return self.start(*command, env={"PYTHONPATH": path}, close_fds=close_fds)

    def line(self, child: subprocess.Popen[str]) -> str:
        """The next line that `child` prints."""
        assert child.stdout is not None
        line = b""
        while not line.endswith(b"\n"):  # by bytes: select knows nothing of a buffer of ours
            ready, _, _ = select.select([child.stdout], [], [], PATIENCE_S)
            assert ready, f"{child.args!r} printed nothing within {PATIENCE_S} s"
            byte = os.read(child.stdout.fileno(), 1)
            assert byte, f"{child.args!r} ended after {line!r}"
            line += byte
        return line.decode().strip()

    def output(self, child: subprocess.Popen[str]) -> str:
        """Everything that `child` prints until it ends, which it does with 0."""
        text, _ = child.communicate(timeout=PATIENCE_S * 4)
        assert child.returncode == 0, text
        return text.strip()

    def close(self) -> None:
        for child in self.children:
            if child.poll() is None:
                child.kill()
            child.wait()
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    with suppress(BrokenPipeError):
                        pipe.close()
        until(self._is_empty, "the end of all processes of the test")

    def _is_empty(self) -> bool:
        left = read_carriers({self.token})[self.token]
        for pid in left:
            _kill_carrier(pid, self.token)
        return not left


def _kill_carrier(pid: int, token: str) -> None:
    with suppress(ProcessLookupError):
        descriptor = os.pidfd_open(pid)
        try:
            if pid in read_carriers({token})[token]:
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        finally:
            os.close(descriptor)
