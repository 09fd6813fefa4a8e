from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest
import trio

from lumbridge_compute.core.identity import Identity
from lumbridge_compute.core.launch import Launch
from lumbridge_compute.effects import Effects, Holder
from lumbridge_compute.errors import Refused
from lumbridge_compute.host.files import Fault, Unreadable
from lumbridge_compute.host.procfs import read_carriers
from lumbridge_compute.host.systemd import detect_scopes
from lumbridge_compute.host_effects import HostEffects
from tests.host.zoo import PATIENCE_S, Zoo, until


@pytest.fixture
def effects(tmp_path: Path) -> HostEffects:
    return HostEffects(str(tmp_path))


def launch(zoo: Zoo, *argv: str, env: dict[str, str] | None = None) -> Launch:
    return Launch("qwen", argv, str(zoo.folder), zoo.env if env is None else env, zoo.token)


def shell(zoo: Zoo, script: str) -> Launch:
    return launch(zoo, "/bin/sh", "-c", script)


def test_it_is_what_a_transaction_asks_for(effects: HostEffects) -> None:
    seam: Effects = effects
    assert seam.boot_id()


async def test_a_fresh_node_has_nothing_to_read_and_reading_makes_nothing(
    effects: HostEffects, tmp_path: Path
) -> None:
    assert await effects.read("state.yaml") is None
    assert effects.read_now("state.yaml") is None
    assert effects.lock_holder() is None
    assert os.listdir(tmp_path) == []


async def test_the_write_protocol_replaces_a_file(effects: HostEffects, tmp_path: Path) -> None:
    for data in (b"one", b"two"):
        await effects.create("new", data)
        await effects.fsync("new")
        await effects.rename("new", "state.yaml")
        await effects.fsync_folder()
        assert await effects.read("state.yaml") == data
    await effects.append_history(b"{}\n")
    assert await effects.names() == ("history.jsonl", "state.yaml")
    await effects.remove("state.yaml")
    assert await effects.names() == ("history.jsonl",)
    assert (tmp_path / ".kuda").stat().st_mode & 0o7777 == 0o700


async def test_what_can_not_be_read_is_named_with_its_whole_path(
    effects: HostEffects, tmp_path: Path
) -> None:
    (tmp_path / ".kuda" / "state.yaml").mkdir(parents=True)
    with pytest.raises(Unreadable) as caught:
        await effects.read("state.yaml")
    assert caught.value.message == f"cannot read '{tmp_path}/.kuda/state.yaml': it is a folder"


async def test_a_link_in_place_of_the_folder_is_bad_input_to_a_reader(
    effects: HostEffects, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ".kuda").symlink_to("elsewhere")
    with pytest.raises(Unreadable, match="symbolic link or no folder") as caught:
        await effects.read("state.yaml")
    assert caught.value.fault is Fault.SPECIAL


def test_the_lock_is_held_once_and_its_holder_named(effects: HostEffects, tmp_path: Path) -> None:
    first = effects.try_lock("scene activate a")
    assert not isinstance(first, Holder)
    second = HostEffects(str(tmp_path), client_pid=9).try_lock("scene resume")
    assert isinstance(second, Holder)
    assert (second.pid, second.command, second.client_pid) == (
        os.getpid(),
        "scene activate a",
        None,
    )
    seen = effects.lock_holder()
    assert seen is not None
    assert seen.pid == os.getpid()
    first.release()
    assert effects.lock_holder() is None


def test_a_lock_that_can_not_be_taken_is_refused(effects: HostEffects, tmp_path: Path) -> None:
    (tmp_path / ".kuda" / "lock").mkdir(parents=True)
    with pytest.raises(Refused, match=r"cannot lock '.*/\.kuda/lock': Is a directory"):
        effects.try_lock("scene resume")


async def test_a_model_is_started_seen_and_stopped(
    effects: HostEffects, zoo: Zoo, tmp_path: Path
) -> None:
    gate = await effects.spawn(shell(zoo, "echo loading; exec sleep 1000"))
    identity = gate.handle.identity
    assert effects.identify(identity.pid) == identity
    assert effects.processes()[identity.pid].session == identity.pid
    assert effects.carriers({zoo.token}) == {zoo.token: {identity.pid}}
    assert effects.permitted(identity)
    assert 0 <= effects.age_s(identity.start_ticks) < PATIENCE_S
    gate.release()
    with trio.fail_after(PATIENCE_S):
        while (await effects.log_tail("qwen", 1)) != ("loading",):
            await effects.sleep(0.002)
        held = effects.open_process(identity)
        assert held is not None
        with held:
            assert held.signal_group(signal.SIGTERM)
            await gate.handle.wait()
    assert gate.handle.exit_cause() == "killed by SIGTERM"
    gate.handle.close()
    assert effects.open_process(identity) is None
    assert (tmp_path / ".kuda" / "logs").stat().st_mode & 0o7777 == 0o700
    await effects.trim_log("qwen")


async def test_a_log_that_can_not_be_opened_fails_the_start(
    effects: HostEffects, zoo: Zoo, tmp_path: Path
) -> None:
    (tmp_path / ".kuda" / "logs").mkdir(parents=True)
    (tmp_path / ".kuda").chmod(0o700)
    (tmp_path / ".kuda" / "logs" / "qwen.log").symlink_to("/dev/null")
    with pytest.raises(OSError, match="symbolic link"):
        await effects.spawn(launch(zoo, "sleep", "1000"))
    assert read_carriers({zoo.token}) == {zoo.token: frozenset()}


