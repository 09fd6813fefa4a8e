"""Binding what runs already."""

from __future__ import annotations

import os
import signal

import pytest

from tests.system.node import SystemNode, alive


@pytest.fixture
def by_hand(pair: SystemNode) -> dict[str, int]:
    """Both models of `day`, started by hand."""
    return {
        name: pair.stranger(port=pair.models[name]["port"], marker=name).pid
        for name in ("small", "voice")
    }


def given(pids: dict[str, int]) -> list[str]:
    return [word for name, pid in pids.items() for word in ("--pid", f"{name}={pid}")]


def test_what_was_started_by_hand_is_adopted_and_then_switched(
    pair: SystemNode, by_hand: dict[str, int]
) -> None:
    pair.ok("scene", "adopt", "day", *given(by_hand))
    assert pair.pids() == by_hand
    state = pair.state()
    assert state["desired_scene"] == state["active_scene"] == state["last_known_good_scene"]
    assert pair.status()["verdict"] == "exact"
    pair.ok("scene", "activate", "night")
    assert not alive(by_hand["small"])
    assert pair.pids()["voice"] == by_hand["voice"]


def test_a_legacy_file_is_adopted_by_its_pids(pair: SystemNode, by_hand: dict[str, int]) -> None:
    private = pair.root / ".kuda"
    private.mkdir(mode=0o700)
    (private / "state.yaml").write_text(
        f"desired_scene: day\nprocesses:\n  small: {by_hand['small']}\n"
        f"  voice: {{pid: {by_hand['voice']}}}\nodd_key: kept\n"
    )
    refused = pair.run("scene", "activate", "night", "--json")
    assert refused.exit == 3
    assert alive(by_hand["small"])
    pair.ok("scene", "adopt", "day")
    assert pair.state()["version"] == 1
    assert pair.state()["odd_key"] == "kept"
    assert pair.pids() == by_hand


def test_adoption_lists_all_that_fails_and_changes_no_byte(
    pair: SystemNode, by_hand: dict[str, int]
) -> None:
    pair.ok("scene", "adopt", "day", *given(by_hand))
    file = pair.root / ".kuda" / "state.yaml"
    before = file.read_bytes()
    ran = pair.run("scene", "adopt", "night", "--pid", "voice=1", "--pid", f"large={os.getpid()}")
    assert ran.exit == 3
    assert "'voice'" in ran.err
    assert "'large'" in ran.err
    assert file.read_bytes() == before


@pytest.mark.parametrize("pid", ["0", "-1", "x", "99999999999999999999"])
def test_an_absurd_pid_is_bad_usage(pair: SystemNode, pid: str) -> None:
    ran = pair.run("scene", "adopt", "day", "--pid", f"small={pid}", "--json")
    assert ran.exit == 2
    assert ran.json["hint"]
    assert not (pair.root / ".kuda" / "state.yaml").exists()


@pytest.mark.parametrize("who", ["init", "grandparent", "parent"])
def test_init_a_parent_and_whatever_does_not_serve_are_refused(pair: SystemNode, who: str) -> None:
    pid = {"init": 1, "grandparent": os.getppid(), "parent": os.getpid()}[who]
    ran = pair.run("scene", "adopt", "day", "--pid", f"small={pid}", "--pid", f"voice={pid}")
    assert ran.exit == 3, ran


def test_a_record_whose_process_still_lives_is_not_replaced(
    pair: SystemNode, by_hand: dict[str, int]
) -> None:
    pair.ok("scene", "adopt", "day", *given(by_hand))
    other = pair.stranger(port=0, marker="small").pid
    ran = pair.run("scene", "adopt", "day", "--pid", f"small={other}", "--json")
    assert ran.exit == 3
    assert f"still alive (pid {by_hand['small']})" in ran.json["error"]
    assert pair.pids() == by_hand


def test_records_that_have_ended_are_no_part_of_what_was_adopted(pair: SystemNode) -> None:
    pair.ok("scene", "activate", "night")
    for pid in pair.servers():
        os.kill(pid, signal.SIGKILL)
    pids = {
        name: pair.stranger(port=pair.models[name]["port"], marker=name).pid
        for name in ("small", "voice")
    }
    pair.ok("scene", "adopt", "day", *given(pids))
    assert pair.pids() == pids
    pair.model("liar", "--reported-marker", "other", health={"timeout": "500ms"})
    pair.scene("bad", "voice", "liar")
    pair.write()
    ran = pair.run("scene", "activate", "bad", "--json")
    assert ran.exit == 1, ran
    assert pair.state()["active_scene"] == "day"
    assert set(pair.pids()) == {"small", "voice"}
