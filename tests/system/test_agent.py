"""The resident agent by the installed command: who it is, what goes to it, what outlives it."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import stat
from pathlib import Path

import pytest

from tests.system.agent import start_agent
from tests.system.node import SystemNode, alive, free_port, until


@pytest.fixture
def gateway(pair: SystemNode) -> int:
    """`pair` with a gateway in front of the port that its Scenes share; the gateway's port."""
    port = free_port()
    upstream = pair.models["small"]["port"]
    pair.settings["gateways"] = [
        {"listen": f"127.0.0.1:{port}", "upstream": f"127.0.0.1:{upstream}", "drain": "1s"}
    ]
    pair.settings["memory_floor"] = "16MiB"
    pair.write()
    return port


def ask(port: int, path: str = "/v1/models") -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", path)
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def test_a_switch_through_the_agent_with_clients_at_the_gateway(
    pair: SystemNode, gateway: int
) -> None:
    agent = start_agent(pair)
    day = pair.ok("scene", "activate", "day")
    assert "now running: Scene 'day'" in day.out
    assert "small: exactly healthy" in day.err
    assert '"small"' in ask(gateway)
    voice = pair.pids()["voice"]
    pair.ok("scene", "activate", "night")
    assert '"large"' in ask(gateway)
    assert pair.pids()["voice"] == voice
    told = pair.status()
    assert told["verdict"] == "exact"
    assert told["memory"]["floor_bytes"] == 16 * 1024**2
    assert told["gateways"][0]["listen"] == f"127.0.0.1:{gateway}"
    assert told["agent_state"]["floor"]["sampler_pid"]
    models = {pid for pid in pair.servers() if parent(pid) == agent.process.pid}
    assert models == set(pair.pids().values())
    agent.leave()


def test_a_client_that_connects_during_a_switch_is_answered_by_the_new_model(
    pair: SystemNode, gateway: int
) -> None:
    pair.models["large"]["command"] += ["--slow-start", "1"]
    pair.write()
    start_agent(pair)
    pair.ok("scene", "activate", "day")
    switch = pair.start("scene", "activate", "night")
    until(lambda: pair.pids().get("large") is not None, "the new model is on its way")
    assert '"large"' in ask(gateway)
    _, err = switch.communicate(timeout=60)
    assert switch.returncode == 0, err


def test_models_outlive_the_agent_and_the_next_one_takes_them_as_they_are(
    pair: SystemNode,
) -> None:
    agent = start_agent(pair)
    pair.ok("scene", "activate", "day")
    pids = pair.pids()
    agent.leave()
    assert all(alive(pid) for pid in pids.values())
    assert not (pair.root / ".kuda" / "agent.sock").exists()
    start_agent(pair).leave()
    start_agent(pair).send(signal.SIGKILL)
    until(lambda: not pair.status()["agent"]["running"], "the killed agent is gone")
    assert (pair.root / ".kuda" / "agent.sock").exists()
    assert pair.ok("scene", "activate", "day").out  # a stale socket means no agent
    start_agent(pair)
    assert pair.pids() == pids
    assert pair.status()["verdict"] == "exact"


def test_a_model_that_is_killed_is_seen_recorded_and_not_started_again(pair: SystemNode) -> None:
    start_agent(pair)
    pair.ok("scene", "activate", "day")
    os.kill(pair.pids()["small"], signal.SIGKILL)
    until(lambda: pair.state()["active_scene"] is None, "the death is recorded")
    assert "'small' ended unexpectedly (killed by SIGKILL)" in pair.state()["last_error"]
    assert pair.state()["desired_scene"] == "day"
    assert pair.status()["verdict"] == "degraded"
    assert len(pair.servers()) == 1


def test_the_first_resume_brings_back_what_a_crash_has_ended(pair: SystemNode) -> None:
    pair.ok("scene", "activate", "day")
    os.kill(pair.pids()["small"], signal.SIGKILL)
    start_agent(pair)
    assert pair.status()["verdict"] == "exact"


def test_a_second_agent_names_the_first(pair: SystemNode) -> None:
    agent = start_agent(pair)
    ran = pair.run("agent", "--json")
    assert ran.exit == 5
    assert f"another one is resident (pid {agent.process.pid}" in ran.json["error"]


