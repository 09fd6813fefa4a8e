"""The node under soak: its processes, and what must be so whenever it is at rest."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lumbridge_compute.core.state import Bound, NodeState
from lumbridge_compute.errors import OperatorError
from lumbridge_compute.store.state_file import parse_state
from tests.soak.clients import Clients
from tests.soak.figures import count_zombies
from tests.system.agent import Agent, start_agent
from tests.system.node import Ran, SystemNode, alive, free_port, until

GOOD = ("day", "night", "pair")
WRONG = ("impostor", "mayfly")
SLOW = "slow"
REST = ("exact", "idle")
CLIENTS = 5
_BOUND_S = 60.0


class Violation(AssertionError):
    """A promise was broken."""


@dataclass
class Soaked:
    """The node, its agent if there is one, and all that was started beside them."""

    node: SystemNode
    clients: Clients
    strangers: list[subprocess.Popen[bytes]]
    agent: Agent | None = None

    # What is done to it.

    def command(self, *args: str, allowed: Collection[int] = (0,)) -> Ran:
        """The command, ended with an exit code that is allowed."""
        return self.judged(self.node.run(*args), args, allowed)

    def judged(self, ran: Ran, args: Collection[str], allowed: Collection[int]) -> Ran:
        if ran.exit not in allowed:
            said = f"{' '.join(args)}: exit {ran.exit}, allowed {sorted(allowed)}\n{ran.err}"
            raise Violation(said + self.log_tail())
        if "Traceback" in ran.err:
            raise Violation(ran.err)
        return ran

    def ended(self, process: subprocess.Popen[bytes], allowed: Collection[int]) -> Ran:
        """A command started before, ended by itself with an exit code that is allowed."""
        out, err = process.communicate(timeout=_BOUND_S)
        ran = Ran(process.returncode, out.decode(), err.decode())
        return self.judged(ran, [str(process.args)], allowed)

    def start_agent(self) -> None:
        """An agent that has done its own resume, well."""
        self.agent = start_agent(self.node)
        self.node.strangers.remove(self.agent.process)

    def agent_gone(self, allowed: Collection[int]) -> None:
        """The agent has ended, with an exit code that is allowed."""
        assert self.agent is not None
        code = self.agent.ended()
        log = self.agent.log
        self.agent = None
        if code not in allowed or "Traceback" in log:
            raise Violation(f"the agent ended with {code}\n{log[-3000:]}")

    def log_tail(self) -> str:
        return f"the agent's log ends:\n{self.agent.log[-2000:]}" if self.agent is not None else ""

    # What must be so.

    def state(self) -> NodeState:
        path = self.node.root / ".kuda" / "state.yaml"
        try:
            return parse_state(path.read_bytes() if path.exists() else None)
        except OperatorError as error:
            raise Violation(f"the state can't be read: {error}") from error

    def bound(self) -> dict[str, Bound]:
        return {n: r for n, r in self.state().processes.items() if isinstance(r, Bound)}

    def no_orphan(self) -> None:
        """Also in the moment after a crash: what lives is recorded, once on each port."""
        tokens = {record.token for record in self.bound().values()}
        # A child whose starter died ends at its gate by itself.
        self.until(lambda: self._tokens() <= tokens, "every process of ours is recorded")
        ports = [model["port"] for model in self.node.models.values()]
        for port, count in Counter(listening()).items():
            if port in ports and count > 1:
                raise Violation(f"{count} listen on port {port}")

    def rest(self, *verdicts: str) -> str:
        """The node at rest; its verdict, one of `verdicts`."""
        verdicts = verdicts or REST
        self.no_orphan()
        status = self.node.status()
        if status["verdict"] not in verdicts:
            shown = json.dumps(status, indent=1)[:3000]
            raise Violation(f"the verdict is {status['verdict']!r}, allowed {verdicts}\n{shown}")
        state = self.state()
        if status["verdict"] in REST and state.transition_scene is not None:
            raise Violation(f"at rest in a transition to {state.transition_scene!r}")
        if status["verdict"] in REST:
            self._all_live(status["verdict"])
        self._beside()
        return str(status["verdict"])

    def pids(self) -> dict[str, int]:
        return {name: record.identity.pid for name, record in self.bound().items()}

    def converge(self) -> None:
        """After a crash: one undisturbed resume puts all in order, a second one does nothing."""
        self.no_orphan()
        if self.agent is None:
            self.command("scene", "resume")
        self.rest()
        pids = self.pids()
        self.command("scene", "resume")
        if self.pids() != pids:
            raise Violation(f"a second resume changed the processes: {pids}, then {self.pids()}")

    def until(self, holds: Any, what: str) -> None:
        try:
            until(holds, what, _BOUND_S)
        except AssertionError as error:
            raise Violation(f"{error}\n{self.log_tail()}") from error

    def _tokens(self) -> set[str]:
        return {token for pid in self.node.servers() if (token := read_token(pid)) is not None}

    def _all_live(self, verdict: str) -> None:
        state, pids = self.state(), self.pids()
        dead = [name for name, pid in pids.items() if not alive(pid)]
        if dead:
            raise Violation(f"recorded and dead: {dead}")
        if verdict == "idle" and pids:
            raise Violation(f"idle with {pids}")
        wanted = self.node.scenes.get(state.active_scene or "", {"models": []})["models"]
        if set(pids) != set(wanted):
            raise Violation(f"active {state.active_scene!r} with {sorted(pids)}")

    def _beside(self) -> None:
        """What is none of the node's business has come to no harm; nothing was left behind."""
        for stranger in self.strangers:
            if stranger.poll() is not None:
                raise Violation(f"a stranger ended: {stranger.args!r} with {stranger.returncode}")
        if self.clients.faults:
            raise Violation(f"a client at the gateway saw {self.clients.faults[0]}")
        for line in self._history():
            json.loads(line)
        if self.agent is not None:
            agent = self.agent.process
            if agent.poll() is not None:
                raise Violation(f"the agent has ended with {agent.returncode}\n{self.log_tail()}")
            self.until(lambda: not count_zombies(agent.pid), "the agent's dead are buried")
            if "Traceback" in self.agent.log:
                raise Violation(self.log_tail())

    def _history(self) -> list[str]:
        path = self.node.root / ".kuda" / "history.jsonl"
        return path.read_text().splitlines() if path.exists() else []


