"""A node's life by its scripts, from an empty machine to a removal; and scripts that are killed."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.system.node import alive
from tests.systemd.deployment import COMMAND, PREFIX, Deployment, current, releases, tree
from tests.systemd.service import INSTALLED, Clients, Service, are_same, run
from tests.systemd.streams import ENDLESS, Streams

TOUCHED = (PREFIX, COMMAND.parent, INSTALLED.parent, Path("/run/systemd/system"), Path("/srv"))
BROKEN_AGENT = '    raise BadInput("this release is broken", None)\n'


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    made = Deployment(tmp_path)
    yield made
    sys.stdout.write("\n".join([*made.transcript, ""]))


@pytest.fixture
def node() -> Iterator[Service]:
    """The node's root with two Scenes, nothing installed; the streaming model never ends."""
    service = Service(by_hand=False)
    service.node.models["small"]["command"] += ENDLESS
    service.node.write()
    yield service
    service.node.close()
    subprocess.run(["journalctl", "--no-pager", "--lines=100"], check=True)


def adopt_by_hand(deployment: Deployment, service: Service) -> dict[str, int]:
    """Start the models of the Scene `day` as an operator does, and adopt them."""
    pids = {}
    for name in ("small", "voice"):
        model = service.node.models[name]
        options = [*ENDLESS] if name == "small" else []
        pids[name] = service.node.stranger(*options, port=model["port"], marker=name).pid
    given = [word for name, pid in pids.items() for word in ("--pid", f"{name}={pid}")]
    deployment.command("--root", str(service.node.root), "scene", "adopt", "day", *given)
    return pids


def refuses_another_root(deployment: Deployment) -> None:
    drop_in = INSTALLED.with_name(f"{INSTALLED.name}.d") / "root.conf"
    drop_in.parent.mkdir()
    drop_in.write_text("[Service]\nEnvironment=LUMBRIDGE_COMPUTE_ROOT=/elsewhere\n")
    ended = deployment.script("install", "--enable")
    assert ended.returncode == 1
    assert "a drop-in of lumbridge-compute-agent.service names another root" in ended.stdout
    drop_in.unlink()
    drop_in.parent.rmdir()


@contextmanager
def without_systemctl() -> Iterator[None]:
    program = Path("/usr/bin/systemctl")
    aside = program.rename(program.with_suffix(".aside"))
    try:
        yield
    finally:
        aside.rename(program)


def status(service: Service) -> dict[str, Any]:
    shown = subprocess.run(
        [COMMAND, "--root", service.node.root, "status", "--json"], capture_output=True, check=True
    )
    loaded: dict[str, Any] = json.loads(shown.stdout)
    return loaded


@asynccontextmanager
async def load_on(service: Service) -> AsyncIterator[tuple[Clients, Streams]]:
    """A new client every 5 ms, and ten that stream."""
    clients, streams = Clients(service.gateway), Streams(service.gateway)
    enough = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(clients.run, enough)
        nursery.start_soon(streams.run, enough)
        await streams.all_receive()
        await clients.more()
        yield clients, streams
        await streams.all_receive()
        await clients.more()
        enough.set()
    assert not {"refused", "torn"} & set(clients.ends), clients.ends
    assert not streams.others


async def in_thread(deployment: Deployment, *words: str) -> subprocess.CompletedProcess[str]:
    return await trio.to_thread.run_sync(lambda: deployment.script(*words))


async def test_from_an_empty_machine_to_a_removal(deployment: Deployment, node: Service) -> None:
    first = deployment.revision()
    before = tree(*TOUCHED)
    assert f"would build release {first}" in deployment.ok("install", "--dry-run", "--enable")
    assert tree(*TOUCHED) == before

    with without_systemctl():
        said = deployment.ok("install", "--floor", "0.0625")
    assert "no service: there is no systemctl; the agent is lumbridge-compute --root" in said
    assert current() == first
    assert not INSTALLED.exists()
    deployment.ok("install", "--floor", "0.0625")
    assert await node.show("ActiveState") == "inactive"
    assert await run("systemd-analyze", "verify", "--man=no", str(INSTALLED)) == ""
    refuses_another_root(deployment)
    pids = adopt_by_hand(deployment, node)
    deployment.ok("install", "--enable")
    assert await run("systemctl", "is-enabled", INSTALLED.name) == "enabled"
    assert status(node)["agent"]["version"] == first
    assert status(node)["memory"]["floor_bytes"] == 64 * 1024 * 1024
    agent, before = await node.main_pid(), tree(*TOUCHED[:3])
    deployment.ok("install", "--enable")
    assert await node.main_pid() == agent
    assert changed(before, tree(*TOUCHED[:3])) <= {str(PREFIX)}

    await upgraded_and_back(deployment, node, first)
    assert are_same(pids)
    assert "exact: Scene 'day' runs" in deployment.command("--root", str(node.node.root), "status")

    said = deployment.ok("uninstall")
    assert f"lives on: small (pid {pids['small']})" in said
    assert not any(each.exists() for each in (PREFIX, COMMAND, INSTALLED))
    assert (node.node.root / "compute.yaml").exists()
    assert all(map(alive, pids.values()))
    deployment.ok("uninstall")