async def test_a_stop_command_that_works_says_nothing(effects: HostEffects, zoo: Zoo) -> None:
    command = ("/bin/sh", "-c", "echo stopping; read line || echo $PWD")
    assert await effects.run(command, launch(zoo, "true"), PATIENCE_S) is None
    assert await effects.log_tail("qwen", 2) == ("stopping", str(zoo.folder))


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (("/bin/sh", "-c", "exit 3"), "'/bin/sh' ended with exit code 3"),
        (("/bin/sh", "-c", "kill -9 $$"), "'/bin/sh' ended with killed by SIGKILL"),
        (("no-such-program", "x"), "cannot run 'no-such-program': No such file or directory"),
    ],
)
async def test_a_stop_command_that_fails_is_told(
    effects: HostEffects, zoo: Zoo, argv: tuple[str, ...], sentence: str
) -> None:
    assert await effects.run(argv, launch(zoo, "true"), PATIENCE_S) == sentence


async def test_a_stop_command_that_hangs_is_ended_with_its_group(
    effects: HostEffects, zoo: Zoo
) -> None:
    command = ("/bin/sh", "-c", "sleep 1000 & wait")
    found = await effects.run(command, launch(zoo, "true"), 0.05)
    assert found == "'/bin/sh' did not end within 0.05 s and was killed"
    until(lambda: not read_carriers({zoo.token})[zoo.token], "the end of the group")


async def test_a_cancelled_stop_command_is_ended(effects: HostEffects, zoo: Zoo) -> None:
    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(effects.run, ("sleep", "1000"), launch(zoo, "true"), PATIENCE_S)
            while not (running := read_carriers({zoo.token})[zoo.token]):
                await effects.sleep(0.002)
            nursery.cancel_scope.cancel()
    assert running
    assert not read_carriers({zoo.token})[zoo.token]


def test_a_launch_that_would_work_has_no_faults(effects: HostEffects, zoo: Zoo) -> None:
    assert effects.unstartable(launch(zoo, "sleep", "1")) == ()
    assert effects.unstartable(launch(zoo, "/bin/sh")) == ()
    assert effects.unstartable(launch(zoo, "sh", env={})) == ()
    own = zoo.folder / "serve"
    own.write_text("#!/bin/sh\n")
    own.chmod(0o755)
    assert effects.unstartable(launch(zoo, "./serve")) == ()
    assert effects.unstartable(launch(zoo, "serve", env={"PATH": "/usr/bin:."})) == ()


def test_each_reason_not_to_start_is_told(effects: HostEffects, zoo: Zoo) -> None:
    (zoo.folder / "data").write_text("")
    (zoo.folder / "data").chmod(0o644)
    (zoo.folder / "folder").mkdir()
    assert effects.unstartable(launch(zoo, "vllm", env={"PATH": "/a:/b"})) == (
        "no executable program 'vllm' in the folders of PATH (/a:/b)",
    )
    assert effects.unstartable(launch(zoo, "/no/vllm")) == ("program '/no/vllm' does not exist",)
    (zoo.folder / "loop").symlink_to("loop")
    assert effects.unstartable(launch(zoo, "./loop")) == (
        "program './loop' can't be reached: too many levels of symbolic links",
    )
    for name in ("./data", "./folder"):
        assert effects.unstartable(launch(zoo, name)) == (
            f"program '{name}' is not an executable file",
        )
    for cwd, what in (("/no", "does not exist"), ("/dev/null", "is not a folder")):
        assert effects.unstartable(Launch("qwen", ("sh",), cwd, {})) == (
            f"its folder '{cwd}' {what}",
        )


def test_own_pids_are_never_a_models(effects: HostEffects, zoo: Zoo) -> None:
    child = zoo.sleeper()
    own = effects.own_pids()
    assert {os.getpid(), os.getppid()} <= own
    assert child.pid not in own
    with pytest.raises(ValueError, match="never a target"):
        effects.open_process(Identity(effects.boot_id(), 1, 1))


def test_tokens_and_scopes_are_new_each_time(effects: HostEffects) -> None:
    assert len({effects.new_token() for _ in range(100)}) == 100
    scopes = {effects.new_scope("qwen") for _ in range(2)}
    assert len(scopes) == 2 if detect_scopes(os.geteuid()) else scopes == {None}


def test_a_listener_is_named_for_a_person(effects: HostEffects) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        (found,) = effects.listeners({server.getsockname()[1]})
    assert found.who.startswith(f"pid {os.getpid()} (")


def test_memory_and_units_are_those_of_the_machine(effects: HostEffects, zoo: Zoo) -> None:
    assert effects.memory() is not None
    assert effects.restarting_unit(zoo.sleeper().pid) is None  # it sits where we sit
    assert effects.scope_members({"x.scope"}) == {"x.scope": frozenset()}


async def test_time_is_that_of_the_loop(effects: HostEffects) -> None:
    assert abs(effects.now() - trio.current_time()) < PATIENCE_S
    assert len(effects.timestamp()) == len("2025-01-01T00:00:00Z")


def test_a_look_at_an_idle_node_loads_nothing_slow(zoo: Zoo, tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from lumbridge_compute.host_effects import HostEffects\n"
        "effects = HostEffects(sys.argv[1])\n"
        "effects.read_now('state.yaml'), effects.lock_holder(), effects.own_pids()\n"
        "effects.listeners({1}), effects.memory(), effects.processes()\n"
        "slow = {'trio', 'httpx', 'rich', 'psutil', 'asyncio', 'subprocess'}\n"
        "print(sorted(slow & set(sys.modules)))\n"
    )
    assert zoo.output(zoo.python(script, str(tmp_path))) == "[]"
