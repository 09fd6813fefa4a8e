"""Commands that go to the agent: interrupted, waiting, and left alone by their agent."""

from __future__ import annotations

import json
import os
import signal
import subprocess

import pytest

from tests.system.agent import start_agent
from tests.system.node import SystemNode, alive, until


@pytest.fixture
def slow(pair: SystemNode) -> SystemNode:
    """`pair`, with a Scene whose model takes longer to load than any test waits."""
    pair.model("sloth", "--slow-start", "60", health={"timeout": "120s"})
    pair.scene("slow", "voice", "sloth")
    pair.write()
    return pair


def loading(node: SystemNode, name: str) -> bool:
    """True once `name` is recorded and lives."""
    try:
        return node.pids().get(name) in node.processes()
    except FileNotFoundError:
        return False


def begin_slow(node: SystemNode, *options: str) -> subprocess.Popen[bytes]:
    """An activation of `slow` that waits for its model by now."""
    command = node.start("scene", "activate", "slow", *options)
    until(lambda: loading(node, "sloth"), "sloth is loading")
    return command


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_asks_the_agent_to_put_things_back(
    slow: SystemNode, number: signal.Signals
) -> None:
    agent = start_agent(slow)
    slow.ok("scene", "activate", "day")
    voice = slow.pids()["voice"]
    command = begin_slow(slow, "--json")
    command.send_signal(number)
    out, err = command.communicate(timeout=60)
    assert command.returncode == 130, err
    assert json.loads(out)["restored"] is True
    assert slow.status()["verdict"] == "exact"
    assert slow.pids()["voice"] == voice
    assert slow.servers() == set(slow.pids().values())
    agent.leave()


def test_a_second_interrupt_leaves_at_once_and_resume_finishes(slow: SystemNode) -> None:
    slow.models["small"]["command"] += ["--slow-start", "30"]
    slow.models["sloth"]["command"] += ["--ignore-term"]
    slow.models["sloth"]["stop"] = {"grace": "30s"}
    slow.write()
    start_agent(slow)
    command = begin_slow(slow)
    command.send_signal(signal.SIGINT)
    assert command.stderr is not None
    until_said(command, b"once more leaves at once")
    command.send_signal(signal.SIGINT)
    _, err = command.communicate(timeout=60)
    assert command.returncode == 4, err
    assert slow.state()["transition_scene"] == "slow"


def until_said(command: subprocess.Popen[bytes], words: bytes) -> None:
    assert command.stderr is not None
    for line in command.stderr:
        if words in line:
            return
    raise AssertionError(f"never said: {words!r}")


def test_a_lost_terminal_and_a_killed_command_leave_the_transaction_to_the_agent(
    pair: SystemNode,
) -> None:
    pair.models["small"]["command"] += ["--slow-start", "1"]
    pair.write()
    start_agent(pair)
    command = pair.start("scene", "activate", "day")
    until(lambda: loading(pair, "small"), "small is loading")
    command.send_signal(signal.SIGHUP)
    command.kill()
    command.communicate()
    until(lambda: pair.state()["active_scene"] == "day", "it is committed")


def test_a_second_order_is_refused_and_names_the_first(slow: SystemNode) -> None:
    agent = start_agent(slow)
    command = begin_slow(slow)
    ran = slow.run("scene", "deactivate", "--json")
    assert ran.exit == 5
    said = ran.json["error"]
    assert f"the agent (pid {agent.process.pid}) is busy with 'scene activate slow'" in said
    assert f"on behalf of pid {command.pid}" in said
    told = agent.told()["transaction"]
    assert told is not None
    assert told["client_pid"] == command.pid
    command.send_signal(signal.SIGINT)
    command.communicate(timeout=60)


def test_an_order_that_waits_is_withdrawn_without_touching_the_one_under_way(
    slow: SystemNode,
) -> None:
    agent = start_agent(slow)
    first = begin_slow(slow)
    second = slow.start("scene", "activate", "day", "--wait", "--json")
    third = slow.start("scene", "activate", "night", "--wait")
    until(lambda: agent.told()["waiting"] == 2, "both wait")
    second.send_signal(signal.SIGINT)
    out, _ = second.communicate(timeout=60)
    assert second.returncode == 130
    assert json.loads(out)["error"] == "interrupted before anything was changed"
    third.kill()
    third.communicate()
    assert first.poll() is None
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=60)
    assert first.returncode == 130
    assert slow.status()["verdict"] == "idle"
    agent.leave()


