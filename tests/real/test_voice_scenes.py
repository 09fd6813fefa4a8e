"""`examples/voice.yaml` as it stands: a language model, a recogniser and a voice, all real."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.real.talking import ENDLESS, curl, openai
from tests.system.agent import start_agent
from tests.system.node import SystemNode, alive, free_port, until

pytestmark = pytest.mark.real

EXAMPLE = Path(__file__).parents[2] / "examples" / "voice.yaml"


@pytest.fixture
def python(servers: Path) -> Path:
    if not (servers / "bin" / "faster-whisper-server").exists():
        pytest.skip("scripts/test-real without --quick installs the speech servers")
    return servers / "bin" / "python"


@pytest.fixture
def voice(node: SystemNode, python: Path, llama_server: Path, tiny: Path) -> SystemNode:
    """The example on free ports, with tiny models under its names, and `llama-server` on PATH.

    The declared memory is that of real models.  One context is long and one request at a time, so
    that a stream can be endless.
    """
    document = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    ports = {old: free_port() for old in (8001, 8002, 8003, 8011)}
    node.models, node.scenes = document["models"], document["scenes"]
    for model in node.models.values():
        model["port"] = ports[model["port"]]
        del model["memory"]
        if model["command"][0] == "llama-server":
            long = ["131072" if part == "32768" else part for part in model["command"]]
            model["command"] = [*long, "--parallel", "1", "--threads", "1", "--device", "none"]
    node.settings = document["node"] | {"memory_floor": "64MiB"}
    (gateway,) = node.settings["gateways"]
    gateway |= {"listen": f"127.0.0.1:{ports[8011]}", "upstream": f"127.0.0.1:{ports[8001]}"}
    gateway["drain"] = "300ms"
    install(node, python, llama_server, tiny)
    node.write()
    return node


def install(node: SystemNode, python: Path, llama_server: Path, tiny: Path) -> None:
    """The folders that the example's head asks for."""
    models = node.root / "models"
    models.mkdir()
    shutil.copytree(tiny / "recogniser", models / "whisper-large-v3-turbo")
    for name in ("qwen3-30b-a3b-q4", "laguna-12b-q6"):
        shutil.copy(tiny / "llm.gguf", models / f"{name}.gguf")
    for suffix in (".onnx", ".onnx.json"):
        shutil.copy(tiny / f"voice{suffix}", models / f"en_GB-alba-medium{suffix}")
    for name in ("piper", "whisper"):
        (node.root / name).symlink_to(python.parents[1])
    programs = node.root / "bin"
    programs.mkdir()
    (programs / "llama-server").symlink_to(llama_server)
    node.env["PATH"] = f"{programs}:/usr/local/bin:/usr/bin:/bin"


def gateway_port(node: SystemNode) -> int:
    return int(node.settings["gateways"][0]["listen"].rpartition(":")[2])


