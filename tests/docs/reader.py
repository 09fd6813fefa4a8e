"""A reader who types the commands of a document, one after the other, in a prepared home folder."""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from lumbridge_compute.errors import Exit
from tests.docs.commands import CHECKOUT, DOCUMENTS, Command, commands_of
from tests.system.agent import Agent, start_agent
from tests.system.node import COMMAND, SERVER, SystemNode, free_port

BOUND_S = 120
MARKERS = {"qwen": "qwen3-8b", "piper": "en_GB-alba-medium"}
PORTS = {"qwen": 8001, "piper": 8002}

# A real server's command line, served by the embedded one.
STAND_IN = """#!/bin/sh
while [ $# -gt 0 ]; do
    case $1 in
        --port) port=$2; shift ;;
        --model) marker=$(basename "$2" .onnx); shift ;;
        --alias) marker=$2; shift ;;
    esac
    shift
done
exec {server} --port "$port" --marker "$marker"
"""


class Reader:
    """A shell that goes on from command to command, and the node that the commands are about."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.node = SystemNode(home / "node")
        self._ports: dict[str, str] = {}
        self._pids: dict[str, int] = {}
        self._agent: Agent | None = None
        self._shims = home / "shims"
        for folder in (self._shims, home / ".local" / "bin"):
            folder.mkdir(parents=True)
        self._shim("lumbridge-compute", f'#!/bin/sh\nexec {shlex.join(COMMAND)} "$@"\n')
        for name in ("llama-server", "piper-python"):
            self._shim(name, STAND_IN.format(server=shlex.join(SERVER)))
        path = f"{self._shims}:{Path(sys.executable).parent}:/usr/bin:/bin"
        # The agent that Python starts finds the models' programs as the shell does.
        self.node.env = {"HOME": str(home), "PATH": path, "PYTHONPATH": str(CHECKOUT)}
        self._shell = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=home,
            env=self.node.environment(),
        )

    def _shim(self, name: str, text: str) -> None:
        (self._shims / name).write_text(text)
        (self._shims / name).chmod(0o755)

    # --- what a command is here

    def here(self, text: str) -> str:
        """`text` with what belongs to this machine in it."""
        text = re.sub(r"\b80[0-9]{2}\b", lambda found: self._port(found[0]), text)
        for name, pid in self._pids.items():
            text = re.sub(rf"\b{name}=42\d\d\b", f"{name}={pid}", text)
        text = text.replace("/data/piper/bin/python", "piper-python")
        return text.replace("memory_floor: 3GiB", "memory_floor: 64MiB")

    def _port(self, written: str) -> str:
        while written not in self._ports:
            if (port := str(free_port())) not in self._ports.values():
                self._ports[written] = port
        return self._ports[written]

    def type(self, command: Command) -> None:
        """Run it as its family is run, and check its exit code."""
        match command.family:
            case "box" | "deploy-key":
                pass  # they have a test of their own
            case "agent":
                words = shlex.split(self.here(command.text))[2:]
                self._agent = start_agent(self.node, *words)
            case "completion":
                check_completion(command, self)
            case "script":
                check_script(command)
            case _:
                self.run(self.here(command.text), command)

    def run(self, text: str, command: object, code: int | None = None) -> str:
        """What `text` prints in the shell; fails the test unless it exits as `command` says."""
        if code is None:
            code = command.exit if isinstance(command, Command) else 0
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self._shell.stdin.write(f"{{ {text}\n}} </dev/null\nprintf '\\n@@%d\\n' $?\n")
        self._shell.stdin.flush()
        said = ""
        patience = threading.Timer(BOUND_S, self._shell.kill)
        patience.start()
        for line in self._shell.stdout:
            if line.startswith("@@"):
                break
            said += line
        else:
            raise AssertionError(f"{command}: the shell has ended: {said}")
        patience.cancel()
        assert "Traceback" not in said, said
        assert int(line[2:]) == code, (
            f"{command}: exit code {line[2:].strip()}, wanted {code}: {said}"
        )
        return said

    def close(self) -> None:
        if self._agent is not None:
            with contextlib.suppress(ProcessLookupError):
                self._agent.process.terminate()
        self._shell.kill()
        self._shell.communicate()
        self.node.close()

    def leave(self) -> None:
        """The end of the document: Ctrl-C for an agent in the foreground."""
        if self._agent is not None:
            self._agent.process.send_signal(2)
            assert self._agent.ended() == Exit.DONE, self._agent.log

    # --- what a document or a section begins with

    def make_node(self) -> None:
        """The node of README, as its reader has made it."""
        for command in commands_of(DOCUMENTS[0]):
            if "cat > compute.yaml" in command.text or command.text.startswith("mkdir"):
                self.run(self.here(command.text), command)
        self.run("cd ~", "the reader is at home")

    def start_by_hand(self) -> None:
        """A fresh node whose Scene runs already."""
        self.run("lumbridge-compute --root ~/node scene deactivate", "before an adoption")
        shutil.rmtree(self.node.root / ".kuda")
        for name, marker in MARKERS.items():
            port = int(self._port(str(PORTS[name])))
            self._pids[name] = self.node.stranger(port=port, marker=marker).pid

    def in_service(self) -> None:
        """A node on which a Scene runs, with a gateway."""
        self.make_node()
        registry = self.node.root / "compute.yaml"
        listen, upstream = self._port("8011"), self._port("8001")
        gateway = f"{{listen: 127.0.0.1:{listen}, upstream: 127.0.0.1:{upstream}}}"
        registry.write_text(f"{registry.read_text()}node: {{gateways: [{gateway}]}}\n")
        self.node.ok("scene", "activate", "assistant")
        self._pids = self.node.pids()


STAGES: dict[tuple[str, str], Callable[[Reader], None]] = {
    ("README.md", "lumbridge-compute scene adopt"): Reader.start_by_hand,
    ("docs/operations.md", ""): Reader.make_node,
    ("docs/operations.md", "Adoption of what already runs"): Reader.start_by_hand,
    ("docs/troubleshooting.md", ""): Reader.in_service,
}
"""What is so before a document, a section of it, or a command that begins so."""


def stages_of(document: str) -> dict[str, Callable[[Reader], None]]:
    return {where: stage for (of, where), stage in STAGES.items() if of == document}


def check_script(command: Command) -> None:
    """The script is there, and its --help knows the subcommand and every option."""
    words = shlex.split(command.text.removeprefix("sudo "))
    script = CHECKOUT / words[0]
    shown = subprocess.run([script, "--help"], capture_output=True, text=True, check=True).stdout
    if len(words) > 1 and re.fullmatch(r"[a-z-]+", words[1]) and not words[1].startswith("-"):
        assert re.search(rf"\b{words[1]}\b", shown), command
    for word in words[1:]:
        if word.startswith("--"):
            assert re.search(rf"(?<![\w-]){word.partition('=')[0]}(?![\w-])", shown), command


def check_completion(command: Command, reader: Reader) -> None:
    found = re.search(r"completion (bash|zsh|fish)", command.text)
    assert found is not None
    shell = found[1]
    script = reader.run(f"lumbridge-compute completion {shell}", command)
    assert "lumbridge-compute" in script
    if shutil.which(shell) is not None:
        checked = reader.home / f"completion.{shell}"
        checked.write_text(script)
        subprocess.run([shell, "-n", str(checked)], check=True)
