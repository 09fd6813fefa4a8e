"""Scenes of llama-server: what it answers, and how it stops, through a switch and a crash."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.real.talking import ENDLESS, curl
from tests.system.agent import start_agent
from tests.system.node import SystemNode, alive, free_port, until

pytestmark = [pytest.mark.real, pytest.mark.quick]

# A ping is the only moment at which this server looks whether it is to stop while a stream is
# open: with so long a pause between two, an open stream would outlast every bound here.
OPTIONS = ["--ctx-size", "131072", "--parallel", "1", "--threads", "1", "--no-warmup"]
OPTIONS += ["--device", "none", "--offline", "--sse-ping-interval", "3600"]


@pytest.fixture
def pair(node: SystemNode, llama_server: Path, tiny: Path) -> SystemNode:
    """Scenes `voice-qwen` and `voice-laguna`, one language model each, behind one gateway."""
    port, listen = free_port(), free_port()
    command = [str(llama_server), "--model", str(tiny / "llm.gguf"), "--alias", "${marker}"]
    command += ["--host", "127.0.0.1", "--port", "${port}", *OPTIONS]
    for name in ("qwen", "laguna"):
        node.models[name] = {
            "command": command,
            "port": port,
            "health": {"ready": "/health", "timeout": "60s"},
            "stop": {"grace": "1000s"},
        }
        node.scene(f"voice-{name}", name)
    gateway = {"listen": f"127.0.0.1:{listen}", "upstream": f"127.0.0.1:{port}", "drain": "300ms"}
    node.settings["gateways"] = [gateway]
    node.write()
    return node


def gateway_port(node: SystemNode) -> int:
    return int(node.settings["gateways"][0]["listen"].rpartition(":")[2])


def said(port: int, path: str, body: object = None) -> tuple[int, Any]:
    """Status and JSON of one answer, by curl."""
    command = ["curl", "-sS", "-w", "\\n%{http_code}", f"http://127.0.0.1:{port}{path}"]
    if body is not None:
        command += ["--json", json.dumps(body)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    text, _, status = ran.stdout.rpartition("\n")
    return int(status), json.loads(text)


def test_it_is_exact_only_once_it_has_loaded(pair: SystemNode) -> None:
    ran = pair.ok("scene", "activate", "voice-qwen")
    assert "qwen: exactly healthy" in ran.err
    assert pair.status()["verdict"] == "exact"
    status, models = said(pair.models["qwen"]["port"], "/v1/models")
    assert (status, [entry["id"] for entry in models["data"]]) == (200, ["qwen"])


def test_a_request_that_names_another_model_is_answered_all_the_same(pair: SystemNode) -> None:
    """So a consumer that must know reads `model` of the answer."""
    pair.ok("scene", "activate", "voice-qwen")
    body = {"model": "laguna", "messages": [{"role": "user", "content": "Hello?"}], "max_tokens": 3}
    status, answer = said(pair.models["qwen"]["port"], "/v1/chat/completions", body)
    assert (status, answer["model"]) == (200, "qwen")


def test_a_name_with_a_comma_is_two_names(pair: SystemNode) -> None:
    pair.models["qwen"] |= {"marker": "qwen,30b"}
    pair.models["qwen"]["health"] = {"ready": "/health", "timeout": "5s"}
    pair.write()
    ran = pair.run("scene", "activate", "voice-qwen", "--json")
    assert ran.exit == 1
    assert "wanted 'qwen,30b'" in ran.json["error"]


def test_a_stream_runs_a_switch_cuts_it_and_the_next_one_speaks(
    pair: SystemNode, tmp_path: Path
) -> None:
    agent = start_agent(pair)
    gateway = gateway_port(pair)
    pair.ok("scene", "activate", "voice-qwen")
    with curl(gateway, ENDLESS, tmp_path) as before:
        before.until_it_speaks()
        switch = pair.start("scene", "activate", "voice-laguna")
        until(lambda: set(pair.pids()) != {"qwen"}, "qwen has stopped")
        with curl(gateway, 50, tmp_path) as during:
            assert during.ended() == 0
            assert during.models() == {"laguna"}
        assert before.ended() in (18, 56)  # cut short, or reset: never a clean end
        assert before.models() == {"qwen"}
    _, err = switch.communicate(timeout=60)
    assert switch.returncode == 0, err
    with curl(gateway, 50, tmp_path) as after:
        assert after.ended() == 0
        assert after.models() == {"laguna"}
        assert "[DONE]" in after.file.read_text()
    pair.ok("verify")
    agent.leave()


def test_a_killed_agent_leaves_the_model_and_the_next_one_takes_it(
    pair: SystemNode, tmp_path: Path
) -> None:
    agent = start_agent(pair)
    gateway = gateway_port(pair)
    pair.ok("scene", "activate", "voice-qwen")
    pids = pair.pids()
    with curl(gateway, ENDLESS, tmp_path) as cut:
        cut.until_it_speaks()
        agent.send(signal.SIGKILL)
        assert cut.ended() in (18, 56)
    start_agent(pair)
    assert pair.pids() == pids
    with curl(gateway, 50, tmp_path) as after:
        assert after.ended() == 0
        assert after.models() == {"qwen"}
    assert pair.status()["verdict"] == "exact"


def test_a_killed_server_is_told_and_brought_back(pair: SystemNode) -> None:
    start_agent(pair)
    pair.ok("scene", "activate", "voice-qwen")
    dead = pair.pids()["qwen"]
    subprocess.run(["kill", "-9", str(dead)], check=True)
    pair.until_error("'qwen' ended unexpectedly (killed by SIGKILL)")
    pair.ok("scene", "resume")
    assert pair.pids()["qwen"] != dead
    assert not alive(dead)
    assert pair.status()["verdict"] == "exact"


def test_a_model_that_can_not_be_loaded_fails_with_the_servers_own_words(
    pair: SystemNode, tiny: Path
) -> None:
    broken = pair.root / "broken.gguf"
    shutil.copy(tiny / "llm.gguf", broken)
    with broken.open("r+b") as file:
        file.truncate(50_000)
    command = pair.models["laguna"]["command"]
    pair.models["laguna"]["command"] = [
        str(broken) if part.endswith(".gguf") else part for part in command
    ]
    pair.write()
    pair.ok("scene", "activate", "voice-qwen")
    ran = pair.run("scene", "activate", "voice-laguna", "--json")
    assert ran.exit == 1
    assert ran.json["restored"] is True
    assert re.search("its process has ended .exit code 1.; its log ends: ", ran.json["error"])
    assert set(pair.pids()) == {"qwen"}
