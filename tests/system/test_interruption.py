"""Ctrl-C, SIGTERM, SIGHUP, kill -9: what a command leaves when it does not end by itself."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
from functools import partial

import pytest

from tests.system.node import SystemNode, until


def loading(node: SystemNode, name: str) -> bool:
    """True once `name` is recorded and lives: its command has been let go or is about to be."""
    try:
        return node.pids().get(name) in node.processes()
    except FileNotFoundError:
        return False


def gone(node: SystemNode, pids: set[int]) -> bool:
    return not pids & node.servers()


@pytest.fixture
def slow(pair: SystemNode) -> SystemNode:
    """`pair`, active by day, with a Scene whose model takes long to load."""
    pair.model("sloth", "--slow-start", "30", health={"timeout": "60s"})
    pair.scene("slow", "voice", "sloth")
    pair.write()
    pair.ok("scene", "activate", "day")
    return pair


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_restores_the_previous_scene(slow: SystemNode, number: signal.Signals) -> None:
    voice = slow.pids()["voice"]
    command = slow.start("scene", "activate", "slow", "--json")
    until(lambda: loading(slow, "sloth"), "sloth is loading")
    command.send_signal(number)
    out, err = command.communicate(timeout=60)
    assert command.returncode == 130, err
    assert b'"restored": true' in out
    state = slow.state()
    assert (state["active_scene"], state["desired_scene"]) == ("day", "day")
    assert slow.pids()["voice"] == voice
    assert slow.servers() == set(slow.pids().values())
    assert slow.status()["verdict"] == "exact"


def test_a_second_interrupt_leaves_at_once_and_resume_finishes(slow: SystemNode) -> None:
    slow.models["small"]["command"] += ["--slow-start", "30"]
    slow.write()
    slow.run("scene", "deactivate")
    command = slow.start("scene", "activate", "slow")
    until(lambda: loading(slow, "sloth"), "sloth is loading")
    slow.models["sloth"]["stop"] = {"grace": "30s"}
    command.send_signal(signal.SIGSTOP)
    command.send_signal(signal.SIGINT)
    command.send_signal(signal.SIGTERM)
    command.send_signal(signal.SIGCONT)
    _, err = command.communicate(timeout=60)
    assert command.returncode == 4, err
    assert slow.state()["transition_scene"] == "slow"
    slow.ok("scene", "resume")
    assert slow.servers() == set()
    assert slow.state()["transition_scene"] is None


def test_a_storm_of_interrupts_ends_in_what_the_exit_code_says(pair: SystemNode) -> None:
    pair.models["large"]["command"] += ["--slow-start", "0.3"]
    pair.write()
    pair.ok("scene", "activate", "day")
    pick = random.Random(3)
    for _ in range(3):
        before = pair.state()["active_scene"]
        target = "night" if before == "day" else "day"
        command = pair.start("scene", "activate", target)
        until(lambda: (pair.root / ".kuda" / "lock").stat().st_size > 0, "the command works")
        # Ends by itself when the storm lasts longer: from some moment on nothing is put back.
        for _ in range(pick.randrange(1, 40)):
            with contextlib.suppress(subprocess.TimeoutExpired):
                command.wait(timeout=pick.expovariate(10))
            command.send_signal(signal.SIGINT)
        _, err = command.communicate(timeout=60)
        assert command.returncode in (0, 4, 130), err
        assert b"Traceback" not in err
        state = pair.state()
        if command.returncode == 4:
            assert state["transition_scene"] == target, err
            pair.ok("-v", "scene", "resume")
        else:
            assert state["active_scene"] == (before if command.returncode else target), err
        assert pair.status()["verdict"] == "exact"
        assert pair.servers() == set(pair.pids().values())


def test_a_lost_terminal_does_not_cancel(pair: SystemNode) -> None:
    pair.models["small"]["command"] += ["--slow-start", "0.5"]
    pair.write()
    command = pair.start("scene", "activate", "day")
    until(lambda: loading(pair, "small"), "small is loading")
    command.send_signal(signal.SIGHUP)
    assert command.stdout is not None
    assert command.stderr is not None
    command.stdout.close()
    command.stderr.close()
    assert command.wait(timeout=60) == 0
    assert pair.state()["active_scene"] == "day"


def test_a_killed_command_leaves_neither_orphan_nor_double(pair: SystemNode) -> None:
    pair.ok("scene", "activate", "day")
    pick = random.Random(7)
    for turn in range(4):
        scene = "night" if turn % 2 == 0 else "day"
        command = pair.start("scene", "activate", scene, stdout=subprocess.DEVNULL)
        try:
            command.communicate(timeout=pick.uniform(0.2, 1.6))
        except subprocess.TimeoutExpired:
            command.kill()
        command.communicate()
        recorded = set(pair.pids().values())
        until(partial(gone, pair, pair.servers() - recorded), "what waits at its gate ends")
        pair.ok("-v", "scene", "resume")
        pids = pair.pids()
        assert pair.servers() == set(pids.values())
        state = pair.state()
        assert state["transition_scene"] is None
        assert set(pids) == set(pair.scenes[state["active_scene"]]["models"])
        assert pair.status()["verdict"] == "exact"