def posted(node: SystemNode, model: str, path: str, *form: str) -> bytes:
    """The body of one POST to a model, by curl; fails the test unless it was 2xx."""
    url = f"http://127.0.0.1:{node.models[model]['port']}{path}"
    ran = subprocess.run(
        ["curl", "-sS", "--fail-with-body", *form, url],
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert ran.returncode == 0, ran
    return ran.stdout


def health(node: SystemNode, name: str) -> dict[str, Any]:
    (model,) = (each for each in node.status()["models"] if each["name"] == name)
    return dict(model)


def test_a_voice_scene_switches_streams_and_outlives_its_agent(
    voice: SystemNode, python: Path, tmp_path: Path
) -> None:
    agent = start_agent(voice)
    gateway = gateway_port(voice)
    voice.ok("scene", "activate", "voice-qwen")
    assert voice.status()["verdict"] == "exact"
    before = voice.pids()

    # It speaks, and hears itself.
    text = '{"text": "hello there, how are you today?"}'
    spoken = posted(voice, "piper", "/synthesize", "--json", text)
    assert spoken.startswith(b"RIFF")
    (tmp_path / "spoken.wav").write_bytes(spoken)
    form = ("-F", f"file=@{tmp_path / 'spoken.wav'}")
    assert b'"text"' in posted(voice, "whisper", "/v1/audio/transcriptions", *form)

    # Streams through a switch: those that run are cut, those that come wait for the new model.
    with openai(python, gateway, ENDLESS, tmp_path, "qwen3-30b-a3b") as running:
        running.until_it_speaks()
        switch = voice.start("scene", "activate", "voice-laguna")
        until(lambda: "qwen" not in voice.pids(), "qwen has stopped")
        with (
            curl(gateway, 50, tmp_path) as by_curl,
            openai(python, gateway, 50, tmp_path, "laguna-12b") as by_openai,
        ):
            assert (by_curl.ended(), by_openai.ended()) == (0, 0)
            assert by_curl.models() == by_openai.models() == {"laguna-12b"}
        assert running.ended() != 0
        assert running.models() == {"qwen3-30b-a3b"}
    _, err = switch.communicate(timeout=60)
    assert switch.returncode == 0, err
    after = voice.pids()
    assert {name: after[name] for name in ("whisper", "piper")} == {
        name: before[name] for name in ("whisper", "piper")
    }
    assert not alive(before["qwen"])
    voice.ok("verify")

    # The agent is killed with a stream running; the next one finds everything as it was.
    with openai(python, gateway, ENDLESS, tmp_path, "laguna-12b") as cut:
        cut.until_it_speaks()
        agent.process.kill()
        assert cut.ended() != 0
    agent = start_agent(voice)
    assert voice.pids() == after
    assert voice.status()["verdict"] == "exact"
    with openai(python, gateway, 50, tmp_path, "laguna-12b") as again:
        assert again.ended() == 0
    agent.leave()
    assert all(alive(pid) for pid in after.values())


def test_a_recogniser_at_work_is_busy_kept_and_ended_by_kill_alone(
    voice: SystemNode, python: Path, tmp_path: Path
) -> None:
    """It answers nothing while it works, and hears no SIGTERM."""
    voice.models["whisper"]["health"]["request_timeout"] = "500ms"
    voice.models["whisper"]["stop"] = {"grace": "2s"}
    voice.write()
    voice.ok("scene", "activate", "voice-qwen")
    pids = voice.pids()
    sound = tmp_path / "long.wav"
    subprocess.run([python, "-c", _NOISE, sound], check=True)
    url = f"http://127.0.0.1:{voice.models['whisper']['port']}/v1/audio/transcriptions"
    work = subprocess.Popen(["curl", "-s", "-F", f"file=@{sound}", url], stdout=subprocess.DEVNULL)
    try:
        until(lambda: health(voice, "whisper")["health"] == "busy", "it works", 60)
        told = health(voice, "whisper")
        assert (told["pid"], told["ownership"]) == (pids["whisper"], "owned")
        voice.ok("scene", "deactivate")
        assert not any(alive(pid) for pid in pids.values())
    finally:
        work.kill()
        work.wait()


# An hour of noise at 16 kHz: minutes of work, even for the tiny recogniser.
_NOISE = """
import numpy, sys, wave
with wave.open(sys.argv[1], "wb") as file:
    file.setnchannels(1), file.setsampwidth(2), file.setframerate(16000)
    second = (numpy.random.default_rng(0).standard_normal(16000) * 3000).astype("<i2").tobytes()
    file.writeframes(second * 3600)
"""


@pytest.mark.parametrize(("file", "name"), [("alan", "ala"), ("ljspeech-high", "ljspeech-high")])
def test_piper_takes_the_last_letters_n_o_and_x_off_a_voices_name(
    voice: SystemNode, file: str, name: str
) -> None:
    """Its marker is what it reports, not what the file is called.  Seen with piper-tts 1.8.0."""
    models = voice.root / "models"
    for suffix in (".onnx", ".onnx.json"):
        (models / f"en_GB-alba-medium{suffix}").rename(models / f"{file}{suffix}")
    piper = voice.models["piper"]
    piper["command"] = [part.replace("en_GB-alba-medium", file) for part in piper["command"]]
    piper["marker"] = name
    voice.scene("one", "piper")
    voice.write()
    voice.ok("scene", "activate", "one")
    assert voice.status()["verdict"] == "exact"
