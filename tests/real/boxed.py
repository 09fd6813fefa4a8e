"""A real server in the private systemd of tests/systemd/box, where test_upgrade.py runs this."""

from __future__ import annotations

from pathlib import Path

import trio

from tests.real.talking import ENDLESS, curl
from tests.system.node import alive
from tests.systemd.deployment import COMMAND, Deployment, current
from tests.systemd.service import Service, are_same

CUT = (18, 56)
"""How curl ends where a stream was cut short, or reset: never as at a clean end."""


def declare(service: Service, llama_server: Path, model: Path) -> None:
    """A Scene of one language model behind the gateway."""
    node, port = service.node, service.upstream
    command = [str(llama_server), "--model", str(model), "--alias", "${marker}"]
    command += ["--host", "127.0.0.1", "--port", "${port}", "--ctx-size", "131072"]
    command += ["--parallel", "1", "--threads", "1", "--no-warmup", "--device", "none", "--offline"]
    health = {"ready": "/health", "timeout": "60s"}
    node.models = {"qwen": {"command": command, "port": port, "health": health}}
    node.scenes = {}
    node.scene("voice-qwen", "qwen")
    node.write()


async def test_an_upgrade_and_its_way_back_under_a_stream(
    tmp_path: Path, llama_server: Path, tiny: Path
) -> None:
    deployment = Deployment(tmp_path)
    service = Service(by_hand=False)
    try:
        declare(service, llama_server, tiny / "llm.gguf")
        at_the_node = ("--root", str(service.node.root))
        first = deployment.revision()
        deployment.ok("install", "--floor", "0.0625")
        deployment.command(*at_the_node, "scene", "activate", "voice-qwen")
        pids = service.node.pids()
        deployment.ok("install", "--enable")
        second = deployment.commit("second")
        for words, release in (((), second), (("--back",), first)):
            with curl(service.gateway, ENDLESS, tmp_path) as running:
                running.until_it_speaks()
                said = await trio.to_thread.run_sync(deployment.ok, "upgrade", *words)
                assert running.ended() in CUT
                assert running.models() == {"qwen"}
            assert current() == release
            assert "names the same models as the one behind it" in said
            assert are_same(pids, "--alias")
            with curl(service.gateway, 50, tmp_path) as after:
                assert after.ended() == 0
                assert after.models() == {"qwen"}
            deployment.command(*at_the_node, "verify")
        assert COMMAND.exists()
        deployment.ok("uninstall")
        assert not COMMAND.exists()
        assert all(map(alive, pids.values()))
    finally:
        service.node.close()
        print("\n".join(deployment.transcript))  # noqa: T201 - shown where the test has failed
