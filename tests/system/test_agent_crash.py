"""kill -9 of the agent at random moments of a switch: the command answers by what it finds, the
next agent converges, nothing is orphaned or doubled."""

from __future__ import annotations

import random
import signal
import subprocess
from contextlib import suppress

from tests.system.agent import start_agent
from tests.system.node import SystemNode, until


def test_an_agent_killed_at_any_moment_of_a_switch(pair: SystemNode) -> None:
    pair.models["large"]["command"] += ["--slow-start", "0.3"]
    pair.write()
    pair.ok("scene", "activate", "day")
    pick = random.Random(11)
    agent = start_agent(pair)
    for turn in range(3):
        before, target = ("day", "night") if active(pair) == "day" else ("night", "day")
        command = pair.start("scene", "activate", target)
        with suppress(subprocess.TimeoutExpired):
            command.communicate(timeout=pick.uniform(0.5, 3.0))
        agent.send(signal.SIGKILL)
        agent.ended()
        agent = start_agent(pair)
        out, err = command.communicate(timeout=60)
        said = (turn, command.returncode, out, err)
        status = pair.status()
        assert status["verdict"] == "exact", (said, status)
        assert pair.servers() == set(pair.pids().values()), said
        assert command.returncode in (0, 1), said
        expected = target if command.returncode == 0 else before
        assert status["state"]["active_scene"] == expected, said
    agent.leave()


def active(node: SystemNode) -> str:
    until(lambda: node.state()["active_scene"] is not None, "a Scene is active")
    name: str = node.state()["active_scene"]
    return name
