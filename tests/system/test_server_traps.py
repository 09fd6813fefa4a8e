"""What real model servers do against expectation, each by a stand-in that behaves so."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import platform
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.system.agent import start_agent
from tests.system.node import SystemNode, alive, free_port, until

MIB = 1024 * 1024
KERNEL = tuple(int(part) for part in platform.release().split(".")[:2])
needs_group_signals = pytest.mark.skipif(
    KERNEL < (6, 9), reason="PIDFD_SIGNAL_PROCESS_GROUP came with Linux 6.9"
)


def members(node: SystemNode, leader: int) -> set[int]:
    """The living processes of the group that `leader` leads or led."""
    found = set()
    for pid in node.processes():
        with contextlib.suppress(ProcessLookupError):
            found |= {pid} if os.getpgid(pid) == leader else set()
    return found


def resident_bytes(pid: int) -> int:
    pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def handles_term(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) & 1 << signal.SIGTERM - 1)


def open_stream(port: int) -> http.client.HTTPResponse:
    """A stream whose first token has come."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    body = json.dumps({"stream": True, "messages": []})
    connection.request("POST", "/v1/chat/completions", body)
    response = connection.getresponse()
    assert response.readline().startswith(b"data: ")
    return response


def health(node: SystemNode, name: str) -> dict[str, Any]:
    (model,) = (each for each in node.status()["models"] if each["name"] == name)
    return dict(model)


def loading(node: SystemNode, scene: str) -> subprocess.Popen[bytes]:
    """An activation whose model `slow` runs and is not ready."""
    command = node.start("scene", "activate", scene, "--json")
    until(lambda: "slow" in recorded(node), "slow is started")
    until(lambda: handles_term(node.pids()["slow"]), "slow is on its way")
    return command


def recorded(node: SystemNode) -> set[str]:
    state = node.root / ".kuda" / "state.yaml"
    return set(node.pids()) if state.exists() else set()


def test_a_term_lost_during_the_start_is_repeated(pair: SystemNode) -> None:
    """vLLM, while its engine starts: the first SIGTERM has no effect, a second one works."""
    options = ("--slow-start", "60", "--lose-first-term", "--child")
    pair.model("slow", *options, health={"timeout": "120s"}, stop={"grace": "4s"})
    pair.scene("slow", "slow")
    pair.write()
    pair.ok("scene", "activate", "day")
    command = loading(pair, "slow")
    leader = pair.pids()["slow"]
    command.send_signal(signal.SIGINT)
    out, err = command.communicate(timeout=60)
    assert command.returncode == 130, err
    assert json.loads(out)["restored"] is True
    assert members(pair, leader) == set()
    assert set(pair.pids()) == {"small", "voice"}


def test_a_leader_that_hangs_without_its_engine_is_killed_with_all_of_its_group(
    pair: SystemNode,
) -> None:
    """vLLM, TERM to the group at the wrong moment: the engine has gone, the leader stays."""
    pair.model("hung", "--ignore-term", "--child", "--escaped-child", stop={"grace": "1s"})
    pair.scene("hung", "hung")
    pair.write()
    pair.ok("scene", "activate", "hung")
    leader = pair.pids()["hung"]
    (engine,) = members(pair, leader) - {leader}
    os.kill(engine, signal.SIGKILL)
    assert len(pair.servers()) == 2
    pair.ok("scene", "activate", "day")
    assert pair.servers() == set(pair.pids().values())
    assert set(pair.pids()) == {"small", "voice"}


@pytest.mark.parametrize("order", ["resume", "activate", "deactivate"])
def test_an_engine_that_outlives_its_leader_is_found_and_ended(
    pair: SystemNode, order: str
) -> None:
    """vLLM's EngineCore and workers: no listener, and the memory of the whole model."""
    pair.models["small"]["command"] += ["--child", "--escaped-child", "--helper-allocate", "40"]
    pair.write()
    pair.ok("scene", "activate", "day")
    before = pair.pids()
    engines = pair.servers() - set(before.values())
    assert len(engines) == 2
    for engine in engines:
        until(lambda engine=engine: resident_bytes(engine) > 40 * MIB, "it holds memory")  # type: ignore[misc]
    os.kill(before["small"], signal.SIGKILL)
    until(lambda: not alive(before["small"]), "the leader is gone")
    told = health(pair, "small")
    assert told["ownership"] == "survivors", told
    assert all(str(engine) in str(told) for engine in engines), told
    name = {"resume": [], "activate": ["night"], "deactivate": []}[order]
    pair.ok("scene", order, *name)
    assert not any(alive(engine) for engine in engines)
    expected = {"resume": {"small", "voice"}, "activate": {"large", "voice"}, "deactivate": set()}
    assert set(pair.pids()) == expected[order]


