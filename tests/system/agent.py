"""The resident agent of a system node, by the installed command."""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import dataclass
from typing import Any

from lumbridge_compute.cli.ask_agent import ask_agent
from lumbridge_compute.core.documents import AgentDocument
from tests.system.node import BOUND_S, SystemNode, until


@dataclass
class Agent:
    """One `lumbridge-compute agent`; its log is `agent.log` in the node's root."""

    node: SystemNode
    process: subprocess.Popen[bytes]

    @property
    def log(self) -> str:
        return (self.node.root / "agent.log").read_text()

    def told(self) -> AgentDocument:
        """What it tells of itself."""
        told = ask_agent(str(self.node.root))
        assert told is not None, self.log
        return told

    def serves(self) -> bool:
        assert self.process.poll() is None, self.log
        if not (self.node.root / ".kuda" / "agent.sock").exists():
            return False
        told = ask_agent(str(self.node.root))
        return told is not None and told["pid"] == self.process.pid

    def send(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    def ended(self) -> int:
        """Its exit code, once it has ended by itself."""
        return self.process.wait(timeout=BOUND_S)

    def leave(self) -> None:
        """End it as a service manager does."""
        self.send(signal.SIGTERM)
        assert self.ended() == 0, self.log


def start_agent(node: SystemNode, *args: str, resumed: bool = True, **keys: Any) -> Agent:
    """An agent that serves; with `resumed`, and has done its own resume."""
    with (node.root / "agent.log").open("ab") as log:
        process = node.start("agent", *args, stdout=subprocess.DEVNULL, stderr=log, **keys)
    node.strangers.append(process)  # so that it ends with the node, also when a test fails
    agent = Agent(node, process)
    until(agent.serves, "the agent serves", BOUND_S)
    if resumed:
        until(lambda: agent.told()["resumed"], "it has resumed", BOUND_S)
    return agent