def test_sigterm_inside_an_activation_puts_it_back_and_leaves_in_time(slow: SystemNode) -> None:
    agent = start_agent(slow)
    slow.ok("scene", "activate", "day")
    command = begin_slow(slow)
    agent.send(signal.SIGTERM)
    assert agent.process.wait(timeout=10) == 0, agent.log
    _, err = command.communicate(timeout=60)
    assert command.returncode in (1, 130), err
    assert slow.state()["active_scene"] == "day"
    assert slow.status()["verdict"] == "exact"


def test_sigterm_inside_its_own_resume_leaves_what_loads_to_the_next(slow: SystemNode) -> None:
    slow.models["sloth"]["command"][-1] = "3"
    slow.write()
    slow.ok("scene", "activate", "slow")
    os.kill(slow.pids()["sloth"], signal.SIGKILL)
    agent = start_agent(slow, resumed=False)
    until(lambda: loading(slow, "sloth"), "sloth is loading")
    sloth = slow.pids()["sloth"]
    agent.send(signal.SIGTERM)
    assert agent.process.wait(timeout=10) == 0, agent.log
    assert alive(sloth)
    start_agent(slow)
    assert slow.pids()["sloth"] == sloth
    assert slow.status()["verdict"] == "exact"


def test_a_lost_agent_is_answered_for_by_what_its_successor_makes_of_it(
    slow: SystemNode,
) -> None:
    agent = start_agent(slow)
    slow.ok("scene", "activate", "day")
    command = begin_slow(slow, "--json")
    agent.send(signal.SIGKILL)
    agent.ended()
    start_agent(slow)
    out, err = command.communicate(timeout=60)
    assert command.returncode == 1, err
    document = json.loads(out)
    assert document["restored"] is True
    assert document["active_scene"] == "day"
    assert "the agent was lost" in document["error"]
    assert slow.servers() == set(slow.pids().values())


def test_a_stuck_agent_is_named_and_nothing_is_done_behind_its_back(pair: SystemNode) -> None:
    agent = start_agent(pair)
    agent.send(signal.SIGSTOP)
    try:
        ran = pair.run("scene", "activate", "day", "--json")
        assert ran.exit == 5
        assert "has not answered for 2 s" in ran.json["error"]
        assert not pair.servers()
        planned = pair.run("scene", "activate", "day", "--dry-run")
        assert planned.exit == 0
        assert "start" in planned.out
        assert "planned without it" in planned.err
        status = pair.run("status")
        assert "it is stuck" in status.out
        assert pair.status()["agent_state"]["stuck"] is True
    finally:
        agent.send(signal.SIGCONT)
    pair.ok("scene", "activate", "day")


def test_adopt_and_forget_go_to_the_agent_too(pair: SystemNode) -> None:
    start_agent(pair)
    pids = {
        name: pair.stranger(port=pair.models[name]["port"], marker=name).pid
        for name in ("small", "voice")
    }
    pair.ok("scene", "adopt", "day", *(w for n, p in pids.items() for w in ("--pid", f"{n}={p}")))
    assert pair.pids() == pids
    assert pair.run("scene", "forget", "small").exit == 3
    os.kill(pids["small"], signal.SIGKILL)
    until(lambda: pair.state()["active_scene"] is None, "the death of what was adopted is seen")
    pair.ok("scene", "forget", "small")
    assert pair.run("scene", "forget", "smal", "--json").exit == 2
    assert "small" not in pair.pids()


def test_the_floor_of_the_agent_counts_in_a_dry_run(pair: SystemNode) -> None:
    pair.models["large"]["memory"] = pair.models["voice"]["memory"] = "512MiB"
    pair.write()
    available = pair.status()["memory"]["available_bytes"]
    floor = (available - 256 * 1024**2) // 1024**2
    start_agent(pair, "--floor", f"{floor}MiB")
    ran = pair.run("scene", "activate", "night", "--dry-run", "--json")
    assert ran.exit == 3, ran
    assert "memory" in ran.json["refusals"][0]["code"]
    assert pair.status()["memory"]["floor_bytes"] == floor * 1024**2
