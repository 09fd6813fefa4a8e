"""A whole node in a temporary root, driven by the installed command, with real model servers."""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from lumbridge_compute.cli.node import read_status
from lumbridge_compute.core.report_status import status_document
from tests.system.forked import run_forked

COMMAND = [sys.executable, "-m", "lumbridge_compute"]
SERVER = [sys.executable, "-m", "lumbridge_compute.demo.server"]
BOUND_S = 60
_MARK = "LUMBRIDGE_TEST_NODE"


_PARTS, _PART_SIZE = 11, 2_000
_part = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_given: set[int] = set()


def choose_ports(part: int) -> None:
    """Give out the ports of another part from now on: others work beside this process."""
    global _part  # noqa: PLW0603 - as the environment tells it to a worker of pytest
    _part = part


def free_port() -> int:
    """A port below the range that the kernel hands out by itself and in this worker's own part, so
    that neither a connection nor another test takes it between now and its use; and another one at
    each call."""
    first = 10_000 + _PART_SIZE * (_part % _PARTS)
    while True:
        port = random.randrange(first, first + _PART_SIZE)
        if port in _given and len(_given) < _PART_SIZE / 2:
            continue
        with socket.socket() as probe, socket.socket(socket.AF_INET6) as probe6:
            try:
                probe.bind(("127.0.0.1", port))
                probe6.bind(("::1", port))
            except OSError:
                continue
            _given.add(port)
            return port


@dataclass
class SystemNode:
    """The node's files, and every process that was started on its behalf."""

    root: Path
    models: dict[str, dict[str, Any]] = field(default_factory=dict)
    scenes: dict[str, dict[str, Any]] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    strangers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def model(self, name: str, *options: str, port: int | None = None, **keys: Any) -> int:
        """Declare a model served by the stand-in with `options`; answers with its port."""
        port = port or free_port()
        command = [*SERVER, "--port", "${port}", "--marker", "${marker}", *options]
        self.models[name] = {
            "command": command,
            "port": port,
            "health": {"timeout": "20s"},
            "stop": {"grace": "5s"},
            **keys,
        }
        return port

    def scene(self, name: str, *models: str) -> None:
        self.scenes[name] = {"models": list(models)}

    def write(self) -> None:
        document: dict[str, Any] = {"version": 1, "models": self.models, "scenes": self.scenes}
        if self.settings:
            document["node"] = self.settings
        (self.root / "compute.yaml").write_text(yaml.safe_dump(document, sort_keys=False))

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("LUMBRIDGE")}
        return {**inherited, _MARK: str(self.root), **self.env, **(extra or {})}

    def start(self, *args: str, **keys: Any) -> subprocess.Popen[bytes]:
        """The command, running; its output is piped unless `keys` say otherwise.

        `command` in `keys` is a program that stands for the installed one.
        """
        keys = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **keys}
        env = self.environment(keys.pop("env", None))
        command = [*keys.pop("command", COMMAND), "--root", str(self.root), *args]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, env=env, **keys)

    def run(self, *args: str, **keys: Any) -> Ran:
        """The command, ended; see `Ran`.  Forked where nothing is asked of how it starts."""
        if keys:
            process = self.start(*args, **keys)
            out, err = process.communicate(timeout=BOUND_S)
            code = process.returncode
        else:
            words = ["--root", str(self.root), *args]
            code, out, err = run_forked(words, self.environment(), BOUND_S)
        ran = Ran(code, (out or b"").decode(), (err or b"").decode())
        assert "Traceback" not in ran.err, ran.err
        return ran

    def ok(self, *args: str, **keys: Any) -> Ran:
        """As `run`; fails the test unless it exits with 0."""
        ran = self.run(*args, **keys)
        assert ran.exit == 0, ran
        return ran

    def state(self) -> dict[str, Any]:
        loaded: dict[str, Any] = yaml.safe_load((self.root / ".kuda" / "state.yaml").read_text())
        return loaded

    def pids(self) -> dict[str, int]:
        """The recorded pid of each model."""
        return {name: record["pid"] for name, record in self.state()["processes"].items()}

    def until_error(self, fragment: str) -> None:
        """Wait until `last_error` says so."""
        until(lambda: fragment in (self.state()["last_error"] or ""), fragment)

    def status(self) -> dict[str, Any]:
        """The document of `status --json`.

        It is looked at from here, as the command does it; in a thread, since the caller may run in
        trio itself."""
        with ThreadPoolExecutor(1) as thread:
            seen = thread.submit(read_status, str(self.root), self.environment()).result()
        loaded: dict[str, Any] = json.loads(json.dumps(status_document(seen)))
        return loaded

    def stranger(self, *options: str, port: int, marker: str) -> subprocess.Popen[bytes]:
        """A server that nobody recorded, in a session of its own, serving by now."""
        command = [*SERVER, "--port", str(port), "--marker", marker, *options]
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env=self.environment(),
        )
        self.strangers.append(process)
        assert process.stdout is not None
        assert process.stdout.readline(), "the stranger did not start"
        return process

    def processes(self) -> set[int]:
        """Every living process with this node's mark in its environment, zombies left out."""
        mark = f"{_MARK}={self.root}".encode()
        return {pid for pid in _all_pids() if mark in _environ(pid) and _alive(pid)}

    def servers(self) -> set[int]:
        """Every living process of a model: marked, and started as one."""
        own = {process.pid for process in self.strangers}
        return {
            pid
            for pid in self.processes() - own
            if any(entry.startswith(b"LUMBRIDGE_COMPUTE_TOKEN=") for entry in _environ(pid))
        }

    def close(self) -> None:
        """End everything that was started on the node's behalf."""
        for _ in range(100):
            left = self.processes()
            for pid in left:
                _kill(pid)
            if not left:
                break
            select.select([], [], [], 0.02)
        for process in self.strangers:
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


@dataclass(frozen=True)
class Ran:
    """How a command ended."""

    exit: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads(self.out)
        return loaded


def until(holds: Callable[[], bool], what: str, bound_s: float = 20) -> None:
    """Look again and again until `holds`; fail the test after `bound_s`."""
    for _ in range(int(bound_s / 0.01)):
        if holds():
            return
        select.select([], [], [], 0.01)
    raise AssertionError(f"never: {what}")


def alive(pid: int) -> bool:
    return _alive(pid)


def _all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _environ(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _alive(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text[text.rindex(")") + 2] not in "ZX"


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
