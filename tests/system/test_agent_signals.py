"""Signals that reach an agent at odd moments: while it begins, while it leaves, when it hangs."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.system.agent import start_agent
from tests.system.node import SystemNode, until


def catches(pid: int, number: signal.Signals) -> bool:
    """True once the process has a handler for it.  Source: proc(5), SigCgt in /proc/PID/status."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    caught = next(int(line.split()[1], 16) for line in lines if line.startswith("SigCgt:"))
    return bool(caught >> (number - 1) & 1)


def begun(node: SystemNode) -> subprocess.Popen[bytes]:
    """An agent that takes signals and is far from serving: it has loaded next to nothing."""
    process = node.start("agent")
    node.strangers.append(process)
    until(lambda: catches(process.pid, signal.SIGTERM), "it takes SIGTERM")
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_agent_that_is_told_to_leave_while_it_begins_leaves_well(
    pair: SystemNode, number: signal.Signals
) -> None:
    process = begun(pair)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert err == b""


def test_a_reload_while_it_begins_is_done_once_it_serves(pair: SystemNode) -> None:
    process = begun(pair)
    process.send_signal(signal.SIGHUP)
    until(lambda: pair.status()["agent_state"] is not None, "it serves", 60)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert b"compute.yaml is read again" in err


def test_a_reload_does_not_end_an_agent_that_puts_things_back(pair: SystemNode) -> None:
    pair.model("sloth", "--slow-start", "60", "--term-delay", "1", health={"timeout": "90s"})
    pair.scene("slow", "voice", "sloth")
    pair.write()
    agent = start_agent(pair)
    pair.ok("scene", "activate", "day")
    command = pair.start("scene", "activate", "slow")
    until(lambda: "sloth" in pair.pids(), "sloth is loading")
    agent.send(signal.SIGTERM)
    until(lambda: bool(pair.state()["last_error"]), "it puts things back")
    agent.send(signal.SIGHUP)
    assert agent.ended() == 0, agent.log
    _, err = command.communicate(timeout=60)
    assert command.returncode in (1, 130), err
    assert pair.status()["verdict"] == "exact"


def test_an_agent_that_its_watchdog_aborts_leaves_its_stack(pair: SystemNode) -> None:
    agent = start_agent(pair)
    agent.send(signal.SIGABRT)
    assert agent.ended() == -signal.SIGABRT
    assert "Fatal Python error: Aborted" in agent.log
    assert "in run_agent" in agent.log or "in unrolled_run" in agent.log
    assert os.path.exists(pair.root / ".kuda" / "agent.sock")
    start_agent(pair).leave()
