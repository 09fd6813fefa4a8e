"""The stage of the guided tour: a whole node in a temporary folder, which leaves nothing behind."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress

import trio

import lumbridge_compute
from lumbridge_compute.core.health import Outcome, Request
from lumbridge_compute.core.identity import Identity
from lumbridge_compute.core.markers import BodyError, parse_markers
from lumbridge_compute.core.registry import HealthCheck
from lumbridge_compute.core.state import NodeState
from lumbridge_compute.core.values import dataclass, field
from lumbridge_compute.errors import Exit, OperatorError
from lumbridge_compute.host.files import PRIVATE_FOLDER
from lumbridge_compute.host.pidfd import HeldProcess, identify, open_same
from lumbridge_compute.host.procfs import read_file, read_pids
from lumbridge_compute.host.spawn import start
from lumbridge_compute.probe import ask
from lumbridge_compute.store.state_file import parse_state

SERVER = (sys.executable, "-m", "lumbridge_compute.demo.server")
LIFE_S = 120
"""A server ends by itself after this time, also when the demo is killed with SIGKILL."""

HOST = "127.0.0.1"
_ALARM = (
    "import os, signal, sys; signal.alarm(int(sys.argv[1])); os.execv(sys.argv[2], sys.argv[2:])"
)
"""Source: alarm(2), which outlives execve(2) and is not inherited by children."""

_MARK = "LUMBRIDGE_COMPUTE_DEMO"
_PATIENCE_S = 20.0
_LOOK_S = 0.02
_LISTENS = re.compile(rb"listens on 127\.0\.0\.1:([0-9]+)\n")


class DemoFailed(OperatorError):
    """A step did not do what it says."""

    exit = Exit.FAILED_SAFELY


@dataclass(frozen=True, slots=True)
class Server:
    """A model server that was started by hand."""

    identity: Identity
    port: int


@dataclass(frozen=True, slots=True)
class Stage:
    """One node; the commands that it runs write to the descriptor `output`."""

    root: str
    environ: Mapping[str, str]
    output: int
    by_hand: list[HeldProcess] = field(default_factory=list)

    async def start_by_hand(self, marker: str) -> Server:
        """A server on a port of the kernel's choice, as an operator starts one before there is a
        registry; it listens by now.  Raises DemoFailed."""
        log = os.path.join(self.root, f"{marker}.log")
        held = self._start([*SERVER, "--port", "0", "--marker", marker, "--life", str(LIFE_S)], log)
        with trio.move_on_after(_PATIENCE_S):
            while not held.ended:
                found = _LISTENS.search(read_file(log) or b"")
                if found is not None:
                    return Server(held.identity, int(found[1]))
                await trio.sleep(_LOOK_S)
        raise DemoFailed(f"cannot start {marker!r} by hand: it does not listen")

    def start_agent(self, *words: str) -> HeldProcess:
        """The real command in the background, its output in agent.log, with an end as `LIFE_S`."""
        command = [sys.executable, "-m", "lumbridge_compute", "--root", self.root, *words]
        alarmed = [sys.executable, "-c", _ALARM, str(LIFE_S), *command]
        return self._start(alarmed, os.path.join(self.root, "agent.log"))

    def _start(self, argv: list[str], log: str) -> HeldProcess:
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        try:
            held = start(argv, self.root, self.environ, nothing, output)
        finally:
            os.close(nothing)
            os.close(output)
        self.by_hand.append(held)
        return held

    def write_registry(self, text: str) -> None:
        """Write compute.yaml, which nobody else may change."""
        path = os.path.join(self.root, "compute.yaml")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)

    def shown(self, *words: str) -> str:
        """The command as an operator types it."""
        return shlex.join(["lumbridge-compute", "--root", self.root, *words])

    async def command(self, *words: str) -> int:
        """The exit code of the real command, whose output is the operator's to read."""
        # In a session of its own: Ctrl-C reaches the tour alone, which then ends everything.
        ran = await trio.run_process(
            [sys.executable, "-m", "lumbridge_compute", "--root", self.root, *words],
            stdout=self.output,
            stderr=self.output,
            check=False,
            cwd=self.root,
            env=self.environ,
            start_new_session=True,
            deliver_cancel=_kill,
        )
        return ran.returncode

    def state(self) -> NodeState:
        """What the state file says."""
        return parse_state(read_file(os.path.join(self.root, PRIVATE_FOLDER, "state.yaml")))

    async def marker(self, port: int) -> str | None:
        """The name under which `port` reports itself; None where nobody listens.

        Raises DemoFailed.
        """
        answer = await ask(Request(HOST, port, "/v1/models", timeout_s=_PATIENCE_S))
        if answer.outcome is Outcome.REFUSED:
            return None
        try:
            return ", ".join(parse_markers(HealthCheck(), answer.body))
        except BodyError as error:
            raise DemoFailed(f"cannot read what port {port} serves: {error}") from error


@asynccontextmanager
async def open_stage(environ: Mapping[str, str], output: int) -> AsyncIterator[Stage]:
    """A stage that is taken down at the end, also by a cancellation: no process, no file is left.

    Raises OSError where there is no folder for temporary files.
    """
    with tempfile.TemporaryDirectory(prefix="lumbridge-demo-") as root:
        stage = Stage(root, {**environ, _MARK: root, "PYTHONPATH": _import_path(environ)}, output)
        try:
            yield stage
        finally:
            with trio.CancelScope(shield=True):
                await _end_marked(root)
            for held in stage.by_hand:
                held.close()
            _show_cursor(output)


def find_free_port() -> int:
    """A port on which nobody listens."""
    with socket.socket() as sock:
        sock.bind((HOST, 0))
        port: int = sock.getsockname()[1]
    return port


def kill(identity: Identity) -> None:
    """SIGKILL to this one process."""
    held = open_same(identity)
    if held is not None:
        with held:
            held.signal(signal.SIGKILL)


def _import_path(environ: Mapping[str, str]) -> str:
    """Lets the servers, which start in the node's root, find this very package."""
    own = os.path.dirname(os.path.dirname(os.path.abspath(lumbridge_compute.__file__)))
    given = environ.get("PYTHONPATH")
    return f"{own}{os.pathsep}{given}" if given else own


async def _kill(process: trio.Process) -> None:
    process.kill()
    await trio.lowlevel.checkpoint()


def _show_cursor(output: int) -> None:
    """A command that was killed while it showed its progress has left the cursor hidden."""
    if os.isatty(output):
        with suppress(OSError):
            os.write(output, b"\033[?25h")


async def _end_marked(root: str) -> None:
    """End every process that carries the mark of `root`: commands, models, and what they start."""
    entry = f"\0{_MARK}={root}\0".encode()
    clean = 0
    with trio.move_on_after(_PATIENCE_S):
        # Twice, since the environment of a process that just calls exec can't be seen.
        while clean < 2:
            found = [each for pid in read_pids() if (each := _marked(pid, entry)) is not None]
            for identity in found:
                kill(identity)
            clean = 0 if found else clean + 1
            await trio.sleep(_LOOK_S)


def _marked(pid: int, entry: bytes) -> Identity | None:
    if entry not in _environ(pid):
        return None
    identity = identify(pid)
    # Asked again: whoever has the PID by now carries the mark as well.
    return identity if entry in _environ(pid) else None


def _environ(pid: int) -> bytes:
    return b"\0" + (read_file(f"/proc/{pid}/environ") or b"")