def hide_an_engine(node: SystemNode, name: str) -> None:
    """Give a model a process in its group whose environment proves nothing any more, as that of
    vLLM's EngineCore, which sets its title."""
    script = (
        "import os, sys; os.fork() or os.execve('/bin/sleep', ['sleep', '1000'], "
        f"{{'LUMBRIDGE_TEST_NODE': {str(node.root)!r}}}); os.execv(sys.argv[1], sys.argv[1:])"
    )
    model = node.models[name]
    model["command"] = [sys.executable, "-c", script, *model["command"]]


def hidden_engine(node: SystemNode, leader: int) -> int:
    until(lambda: bool(members(node, leader) - {leader}), "the engine runs")
    (engine,) = members(node, leader) - {leader}
    return engine


@needs_group_signals
def test_an_agent_that_saw_the_leader_die_knows_its_engine_without_a_token(
    pair: SystemNode,
) -> None:
    hide_an_engine(pair, "small")
    pair.write()
    start_agent(pair)
    pair.ok("scene", "activate", "day")
    leader = pair.pids()["small"]
    engine = hidden_engine(pair, leader)
    os.kill(leader, signal.SIGKILL)
    pair.until_error("'small' ended unexpectedly")
    assert alive(engine)
    pair.ok("scene", "resume")
    assert not alive(engine)
    assert pair.status()["verdict"] == "exact"


@needs_group_signals
def test_an_engine_of_a_start_that_failed_is_ended_before_the_way_back(pair: SystemNode) -> None:
    pair.models["large"]["command"] += ["--slow-start", "60"]
    hide_an_engine(pair, "large")
    pair.write()
    pair.ok("scene", "activate", "day")
    command = pair.start("scene", "activate", "night", "--json")
    until(lambda: "large" in recorded(pair), "large is started")
    leader = pair.pids()["large"]
    engine = hidden_engine(pair, leader)
    os.kill(leader, signal.SIGKILL)
    out, err = command.communicate(timeout=60)
    assert command.returncode == 1, err
    assert json.loads(out)["restored"] is True
    assert not alive(engine)
    assert set(pair.pids()) == {"small", "voice"}


def test_a_port_taken_between_bind_and_listen_fails_the_start_whoever_answers(
    pair: SystemNode,
) -> None:
    """vLLM binds early and listens late; it then serves nobody, and another answers its name."""
    port = pair.model("early", "--bind-early", "3")
    pair.scene("early", "early")
    pair.write()
    pair.ok("scene", "activate", "day")
    command = pair.start("scene", "activate", "early", "--json")
    log = pair.root / ".kuda" / "logs" / "early.log"
    until(lambda: log.exists() and "does not listen yet" in log.read_text(), "the port is bound")
    other = pair.stranger(port=port, marker="early")
    out, err = command.communicate(timeout=60)
    told = json.loads(out)
    assert f"port {port} is held by pid {other.pid}" in told["error"], err
    # The stranger blocks what needs its port, and the Scene before does not.
    assert command.returncode == 1, err
    assert told["restored"] is True
    assert set(pair.pids()) == {"small", "voice"}
    assert other.poll() is None


def test_a_switch_cuts_the_gateways_clients_before_it_stops_the_model(pair: SystemNode) -> None:
    """llama-server with a stream open keeps process and memory for 30 s, and goes at once when
    the client's side is closed.  Were the stream open at the stop, it would take the whole grace.
    """
    pair.models["small"]["command"] += ["--hold-streams", "1000", "--token-delay", "0.02"]
    pair.models["small"]["command"] += ["--tokens", "1000000"]
    pair.models["small"]["stop"] = {"grace": "1000s"}
    listen, port = free_port(), pair.models["small"]["port"]
    pair.settings["gateways"] = [
        {"listen": f"127.0.0.1:{listen}", "upstream": f"127.0.0.1:{port}", "drain": "200ms"}
    ]
    pair.write()
    start_agent(pair)
    pair.ok("scene", "activate", "day")
    stream = open_stream(listen)
    pair.ok("scene", "activate", "night")
    assert set(pair.pids()) == {"large", "voice"}
    with pytest.raises((ConnectionResetError, http.client.IncompleteRead)):
        stream.read()


def test_without_a_gateway_an_open_stream_is_ended_with_the_grace(pair: SystemNode) -> None:
    """Nobody can close the client's side then: the model is given its grace and no more."""
    pair.models["small"]["command"] += ["--hold-streams", "1000", "--token-delay", "1000"]
    pair.models["small"]["stop"] = {"grace": "1s"}
    pair.write()
    pair.ok("scene", "activate", "day")
    with open_stream(pair.models["small"]["port"]):
        pair.ok("scene", "activate", "night")
    assert set(pair.pids()) == {"large", "voice"}