async def upgraded_and_back(deployment: Deployment, node: Service, first: str) -> None:
    """Upgrades that hold and that do not, under load; as many resets as restarts at most."""
    restarts = 0
    async with load_on(node) as (clients, streams):
        second = deployment.commit("second")
        broken = deployment.upstream / "lumbridge_compute" / "broken.py"
        broken.write_text('raise RuntimeError("broken")\n')
        third = deployment.commit("cannot be imported")
        before = tree(*TOUCHED[:3])
        ended = await in_thread(deployment, "upgrade", "--dry-run")
        assert f"would switch from {first} to VERSION+{third[-12:]}" in ended.stdout
        assert tree(*TOUCHED[:3]) == before
        ended = await in_thread(deployment, "upgrade", "--to", second[-12:])
        restarts += 1
        assert ended.returncode == 0
        assert "refused none of" in ended.stdout
        assert "names the same models" in ended.stdout
        assert (current(), status(node)["agent"]["version"]) == (second, second)
        assert deployment.revision() == second

        ended = await in_thread(deployment, "upgrade")
        assert ended.returncode == 1
        assert "is not fit for this node; nothing was changed" in ended.stdout
        assert current() == second

        broken.unlink()
        deployment.edit("lumbridge_compute/cli/agent.py", "    gc.enable()\n", BROKEN_AGENT)
        deployment.commit("does not start")
        ended = await in_thread(deployment, "upgrade")
        restarts += 2
        assert ended.returncode == 1
        assert f"failed and {second} runs again, proved in the same way" in ended.stdout
        assert (current(), status(node)["agent"]["version"]) == (second, second)
        assert deployment.revision() == second

        ended = await in_thread(deployment, "upgrade", "--back")
        restarts += 1
        assert ended.returncode == 0
        assert (current(), status(node)["agent"]["version"]) == (first, first)
        assert len(releases()) == 3
    deployment.note(dict(clients.ends), "resets:", dict(streams.resets), restarts, "restarts")
    assert max(streams.resets.values()) <= restarts


def changed(
    before: dict[str, tuple[int, int, str]], after: dict[str, tuple[int, int, str]]
) -> set[str]:
    return {path for path in {*before, *after} if before.get(path) != after.get(path)}


def test_a_script_that_is_killed_is_made_good_by_the_next_run(
    deployment: Deployment, node: Service
) -> None:
    choice = random.Random(seed := random.randrange(1 << 30))
    deployment.note("seed", seed)
    kill(deployment, choice, "install", within_s=8)
    assert not INSTALLED.exists() or current() in complete()
    deployment.ok("install")
    pids = adopt_by_hand(deployment, node)
    deployment.killed("install", "--enable", at=choice.randrange(40, 120))
    deployment.ok("install", "--enable")
    first, second = current(), deployment.commit("second")

    kill(deployment, choice, "upgrade", within_s=4)
    assert are_same(pids)
    assert current() in complete()
    deployment.ok("upgrade")
    assert current() == second
    commands = deployment.commands_of("upgrade", "--back")
    assert current() == first
    deployment.killed("upgrade", "--back", at=choice.randrange(commands // 2, commands))
    deployment.ok("upgrade", "--back")
    assert are_same(pids)
    assert status(node)["agent"]["version"] == current()
    assert releases() == complete() == {first, second}
    assert not list(PREFIX.glob("pending"))
    assert not list(Path("/run/systemd/system").glob(f"{INSTALLED.name}.d/*"))

    deployment.killed("uninstall", at=choice.randrange(1, 100))
    deployment.ok("uninstall")
    assert not any(each.exists() for each in (PREFIX, INSTALLED))
    assert not COMMAND.is_symlink()
    assert are_same(pids)


def kill(deployment: Deployment, choice: random.Random, script: str, *, within_s: float) -> None:
    """Kill `script` after a time, or before one of its commands: the shell's are the shorter part
    of its time, and the longer part of what can be left half done."""
    if choice.random() < 0.3:
        # A number beyond the last command: it ends by itself, which is a moment like any other.
        deployment.killed(script, at=10_000, after_s=choice.uniform(0, within_s))
    else:
        deployment.killed(script, at=choice.randrange(1, 200))


def complete() -> set[str]:
    """The releases that are whole."""
    return {each.parent.name for each in PREFIX.glob("releases/*/release.txt")}
