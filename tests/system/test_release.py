"""What a release says of itself and of a node before it takes over, and how it compares."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import trio
import yaml

from lumbridge_compute.cli.node import read_status
from lumbridge_compute.core.registry import Address
from lumbridge_compute.errors import BadInput, Refused
from lumbridge_compute.release.restart import Knocks
from lumbridge_compute.release.snapshot import (
    differences,
    read_snapshot,
    take_snapshot,
    unsettled,
    write_snapshot,
)
from tests.system.node import SystemNode, free_port, until

SELF_CHECK = [sys.executable, "-m", "lumbridge_compute.release", "self-check"]


def self_check(node: SystemNode, *words: str) -> tuple[int, str]:
    ended = subprocess.run(
        [*SELF_CHECK, "--root", str(node.root), *words],
        env=node.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return ended.returncode, ended.stdout


def end(node: SystemNode, model: str) -> None:
    """The model dies, and nobody has noticed yet."""
    pid = node.pids()[model]
    subprocess.run(["kill", "-9", str(pid)], check=True)
    until(lambda: pid not in node.servers(), f"{model} has ended")


def test_a_whole_node_is_left_as_it_is(pair: SystemNode) -> None:
    pair.ok("scene", "activate", "day")
    before = (pair.root / ".kuda" / "state.yaml").read_bytes()
    code, said = self_check(pair, "--unchanged")
    assert code == 0, said
    assert "registry, state and a dry run of resume are right" in said
    assert (pair.root / ".kuda" / "state.yaml").read_bytes() == before


def test_a_resume_that_would_start_something_is_told(pair: SystemNode) -> None:
    pair.ok("scene", "activate", "day")
    end(pair, "voice")
    assert self_check(pair)[0] == 0
    code, said = self_check(pair, "--unchanged")
    assert (code, said) == (1, "error: its resume would start 'voice'\n")


def test_a_resume_that_would_restart_something_is_told(pair: SystemNode) -> None:
    port = pair.model("frail", "--status", "500")
    pair.scene("frail", "frail")
    pair.write()
    stranger = pair.stranger(port=port, marker="frail")
    pair.ok("scene", "adopt", "frail", "--pid", f"frail={stranger.pid}")
    pair.models["frail"]["health"]["path"] = "/nowhere"
    pair.write()
    code, said = self_check(pair, "--unchanged")
    assert code == 1
    assert f"its resume would restart 'frail' (pid {stranger.pid})" in said


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("compute.yaml", "nonsense: [\n", "compute.yaml"),
        (".kuda/state.yaml", "", "state.yaml"),
    ],
)
def test_what_it_can_not_read_is_told(pair: SystemNode, file: str, content: str, says: str) -> None:
    pair.ok("scene", "activate", "day")
    (pair.root / file).write_text(content)
    code, said = self_check(pair)
    assert code == 1
    assert says in said
    assert "Traceback" not in said


def test_another_process_in_the_place_of_one_is_a_difference(
    pair: SystemNode, tmp_path: Path
) -> None:
    pair.ok("scene", "activate", "day")
    root, environ = str(pair.root), pair.environment()
    before = take_snapshot(root, environ)
    path = str(tmp_path / "before.json")
    write_snapshot(before, path)
    assert read_snapshot(path) == before
    status = read_status(root, environ)
    assert list(differences(before, status)) == []
    assert unsettled(before, status) is None
    end(pair, "voice")
    old = before.models["voice"][1]
    (found,) = differences(before, read_status(root, environ))
    assert found.startswith(f"'voice' was pid {old}, started at tick ")
    assert found.endswith("and is not recorded")
    pair.ok("scene", "resume")
    status = read_status(root, environ)
    (found,) = differences(before, status)
    assert f"and is pid {pair.pids()['voice']}," in found
    assert unsettled(before, status) is None
    assert list(differences(replace(before, boot_id="another"), status)) == []


def test_a_node_that_is_not_whole_is_not_restarted(pair: SystemNode) -> None:
    pair.ok("scene", "activate", "day")
    end(pair, "voice")
    with pytest.raises(Refused, match="not whole: degraded: Scene 'day' is recorded") as raised:
        take_snapshot(str(pair.root), pair.environment())
    assert raised.value.hint == "lumbridge-compute scene resume"


def test_an_idle_node_has_nothing_to_lose(pair: SystemNode) -> None:
    before = take_snapshot(str(pair.root), pair.environment())
    assert (before.verdict, before.active_scene, before.models) == ("idle", None, {})


def test_a_snapshot_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "before.json"
    path.write_text('{"boot_id": "x"')
    with pytest.raises(BadInput, match="cannot read what"):
        read_snapshot(str(path))


async def test_a_gateway_that_refuses_is_counted() -> None:
    knocks = Knocks()
    closed, listening = Address("127.0.0.1", free_port()), Address("127.0.0.1", free_port())
    with trio.socket.socket() as sock:
        await sock.bind((listening.host, listening.port))
        sock.listen(64)
        async with trio.open_nursery() as nursery:
            for gateway in (closed, listening):
                nursery.start_soon(knocks.go_on, gateway)
            with trio.fail_after(60):
                while min(knocks.made[closed], knocks.made[listening]) < 3:  # noqa: ASYNC110 - a counter tells nobody
                    await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
    assert knocks.refused[closed] >= 2
    assert knocks.refused[listening] == 0


def test_the_registry_to_begin_with_is_right_as_it_is_and_with_its_marks_taken_off(
    node: SystemNode,
) -> None:
    text = (Path(__file__).parents[2] / "examples" / "starter.yaml").read_text()
    (node.root / "compute.yaml").write_text(text)
    assert "no faults (0 models, 0 Scenes)" in node.ok("check").out
    head, body = text.split("version: 1", 1)
    off = "version: 1" + body.replace("\n# ", "\n").replace("\n#   ", "\n  ")
    off = off.replace(": {}\n", ":\n")  # as its head says
    (node.root / "compute.yaml").write_text(head + off)
    assert "(2 models, 1 Scene)" in node.ok("check").out
    assert yaml.safe_load(off)["node"]["gateways"]
