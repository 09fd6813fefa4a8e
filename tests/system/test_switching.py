"""Switching Scenes: what is kept, what is put back, what is recorded."""

from __future__ import annotations

from tests.system.node import SystemNode, alive


def test_a_switch_keeps_the_shared_model_and_commits(pair: SystemNode) -> None:
    pair.ok("scene", "activate", "day")
    before = pair.pids()
    ran = pair.ok("scene", "activate", "night", "--json")
    after = pair.pids()
    assert after["voice"] == before["voice"]
    assert set(after) == {"large", "voice"}
    assert not alive(before["small"])
    state = pair.state()
    assert (state["desired_scene"], state["active_scene"]) == ("night", "night")
    assert (state["last_known_good_scene"], state["transition_scene"]) == ("day", None)
    assert ran.json["ok"] is True
    assert ran.json["active_scene"] == "night"
    assert pair.status()["verdict"] == "exact"


def test_a_wrong_marker_restores_the_previous_scene(pair: SystemNode) -> None:
    pair.model("liar", "--reported-marker", "Small", health={"timeout": "1s"})
    pair.scene("bad", "voice", "liar")
    pair.write()
    pair.ok("scene", "activate", "day")
    before = pair.pids()
    ran = pair.run("scene", "activate", "bad", "--json")
    assert ran.exit == 1, ran
    assert ran.json["restored"] is True
    assert "answers as 'Small', wanted 'liar'" in ran.json["error"]
    after = pair.pids()
    assert after["voice"] == before["voice"]
    assert set(after) == {"small", "voice"}
    state = pair.state()
    assert (state["desired_scene"], state["active_scene"]) == ("day", "day")
    assert state["transition_scene"] is None
    assert "liar" in state["last_error"]
    assert pair.status()["verdict"] == "exact"
    assert pair.servers() == set(after.values())


def test_a_model_that_dies_while_it_loads_ends_the_wait_at_once(pair: SystemNode) -> None:
    pair.model("mayfly", "--die-on-start", "7", health={"timeout": "60s"})
    pair.scene("bad", "mayfly")
    pair.write()
    ran = pair.run("scene", "activate", "bad", "--json")
    assert ran.exit == 1
    assert "exit code 7" in ran.json["error"]
    assert pair.state()["active_scene"] is None
    assert pair.servers() == set()


def test_resume_of_a_healthy_scene_writes_nothing(pair: SystemNode) -> None:
    pair.ok("scene", "activate", "day")
    file = pair.root / ".kuda" / "state.yaml"
    before = (file.read_bytes(), file.stat().st_ino, pair.pids())
    pair.ok("scene", "resume")
    assert (file.read_bytes(), file.stat().st_ino, pair.pids()) == before


def test_deactivate_stops_everything_and_wants_nothing(pair: SystemNode) -> None:
    pair.ok("scene", "activate", "day")
    pair.ok("scene", "deactivate")
    state = pair.state()
    assert (state["desired_scene"], state["active_scene"], state["processes"]) == (None, None, {})
    assert state["last_known_good_scene"] == "day"
    assert pair.servers() == set()
    assert pair.status()["verdict"] == "idle"
