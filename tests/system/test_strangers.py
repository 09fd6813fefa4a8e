"""What is not proved ours is neither signalled nor trusted."""

from __future__ import annotations

import pytest

from tests.system.node import SystemNode


@pytest.mark.parametrize("options", [(), ("--reuse-port",)])
@pytest.mark.parametrize("marker", ["small", "other"])
def test_a_port_taken_by_a_stranger_is_refused_whatever_it_answers(
    pair: SystemNode, options: tuple[str, ...], marker: str
) -> None:
    stranger = pair.stranger(*options, port=pair.models["small"]["port"], marker=marker)
    ran = pair.run("scene", "activate", "day", "--json")
    assert ran.exit == 3
    assert f"pid {stranger.pid}" in ran.json["error"]
    assert ran.json["hint"]
    assert stranger.poll() is None
    assert pair.servers() == set()


def test_a_stranger_that_shares_the_port_of_a_running_model_is_seen(pair: SystemNode) -> None:
    port = pair.model("shared", "--reuse-port")
    pair.scene("shared", "shared")
    pair.write()
    pair.ok("scene", "activate", "shared")
    stranger = pair.stranger("--reuse-port", port=port, marker="shared")
    (row,) = [m for m in pair.status()["models"] if m["name"] == "shared"]
    assert row["health"] == "shared-port"
    assert f"pid {stranger.pid}" in row["detail"]
    assert pair.status()["verdict"] == "degraded"
    assert stranger.poll() is None


def test_strangers_live_through_every_command(pair: SystemNode) -> None:
    strangers = [pair.stranger(port=0, marker=name) for name in ("small", "large", "x")]
    for args in (
        ["scene", "activate", "day"],
        ["scene", "activate", "night"],
        ["scene", "adopt", "night"],
        ["scene", "resume"],
        ["status"],
        ["verify"],
        ["scene", "deactivate"],
        ["scene", "resume"],
        ["scene", "forget", "small"],
    ):
        pair.run(*args)
    assert [stranger.poll() for stranger in strangers] == [None] * 3
