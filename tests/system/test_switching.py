"""Switching Scenes: what is kept, what is put back, what is recorded."""

from __future__ import annotations

import os
import signal
import sys

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
    pair.model("liar", "--reported-marker", "Small", health={"timeout": "5s"})
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


def test_what_can_not_be_filled_in_is_refused_before_anything_stops(pair: SystemNode) -> None:
    pair.ok("scene", "activate", "day")
    before = pair.pids()
    headers = {"Authorization": "Bearer ${env:NOT_SET_ANYWHERE}"}
    pair.models["large"]["health"] = {"headers": headers}
    pair.write()
    ran = pair.run("scene", "activate", "night", "--json")
    assert ran.exit == 3, ran
    assert "NOT_SET_ANYWHERE" in ran.json["error"]
    assert pair.pids() == before
    assert all(alive(pid) for pid in before.values())


def test_a_death_is_told_with_the_log_of_that_start_alone(pair: SystemNode) -> None:
    pair.ok("scene", "activate", "day")
    pair.ok("scene", "deactivate")
    pair.models["small"]["command"] += ["--die-on-start", "7"]
    pair.write()
    ran = pair.run("scene", "activate", "day", "--json")
    assert ran.exit == 1, ran
    assert "exit code 7" in ran.json["error"]
    assert "listens on" not in ran.json["error"]


def test_the_log_of_a_model_that_was_stopped_is_bounded_too(pair: SystemNode) -> None:
    pair.ok("scene", "activate", "day")
    log = pair.root / ".kuda" / "logs" / "small.log"
    with log.open("ab") as file:
        file.truncate(20 * 1024 * 1024)
    pair.ok("scene", "activate", "night")
    assert log.stat().st_size < 10 * 1024 * 1024


def test_what_may_be_left_of_a_dead_model_is_named_and_not_touched(pair: SystemNode) -> None:
    hidden = (  # in the group of the model, with an environment that proves nothing any more
        "import os, sys; os.fork() or os.execve('/bin/sleep', ['sleep', '1000'], "
        f"{{'LUMBRIDGE_TEST_NODE': {str(pair.root)!r}}}); os.execv(sys.argv[1], sys.argv[1:])"
    )
    command = pair.models["small"]["command"]
    pair.models["small"]["command"] = [sys.executable, "-c", hidden, *command]
    pair.write()
    pair.ok("scene", "activate", "day")
    pid = pair.pids()["small"]
    (left,) = (each for each in pair.processes() if each != pid and os.getpgid(each) == pid)
    os.kill(pid, signal.SIGKILL)
    ran = pair.ok("scene", "activate", "night", "--json")
    assert any(f"pid {left} " in warning for warning in ran.json["warnings"])
    assert alive(left)
