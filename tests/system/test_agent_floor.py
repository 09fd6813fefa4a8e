"""The memory floor in a whole node, with real memory: at most 2 GiB of it."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from lumbridge_compute.core.units import GIB, MIB
from tests.memory import read_available, settled_available
from tests.system.agent import start_agent
from tests.system.node import SystemNode, alive, until

pytestmark = pytest.mark.alone  # the others take memory too
HOG_MIB = 2048


@pytest.fixture
def hungry(pair: SystemNode) -> SystemNode:
    """`pair` with a Scene whose newest model takes more than the floor leaves."""
    available = settled_available()
    if available < 8 * GIB:
        pytest.skip("less than 8 GiB of memory are available")
    set_floor(pair, available - GIB)
    pair.model("hog", "--allocate", str(HOG_MIB))
    pair.scene("greedy", "voice", "hog")
    pair.write()
    return pair


def set_floor(node: SystemNode, floor_bytes: int) -> None:
    node.settings["memory_floor"] = f"{floor_bytes // MIB}MiB"


def floor_lines(node: SystemNode) -> list[dict[str, Any]]:
    entries = node.ok("history", "--json").json["entries"]
    return [entry for entry in entries if entry["command"] == "floor"]


def test_the_newest_model_of_a_switch_is_stopped_and_the_old_scene_comes_back(
    hungry: SystemNode,
) -> None:
    agent = start_agent(hungry)
    hungry.ok("scene", "activate", "day")
    voice = hungry.pids()["voice"]
    ran = hungry.run("scene", "activate", "greedy", "--json")
    assert ran.exit == 1, ran
    assert ran.json["restored"] is True
    assert "the memory floor stopped 'hog'" in ran.json["error"]
    assert hungry.pids()["voice"] == voice
    assert set(hungry.pids()) == {"small", "voice"}
    assert hungry.status()["verdict"] == "exact"
    # It is written a second after the model has ended: what came back is measured first.
    until(lambda: bool(floor_lines(hungry)), "the floor's line in the history")
    (line,) = floor_lines(hungry)
    agent.leave()
    assert line["figures"]["victim"] == "hog"
    assert "back_bytes" in line["figures"]  # how much, other programs decide too


def test_what_the_floor_stopped_at_rest_starts_again_only_on_request(hungry: SystemNode) -> None:
    agent = start_agent(hungry, "--floor", "0.1")
    hungry.ok("scene", "activate", "greedy")
    pids = hungry.pids()
    agent.leave()
    # The agent that comes back keeps a floor that the Scene does not leave: its largest goes.
    set_floor(hungry, read_available() + GIB)
    hungry.models["hog"]["memory"] = f"{HOG_MIB}MiB"
    hungry.write()
    agent = start_agent(hungry)
    hungry.until_error("the memory floor stopped")
    assert not alive(pids["hog"]) or not alive(pids["voice"])
    assert hungry.state()["active_scene"] is None
    assert hungry.state()["floor_latch"] is not None
    agent.leave()
    agent = start_agent(hungry)
    assert hungry.state()["active_scene"] is None
    assert "does not resume" in agent.log
    agent.leave()
    agent = start_agent(hungry, "--floor", "0.1")
    hungry.ok("scene", "resume")
    assert hungry.state()["floor_latch"] is None
    agent.leave()


def test_what_the_floor_stopped_starts_again_on_request_with_the_same_agent(
    hungry: SystemNode,
) -> None:
    """It was refused for as long as that agent lived."""
    set_floor(hungry, 100 * MIB)
    hungry.write()
    agent = start_agent(hungry)
    hungry.ok("scene", "activate", "greedy")
    voice = hungry.pids()["voice"]
    set_floor(hungry, read_available() + GIB)
    hungry.write()
    agent.send(signal.SIGHUP)
    hungry.until_error("the memory floor stopped")
    until(lambda: hungry.state()["floor_latch"] is not None, "the latch")
    set_floor(hungry, 100 * MIB)
    hungry.write()
    agent.send(signal.SIGHUP)
    until(lambda: hungry.status()["memory"]["floor_bytes"] == 100 * MIB, "the lower floor")
    hungry.ok("scene", "resume")
    assert hungry.pids()["voice"] == voice
    assert hungry.state()["floor_latch"] is None
    agent.leave()
