"""`port_owner: any`: what serves is not a process of the model, as under `docker run`."""

from __future__ import annotations

import subprocess

import pytest

from tests.system.node import SystemNode, until


@pytest.fixture
def boxed(pair: SystemNode) -> SystemNode:
    """`pair`, with a model whose own process only waits."""
    pair.model("boxed", port_owner="any", stop={"grace": "200ms"})
    pair.models["boxed"]["command"] = ["sleep", "1000"]
    pair.scene("boxed", "boxed")
    pair.write()
    return pair


def activated(node: SystemNode) -> subprocess.Popen[bytes]:
    """What serves for `boxed`, once its Scene is active."""
    command = node.start("scene", "activate", "boxed", stdout=subprocess.DEVNULL)
    state = node.root / ".kuda" / "state.yaml"
    until(lambda: state.exists() and "boxed" in node.pids(), "boxed is started")
    inside = node.stranger(port=node.models["boxed"]["port"], marker="boxed")
    _, err = command.communicate(timeout=60)
    assert command.returncode == 0, err
    return inside


def test_a_port_that_stays_open_is_a_model_that_has_not_stopped(boxed: SystemNode) -> None:
    inside = activated(boxed)
    ran = boxed.run("scene", "activate", "day", "--json")
    assert ran.exit == 4, ran
    assert ran.json["error"].count("still held by") == 1
    assert f"pid {inside.pid}" in ran.json["error"]
    assert inside.poll() is None
    assert set(boxed.pids()) == {"boxed"}


def test_a_stop_command_closes_the_port(boxed: SystemNode) -> None:
    pid_file = boxed.root / "inside.pid"
    boxed.models["boxed"]["stop_command"] = ["sh", "-c", f'kill "$(cat "{pid_file}")"']
    boxed.write()
    inside = activated(boxed)
    pid_file.write_text(f"{inside.pid}\n")
    boxed.ok("scene", "activate", "day")
    assert set(boxed.pids()) == {"small", "voice"}
    inside.wait(timeout=20)