def test_an_agent_whose_folder_is_taken_away_leaves_and_the_models_stay(pair: SystemNode) -> None:
    agent = start_agent(pair)
    pair.ok("scene", "activate", "day")
    pids = pair.pids()
    private = pair.root / ".kuda"
    private.rename(pair.root / "taken")
    assert agent.ended() == 4, agent.log
    assert "its folder .kuda was removed or replaced" in agent.log
    assert "Traceback" not in agent.log
    assert all(alive(pid) for pid in pids.values())
    (pair.root / "taken").rename(private)
    start_agent(pair).leave()
    assert pair.pids() == pids
    assert pair.status()["verdict"] == "exact"


def test_its_socket_and_folder_are_the_owners_alone(pair: SystemNode) -> None:
    start_agent(pair)
    private = pair.root / ".kuda"
    assert stat.S_IMODE((private / "agent.sock").stat().st_mode) == 0o600
    assert stat.S_IMODE(private.stat().st_mode) == 0o700


def test_a_root_longer_than_a_sockets_path_works(tmp_path: Path) -> None:
    root = tmp_path / ("long-" * 30)
    root.mkdir()
    node = SystemNode(root)
    node.model("m")
    node.scene("only", "m")
    node.write()
    try:
        agent = start_agent(node)
        node.ok("scene", "activate", "only")
        assert node.status()["agent"]["pid"] == agent.process.pid
        agent.leave()
    finally:
        node.close()


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["--listen", "127.0.0.1:9"], 2, "cannot pair 1 --listen with 0 --upstream"),
        (["--listen", "here:9", "--upstream", "127.0.0.1:9"], 2, "literal address"),
        (["--floor", "much"], 2, "--floor"),
        (["--floor", "1000TiB"], 3, "the machine has"),
        (["--listen", "127.0.0.1:9", "--upstream", "127.0.0.1:9"], 3, "its upstream"),
    ],
)
def test_what_can_not_be_served_is_refused_at_start(
    pair: SystemNode, args: list[str], code: int, said: str
) -> None:
    ran = pair.run("agent", *args)
    assert ran.exit == code, ran
    assert said in ran.err
    assert "hint: " in ran.err


def test_a_taken_address_is_refused_with_its_holder(pair: SystemNode) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ran = pair.run("agent", "--listen", address, "--upstream", "127.0.0.1:9")
    assert ran.exit == 3
    assert "the address is taken" in ran.err


def test_a_bad_registry_is_refused_at_start_and_on_sighup_the_old_one_stays(
    pair: SystemNode, gateway: int
) -> None:
    good = (pair.root / "compute.yaml").read_text()
    agent = start_agent(pair)
    pair.ok("scene", "activate", "day")
    (pair.root / "compute.yaml").write_text("version: 1\nmodles: {}\n")
    agent.send(signal.SIGHUP)
    until(lambda: agent.told()["registry_fault"] is not None, "the fault is told")
    assert '"small"' in ask(gateway)
    (pair.root / "compute.yaml").write_text(good)
    agent.send(signal.SIGHUP)
    until(lambda: agent.told()["registry_fault"] is None, "the registry is taken again")
    agent.leave()
    (pair.root / "compute.yaml").write_text("version: 1\nmodles: {}\n")
    assert pair.run("agent").exit == 2


def test_a_reload_moves_a_gateway(pair: SystemNode, gateway: int) -> None:
    agent = start_agent(pair)
    pair.ok("scene", "activate", "day")
    moved = free_port()
    pair.settings["gateways"][0]["listen"] = f"127.0.0.1:{moved}"
    pair.write()
    agent.send(signal.SIGHUP)
    until(lambda: pair.status()["gateways"][0]["listen"] == f"127.0.0.1:{moved}", "it has moved")
    assert '"small"' in ask(moved)
    with pytest.raises(ConnectionRefusedError):
        ask(gateway)


def test_an_unreadable_state_leaves_an_agent_that_relays_and_refuses(
    pair: SystemNode, gateway: int
) -> None:
    pair.ok("scene", "activate", "day")
    state = pair.root / ".kuda" / "state.yaml"
    good = state.read_bytes()
    state.write_bytes(b"")
    agent = start_agent(pair)
    assert '"small"' in ask(gateway)
    ran = pair.run("scene", "activate", "night")
    assert ran.exit == 2
    assert state.read_bytes() == b""
    state.write_bytes(good)
    pair.ok("scene", "activate", "night")
    agent.leave()


def parent(pid: int) -> int:
    text = Path(f"/proc/{pid}/stat").read_text()
    return int(text[text.rindex(")") + 2 :].split()[1])


def test_without_an_agent_status_says_so(pair: SystemNode) -> None:
    status = pair.status()
    assert status["agent"] == {"running": False, "pid": None, "version": None}
    assert status["agent_state"] is None
