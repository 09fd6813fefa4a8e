"""The agent as a service of the box's systemd, and clients at its gateway."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import trio

from lumbridge_compute.core.launch import TOKEN_VARIABLE
from tests.system.node import SystemNode, free_port

UNIT = "lumbridge-compute-agent.service"
CHECKOUT = Path(__file__).parents[2]
UNIT_FILE = CHECKOUT / "units" / UNIT
CGROUPS = Path("/sys/fs/cgroup")
SLICE = "/lumbridge.slice/lumbridge-compute.slice/"
PATIENCE_S = 60.0
INSTALLED = Path("/etc/systemd/system") / UNIT
_EVERY_S = 0.005


class Service:
    """The unit, put in place by hand unless `by_hand` is False, and the node at its root."""

    def __init__(self, *, by_hand: bool = True) -> None:
        text = UNIT_FILE.read_text()
        (root,) = re.findall(r"^Environment=LUMBRIDGE_COMPUTE_ROOT=(.*)$", text, re.MULTILINE)
        (program,) = re.findall(r"^ExecStart=(\S+)", text, re.MULTILINE)
        if by_hand:
            install_program(Path(program))
            shutil.copy(UNIT_FILE, INSTALLED)
        Path(root).mkdir(mode=0o755, parents=True)
        self.node = SystemNode(Path(root))
        self.node.settings["memory_floor"] = "64MiB"
        self.gateway = free_port()
        self.upstream = self.node.model("small")
        self.node.model("large", "--slow-start", "2", port=self.upstream)
        self.node.model("voice")
        self.node.scene("day", "small", "voice")
        self.node.scene("night", "large", "voice")
        self.declare_gateways(self.gateway)

    def declare_gateways(self, *listen: int) -> None:
        """Write compute.yaml with a gateway on each of `listen`, all to one upstream."""
        self.node.settings["gateways"] = [
            {"listen": f"127.0.0.1:{port}", "upstream": f"127.0.0.1:{self.upstream}"}
            for port in listen
        ]
        self.node.write()

    def drop_in(self, *lines: str) -> None:
        """Change the unit as `systemctl edit` would, for what would take too long otherwise."""
        folder = INSTALLED.with_name(f"{UNIT}.d")
        folder.mkdir()
        (folder / "test.conf").write_text("\n".join(["[Service]", *lines, ""]))

    async def systemctl(self, *words: str) -> str:
        """What `systemctl WORDS UNIT` prints; it fails the test unless it works."""
        return await run("systemctl", *words, UNIT)

    async def start(self, scene: str | None = None) -> dict[str, int]:
        """Start the agent, activate `scene`, and answer with the pids of its models."""
        await run("systemctl", "daemon-reload")
        await self.systemctl("start")
        if scene is None:
            return {}
        await self.command("scene", "activate", scene)
        return self.node.pids()

    async def command(self, *words: str) -> None:
        await trio.to_thread.run_sync(lambda: self.node.ok(*words))

    async def show(self, name: str) -> str:
        return await self.systemctl("show", "--value", f"--property={name}")

    async def main_pid(self) -> int:
        return int(await self.show("MainPID"))

    async def restarted(self, before: int) -> int:
        """The pid of the agent that serves after the one that was `before`."""

        async def serves_anew() -> bool:
            return (
                await self.main_pid() not in (0, before)
                and await self.show("ActiveState") == "active"
            )

        await eventually(serves_anew, "another agent")
        return await self.main_pid()

    async def processes(self) -> set[int]:
        """The pids in the agent's own cgroup."""
        return members_of(await self.show("ControlGroup"))


async def run(*argv: str) -> str:
    """What `argv` prints; it fails the test unless it works."""
    with trio.fail_after(PATIENCE_S):
        ended = await trio.run_process(argv, capture_stdout=True)
    return ended.stdout.decode().strip()


def install_program(program: Path) -> None:
    """The command at `program`, from this checkout; the pid stays."""
    words = shlex.join([sys.executable, "-m", "lumbridge_compute"])
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(
        f'#!/bin/sh\nexport PYTHONPATH={shlex.quote(str(CHECKOUT))}\nexec {words} "$@"\n'
    )
    program.chmod(0o755)