@pytest.mark.parametrize(
    ("options", "keys", "said"),
    [
        (["--loading", "1", "--shy"], {"ready": "/health"}, "the ready check answers 503"),
        (["--loading", "1", "--shy"], {}, "answers '/v1/models' with 503"),
        (["--loading", "1"], {"ready": "/health"}, "the ready check answers 503"),
        (["--slow-start", "1"], {"ready": "/health"}, "nobody listens on port"),
    ],
    ids=["llama-server", "without-ready", "lists-its-model-meanwhile", "vllm"],
)
def test_a_model_that_loads_is_waited_for_and_exact_only_then(
    node: SystemNode, options: list[str], keys: dict[str, Any], said: str
) -> None:
    node.model("slow", *options, health={"timeout": "60s", **keys})
    node.scene("one", "slow")
    node.write()
    ran = node.ok("scene", "activate", "one")
    assert said in ran.err
    assert node.status()["verdict"] == "exact"


def test_without_ready_a_model_that_lists_itself_early_counts_as_exact(node: SystemNode) -> None:
    """Why `ready` is there: some llama-servers list their model while it still loads."""
    node.model("slow", "--loading", "1000", health={"timeout": "60s"})
    node.scene("one", "slow")
    node.write()
    node.ok("scene", "activate", "one")
    node.models["slow"]["health"] = {"ready": "/health", "timeout": "60s"}
    node.write()
    assert health(node, "slow")["health"] == "not-ready"


def test_a_voice_that_has_only_info_is_named_by_a_pointer(node: SystemNode) -> None:
    """Piper: neither /health nor /v1/models."""
    by_pointer = {"path": "/info", "match": "json", "pointer": "/voice/name"}
    node.model("alba", marker="en_GB-alba-medium", health=by_pointer)
    brief = {**by_pointer, "timeout": "5s"}  # to begin on a busy machine, too
    node.model("wrong", "--reported-marker", "en_US-lessac-medium", health=brief)
    node.scene("one", "alba")
    node.scene("two", "wrong")
    node.write()
    node.ok("scene", "activate", "one")
    ran = node.run("scene", "activate", "two", "--json")
    assert ran.exit == 1
    assert "answers as 'en_US-lessac-medium', wanted 'wrong'" in ran.json["error"]


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"match": "json", "pointer": "/status"}, "answers with an HTML or XML page"),
        ({"match": "models"}, "answers with an HTML or XML page"),
        ({"match": "text"}, "answers with an HTML or XML page"),
    ],
    ids=["json", "models", "text"],
)
def test_a_page_that_answers_everything_proves_no_marker(
    node: SystemNode, keys: dict[str, Any], said: str
) -> None:
    """A speech server whose /health is the page of every unknown path: 200, and no name."""
    node.model("ear", "--catch-all", health={"timeout": "5s", "path": "/health", **keys})
    node.scene("one", "ear")
    node.write()
    ran = node.run("scene", "activate", "one", "--json")
    assert ran.exit == 1, ran
    assert said in ran.json["error"]


def test_a_recogniser_at_work_is_busy_and_left_alone(pair: SystemNode) -> None:
    """It accepts connections and answers none for minutes: that is work, not death."""
    patient = {"timeout": "60s", "request_timeout": "300ms"}
    port = pair.model("ear", "--one-at-a-time", "--token-delay", "1000", health=patient)
    pair.scene("day", "small", "ear")
    pair.scene("night", "large", "ear")
    pair.write()
    start_agent(pair)
    pair.ok("scene", "activate", "day")
    ear = pair.pids()["ear"]
    stream = open_stream(port)
    told = health(pair, "ear")
    assert (told["health"], told["ownership"], told["pid"]) == ("busy", "owned", ear)
    assert "accepts connections but gives no whole answer" in told["detail"]
    # A switch that shares it waits until it answers again, and never restarts it.
    command = pair.start("scene", "activate", "night")
    until(lambda: "large" not in recorded(pair) and "small" not in pair.pids(), "small has stopped")
    assert pair.pids()["ear"] == ear
    stream.close()
    _, err = command.communicate(timeout=60)
    assert command.returncode == 0, err
    assert pair.pids()["ear"] == ear
    assert pair.status()["verdict"] == "exact"


def test_an_agent_that_finds_a_recogniser_at_work_takes_it_as_it_is(pair: SystemNode) -> None:
    patient = {"timeout": "60s", "request_timeout": "300ms"}
    port = pair.model("ear", "--one-at-a-time", "--token-delay", "1000", health=patient)
    pair.scene("day", "small", "ear")
    pair.write()
    pair.ok("scene", "activate", "day")
    before = pair.pids()
    stream = open_stream(port)
    agent = start_agent(pair, resumed=False)
    assert pair.pids() == before
    stream.close()
    until(lambda: agent.told()["resumed"], "it has resumed", 60)
    assert pair.pids() == before
    assert pair.status()["verdict"] == "exact"
