"""The agent as a service: what the service manager does to it, and what models and clients see."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from tests.system.node import alive
from tests.systemd.service import (
    CHECKOUT,
    SLICE,
    UNIT,
    Clients,
    Service,
    are_same,
    cgroup_of,
    environment_of,
    eventually,
    listens,
    models,
    oom_score_adj_of,
    open_files_of,
    run,
    scopes,
)


@asynccontextmanager
async def clients_of(service: Service) -> AsyncIterator[Clients]:
    """Clients that come all the time; afterwards none was refused, and none was fooled."""
    clients = Clients(service.gateway)
    enough = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(clients.run, enough)
        await clients.more()
        yield clients
        await clients.more()
        enough.set()
    assert not {"refused", "torn"} & set(clients.ends), clients.ends


async def test_the_unit_has_no_fault(service: Service) -> None:
    argv = ["systemd-analyze", "verify", "--man=no", f"/etc/systemd/system/{UNIT}"]
    ended = await trio.run_process(argv, capture_stdout=True, stderr=subprocess.STDOUT, check=False)
    assert (ended.returncode, ended.stdout) == (0, b"")


async def test_every_exposure_of_the_unit_is_written_down(service: Service) -> None:
    await run("systemctl", "daemon-reload")
    shown = await run("systemd-analyze", "--no-pager", "security", UNIT)
    exposed = set(re.findall(r"^✗ .*?(\w+)=", shown, re.MULTILINE))
    assert {"User", "ProtectHome"} <= exposed
    table = (CHECKOUT / "docs" / "operations.md").read_text().partition("### Exposure")[2]
    assert not {each for each in exposed if each not in table.partition("\n## ")[0]}


async def test_it_is_started_when_it_serves_and_says_what_goes_on(service: Service) -> None:
    await service.start()
    # `systemctl start` has returned: READY=1 has come, so the gateway listens.
    assert await listens(service.gateway)
    await service.command("scene", "activate", "day")
    assert service.node.status()["agent"]["pid"] == await service.main_pid()

    async def at_rest() -> bool:
        return "at rest" in await service.show("StatusText")

    await eventually(at_rest, "a status line")


async def test_each_model_is_in_a_scope_of_its_own_and_takes_nothing_of_the_agents(
    service: Service,
) -> None:
    pids = await service.start("day")
    groups = {name: cgroup_of(pid) for name, pid in pids.items()}
    for name, group in groups.items():
        assert group.startswith(f"{SLICE}lumbridge-compute-{name}-")
        assert group.endswith(".scope")
    assert len(set(groups.values())) == len(pids)
    await eventually(lambda: has_agent_and_sampler(service), "agent and sampler, and nothing else")
    for pid in pids.values():
        assert oom_score_adj_of(pid) >= 300
        inherited = environment_of(pid)
        announced = ("NOTIFY_", "LISTEN_", "WATCHDOG_", "JOURNAL_STREAM")
        assert not [variable for variable in inherited if variable.startswith(announced)]
        assert inherited["HOME"] == "/root"
        assert open_files_of(pid) > 1024
        assert sorted(os.listdir(f"/proc/{pid}/fd"))[:3] == ["0", "1", "2"]


async def has_agent_and_sampler(service: Service) -> bool:
    own = await service.processes()
    return await service.main_pid() in own and len(own) == 2


async def test_ten_restarts_refuse_no_client_and_touch_no_model(service: Service) -> None:
    pids = await service.start("day")
    async with clients_of(service) as clients:
        for _ in range(10):
            before = await service.main_pid()
            await service.systemctl("restart")
            assert await service.main_pid() != before
            await clients.more()
    assert are_same(pids)
    assert service.node.pids() == pids
    assert service.node.state()["active_scene"] == "day"


async def test_a_killed_agent_comes_back_and_nobody_else_notices(service: Service) -> None:
    pids = await service.start("day")
    async with clients_of(service) as clients:
        before = await service.main_pid()
        os.kill(before, signal.SIGKILL)
        await service.restarted(before)
        await clients.more()
    assert await service.show("NRestarts") == "1"
    await eventually(lambda: has_agent_and_sampler(service), "the old sampler has ended")
    assert are_same(pids)
    assert service.node.status()["verdict"] == "exact"


async def test_a_hanging_agent_is_replaced_and_nobody_else_notices(service: Service) -> None:
    service.drop_in("WatchdogSec=3")
    pids = await service.start("day")
    async with clients_of(service) as clients:
        before = await service.main_pid()
        os.kill(before, signal.SIGSTOP)
        await service.restarted(before)
        await clients.more()
    assert await service.show("NRestarts") == "1"
    await eventually(lambda: has_agent_and_sampler(service), "the old sampler has ended")
    assert are_same(pids)
    assert service.node.status()["verdict"] == "exact"


async def test_an_agent_at_rest_feeds_the_watchdog(service: Service) -> None:
    service.drop_in("WatchdogSec=3")
    await service.start("day")
    before = await service.main_pid()
    fed = await service.show("WatchdogTimestampMonotonic")
    for _ in range(3):

        async def fed_again(last: str = fed) -> bool:
            return await service.show("WatchdogTimestampMonotonic") != last

        await eventually(fed_again, "the watchdog is fed")
        fed = await service.show("WatchdogTimestampMonotonic")
    assert await service.main_pid() == before


async def test_models_live_on_after_a_stop_and_end_with_a_command(service: Service) -> None:
    pids = await service.start("day")
    await service.systemctl("stop")
    assert await service.show("Result") == "success"
    assert await service.show("ExecMainStatus") == "0"
    assert not await service.processes()
    assert are_same(pids)
    assert service.node.status()["verdict"] == "exact"
    await service.command("scene", "deactivate")
    assert not any(map(alive, pids.values()))

    async def no_scope_is_left() -> bool:
        return not scopes()

    await eventually(no_scope_is_left, "the scopes are gone")
    await service.systemctl("start")
    assert service.node.status()["verdict"] == "idle"


async def test_a_restart_inside_an_activation_ends_where_it_began(service: Service) -> None:
    await service.start("day")
    with service.node.start("scene", "activate", "night") as command:

        async def begun() -> bool:
            return "large" in service.node.state()["processes"]

        await eventually(begun, "the new model is started")
        await service.systemctl("restart")
        assert await trio.to_thread.run_sync(command.wait) in (1, 130)

    async def is_whole() -> bool:
        return bool(service.node.status()["verdict"] == "exact")

    await eventually(is_whole, "a whole Scene")
    assert service.node.state()["active_scene"] == "day"
    assert models() == set(service.node.pids().values())
    assert {cgroup_of(pid) for pid in models()} == {f"{SLICE}{each.name}" for each in scopes()}


async def test_a_reload_inside_an_activation_does_not_keep_the_agent_from_leaving(
    service: Service,
) -> None:
    service.node.models["large"]["command"][-1] = "300"  # seconds until it listens
    service.node.models["large"]["health"]["timeout"] = "300s"
    service.node.write()
    await service.start("day")
    with service.node.start("scene", "activate", "night") as command:

        async def begun() -> bool:
            return "large" in service.node.state()["processes"]

        await eventually(begun, "the new model is started")
        await service.systemctl("reload")
        await service.systemctl("stop")
        await trio.to_thread.run_sync(command.wait)
    assert await service.show("Result") == "success"
    assert "large" not in service.node.pids()


async def test_a_model_that_is_killed_is_recorded_and_the_agent_serves_on(
    service: Service,
) -> None:
    pids = await service.start("day")
    before = await service.main_pid()
    os.kill(pids["small"], signal.SIGKILL)

    async def recorded() -> bool:
        return "small" in (service.node.state()["last_error"] or "")

    await eventually(recorded, "the death is recorded")
    assert await service.main_pid() == before
    assert await service.show("ActiveState") == "active"
    assert are_same({"voice": pids["voice"]})


async def test_a_registry_that_is_refused_changes_nothing_and_is_said(service: Service) -> None:
    pids = await service.start("day")
    async with clients_of(service):
        registry = service.node.root / "compute.yaml"
        good = registry.read_text()
        registry.write_text(good + "nonsense: [\n")
        await service.systemctl("reload")
        await eventually(lambda: says(service, "compute.yaml is refused"), "the refusal is said")
        registry.write_text(good)
        await service.systemctl("reload")

        async def taken() -> bool:
            return not await says(service, "refused")

        await eventually(taken, "the good registry is taken")
    assert await service.show("ActiveState") == "active"
    assert are_same(pids)


async def says(service: Service, words: str) -> bool:
    return words in await service.show("StatusText")


async def test_the_listeners_that_are_declared_are_the_ones_that_are_kept(
    service: Service,
) -> None:
    await service.start()

    async def kept(count: int) -> None:
        async def holds() -> bool:
            return await service.show("NFileDescriptorStore") == str(count)

        await eventually(holds, f"{count} listeners kept")

    await kept(1)
    service.declare_gateways(service.gateway, service.gateway + 1)
    await service.systemctl("reload")
    await kept(2)
    before = await service.main_pid()
    os.kill(before, signal.SIGKILL)
    await service.restarted(before)
    await kept(2)
    service.declare_gateways(service.gateway + 1)
    await service.systemctl("reload")
    await kept(1)
    service.declare_gateways(service.gateway)
    await service.systemctl("restart")
    await kept(1)

    async def closed() -> bool:  # systemd closes what it forgets a little later
        return not await listens(service.gateway + 1)

    await eventually(closed, "the listener that is declared no more is closed")
    assert await listens(service.gateway)


async def test_what_a_restart_can_not_mend_is_not_restarted(service: Service) -> None:
    (service.node.root / "compute.yaml").write_text("nonsense: [\n")
    await run("systemctl", "daemon-reload")
    ended = await trio.run_process(["systemctl", "start", UNIT], check=False)
    assert ended.returncode != 0
    assert await service.show("ActiveState") == "failed"
    assert await service.show("ExecMainStatus") == "2"
    assert await service.show("NRestarts") == "0"


async def test_a_second_agent_names_the_first_and_harms_nothing(service: Service) -> None:
    pids = await service.start("day")
    before = await service.main_pid()
    ran = service.node.run("agent")
    assert ran.exit == 5
    assert str(before) in ran.err
    assert await service.main_pid() == before
    assert are_same(pids)
