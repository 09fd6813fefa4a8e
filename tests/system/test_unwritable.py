"""A disk, or a folder, that stops taking writes: what is not recorded is not done."""

from __future__ import annotations

import os
import resource
import signal
from functools import partial

import pytest

from tests.system.node import SystemNode, alive, until

_ROOM_BYTES = 400  # for the name in the lock, not for a state


def limit_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (_ROOM_BYTES, _ROOM_BYTES))


def test_a_fallback_that_cannot_be_recorded_stops_nothing(pair: SystemNode) -> None:
    pair.ok("scene", "activate", "night")
    pair.ok("scene", "activate", "day")
    pids = pair.pids()
    os.kill(pids["small"], signal.SIGKILL)
    pair.models["small"]["command"][0] = "/nonexistent"
    pair.write()
    before = (pair.root / ".kuda" / "state.yaml").read_bytes()
    ran = pair.run("scene", "resume", "--json", preexec_fn=limit_files)
    assert ran.exit == 3, ran
    assert "cannot write the state" in ran.json["error"]
    assert (pair.root / ".kuda" / "state.yaml").read_bytes() == before
    assert alive(pids["voice"])


def test_a_folder_that_becomes_unusable_leaves_the_commit_to_a_resume(pair: SystemNode) -> None:
    private = pair.root / ".kuda"
    pair.models["voice"]["command"] += ["--slow-start", "2"]
    pair.write()
    command = pair.start("scene", "activate", "day", "--json")
    until(
        lambda: private.joinpath("state.yaml").exists() and "voice" in pair.pids(), "voice starts"
    )
    private.chmod(0o777)
    out, err = command.communicate(timeout=60)
    private.chmod(0o700)
    assert command.returncode == 4, (out, err)
    assert pair.state()["transition_scene"] == "day"
    pair.ok("scene", "resume")
    assert pair.state()["active_scene"] == "day"


@pytest.mark.parametrize("count", [8, 14, 40])
def test_too_few_descriptors_are_found_out_before_anything_stops(
    pair: SystemNode, count: int
) -> None:
    pair.ok("scene", "activate", "day")
    before = (pair.root / ".kuda" / "state.yaml").read_bytes(), pair.servers()
    limit = partial(resource.setrlimit, resource.RLIMIT_NOFILE, (count, count))
    for order in (["scene", "activate", "night"], ["agent"]):
        ran = pair.run(*order, "--json", preexec_fn=limit)
        assert ran.exit == 3, ran
        assert f"may open {count} files" in ran.json["error"]
    assert ((pair.root / ".kuda" / "state.yaml").read_bytes(), pair.servers()) == before


def test_as_many_descriptors_as_are_asked_for_are_enough(pair: SystemNode) -> None:
    pair.scene("all", "small", "voice", *(f"m{number}" for number in range(3)))
    for number in range(3):
        pair.model(f"m{number}")
    pair.write()
    pair.ok("scene", "activate", "all")
    limit = partial(resource.setrlimit, resource.RLIMIT_NOFILE, (68, 68))
    pair.ok("scene", "activate", "night", preexec_fn=limit)
    pair.ok("scene", "activate", "all", preexec_fn=limit)


@pytest.mark.parametrize("how", ["link", "folder"])
def test_a_log_that_cannot_be_written_is_found_out_before_anything_stops(
    pair: SystemNode, how: str
) -> None:
    pair.ok("scene", "activate", "day")
    log = pair.root / ".kuda" / "logs" / "large.log"
    if how == "link":
        log.symlink_to(pair.root / "elsewhere")
    else:
        log.mkdir()
    before = pair.pids()
    ran = pair.run("scene", "activate", "night", "--json")
    assert ran.exit == 3, ran
    assert "large.log" in ran.json["error"]
    assert pair.pids() == before
    assert all(alive(pid) for pid in before.values())