def declare(root: Path, life_s: float) -> tuple[SystemNode, int]:
    """A node whose Scenes share a port and a model, some of which fail; its gateway's port."""
    node = SystemNode(root)
    options = ("--life", str(life_s), "--tokens", "40", "--token-delay", "0.02")
    port = node.model("small", *options, "--slow-start", "0.1")
    node.model("large", *options, "--slow-start", "0.2", "--child", port=port)
    node.model("voice", *options)
    node.model("helper", *options, "--lose-first-term", "--escaped-child", stop={"grace": "500ms"})
    node.model(
        "impostor",
        *options,
        "--reported-marker",
        "someone-else",
        port=port,
        health={"timeout": "500ms"},
    )
    node.model("mayfly", *options, "--die-on-start", "7", port=port)
    node.model("sloth", *options, "--slow-start", "60", port=port, health={"timeout": "90s"})
    node.scene("day", "small", "voice")
    node.scene("night", "large", "voice")
    node.scene("pair", "large", "helper")
    node.scene("impostor", "voice", "impostor")
    node.scene("mayfly", "helper", "mayfly")
    node.scene(SLOW, "voice", "sloth")
    listen = free_port()
    node.settings["memory_floor"] = "16MiB"
    node.settings["gateways"] = [
        {"listen": f"127.0.0.1:{listen}", "upstream": f"127.0.0.1:{port}", "drain": "300ms"}
    ]
    node.write()
    return node, listen


def read_token(pid: int) -> str | None:
    """The token in the environment of process `pid`; None where there is none, or no process."""
    try:
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    found = [e.partition(b"=")[2] for e in entries if e.startswith(b"LUMBRIDGE_COMPUTE_TOKEN=")]
    return found[0].decode() if found else None


def listening() -> list[int]:
    """The port of each listening TCP socket.  Source: proc(5), /proc/net/tcp."""
    rows = Path("/proc/net/tcp").read_text().splitlines()[1:]
    fields = [row.split() for row in rows]
    return [int(each[1].rpartition(":")[2], 16) for each in fields if each[3] == "0A"]