async def eventually(holds: Callable[[], Awaitable[bool]], what: str) -> None:
    """Look again and again until `holds`; fail the test when it never does."""
    with trio.move_on_after(PATIENCE_S):
        while True:
            if await holds():
                return
            await trio.sleep(0.02)
    raise AssertionError(f"never: {what}")


async def listens(port: int) -> bool:
    """Does anybody?  A gateway with nobody behind it resets at once, and that can come before the
    connection is seen to be there."""
    with trio.socket.socket() as sock:
        try:
            await sock.connect(("127.0.0.1", port))
        except ConnectionRefusedError:
            return False
        except ConnectionResetError:
            return True
    return True


def members_of(cgroup: str) -> set[int]:
    """The pids in the cgroup at that path of the box's tree; none when it is gone."""
    try:
        return set(map(int, (CGROUPS / cgroup[1:] / "cgroup.procs").read_text().split()))
    except FileNotFoundError:
        return set()


def scopes() -> list[Path]:
    """The cgroups of models that there are."""
    return list((CGROUPS / SLICE[1:]).glob("*.scope"))


def models() -> set[int]:
    """The processes in the box that were started as models."""
    return {
        int(name)
        for name in os.listdir("/proc")
        if name.isdigit() and TOKEN_VARIABLE in environment_of(int(name))
    }


def open_files_of(pid: int) -> int:
    """How many files `pid` may have open: the soft limit."""
    (line,) = re.findall(
        r"^Max open files +(\d+)", Path(f"/proc/{pid}/limits").read_text(), re.MULTILINE
    )
    return int(line)


def oom_score_adj_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text())


def cgroup_of(pid: int) -> str:
    """The path of `pid` in the box's cgroup tree."""
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    (path,) = [line.removeprefix("0::") for line in lines if line.startswith("0::")]
    return path


def environment_of(pid: int) -> dict[str, str]:
    """What `pid` was started with; nothing when it has ended."""
    try:
        entries = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    except OSError:
        return {}
    return dict(entry.partition("=")[::2] for entry in entries if entry)


def are_same(pids: dict[str, int], marker: str = "--marker") -> bool:
    """Whether all of `pids` live and are the models that they were."""
    return all(
        os.path.exists(f"/proc/{pid}/cmdline")
        and [marker, name] == _words(pid)[_words(pid).index(marker) :][:2]
        for name, pid in pids.items()
    )


def _words(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")


@dataclass
class Clients:
    """A client every 5 ms that asks the gateway for the models, and what became of them.

    `answered`: with the whole answer; `reset`: without one, told so; `refused`: nobody listened;
    `torn`: an end that looks orderly in the middle of an answer.
    """

    port: int
    ends: Counter[str] = field(default_factory=Counter)

    async def run(self, until: trio.Event) -> None:
        """Come until `until`, and return when the last one has left."""
        async with trio.open_nursery() as nursery:
            while not until.is_set():
                nursery.start_soon(self._ask)
                await trio.sleep(_EVERY_S)

    async def more(self) -> None:
        """Return when one more has been answered."""
        before = self.ends["answered"]

        async def another() -> bool:
            return self.ends["answered"] > before

        await eventually(another, "a client answered")

    async def _ask(self) -> None:
        with trio.socket.socket() as sock, trio.fail_after(PATIENCE_S):
            try:
                await sock.connect(("127.0.0.1", self.port))
                await sock.send(b"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                answer = await _read_all(sock)
            except ConnectionRefusedError:
                self.ends["refused"] += 1
            except (ConnectionResetError, BrokenPipeError):
                self.ends["reset"] += 1
            else:
                self.ends["answered" if _is_whole(answer) else "torn"] += 1


async def _read_all(sock: trio.socket.SocketType) -> bytes:
    answer = b""
    while part := await sock.recv(65536):
        answer += part
    return answer


def _is_whole(answer: bytes) -> bool:
    try:
        return bool(json.loads(answer.partition(b"\r\n\r\n")[2])["data"])
    except ValueError:
        return False
