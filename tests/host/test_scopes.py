"""Scopes of a systemd that is PID 1; without one there is nothing to see."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import trio

from lumbridge_compute.core.launch import Launch
from lumbridge_compute.host.procfs import read_cgroup
from lumbridge_compute.host.systemd import SLICE, detect_scopes
from lumbridge_compute.host_effects import HostEffects
from tests.host.zoo import PATIENCE_S, Zoo

pytestmark = pytest.mark.skipif(
    not detect_scopes(os.geteuid()), reason="systemd is not PID 1 here, or we are not root"
)


async def test_a_model_runs_in_a_scope_of_its_own(zoo: Zoo, tmp_path: Path) -> None:
    effects = HostEffects(str(tmp_path))
    scope = effects.new_scope("qwen")
    assert scope is not None
    script = 'echo "$1"; sleep 1000 & setsid sleep 1000 & exec sleep 1000'
    argv = ("/bin/sh", "-c", script, "sh", "$HOME ${PATH} 50%")
    gate = await effects.spawn(Launch("qwen", argv, str(tmp_path), zoo.env, zoo.token, scope))
    identity = gate.handle.identity
    assert effects.scope_members({scope}) == {scope: frozenset()}
    gate.release()
    with trio.fail_after(PATIENCE_S):
        while len(members := effects.scope_members({scope})[scope]) < 3:
            await effects.sleep(0.01)
        assert effects.identify(identity.pid) == identity
        assert effects.processes()[identity.pid].session == identity.pid
        assert effects.carriers({zoo.token})[zoo.token] == members
        cgroup = read_cgroup(identity.pid)
        assert cgroup is not None
        assert SLICE in cgroup
        assert effects.restarting_unit(identity.pid) is None
        # systemd-run adds nothing to the output, and reads nothing into an argument.
        assert await effects.log_tail("qwen", 1) == ("$HOME ${PATH} 50%",)
        folder = f"/proc/{identity.pid}/fd"
        assert sorted(os.listdir(folder)) == ["0", "1", "2"]
        for pid in members:
            member = effects.identify(pid)
            assert member is not None
            held = effects.open_process(member)
            assert held is not None
            held.signal(signal.SIGKILL)
            await held.wait()
            held.close()
        while effects.scope_members({scope})[scope]:
            await effects.sleep(0.01)
    gate.handle.close()


async def test_a_scope_that_can_not_be_made_fails_the_start(zoo: Zoo, tmp_path: Path) -> None:
    effects = HostEffects(str(tmp_path))
    scope = effects.new_scope("qwen")
    assert scope is not None
    launch = Launch("qwen", ("sleep", "1000"), str(tmp_path), zoo.env, zoo.token, scope)
    first, second = await effects.spawn(launch), await effects.spawn(launch)
    first.release()
    with trio.fail_after(PATIENCE_S):
        while not effects.scope_members({scope})[scope]:
            await effects.sleep(0.01)
        second.release()  # the name is taken
        await second.handle.wait()
        assert second.handle.exit_cause() == "exit code 1"
        assert scope in (await effects.log_tail("qwen", 1))[0]
        first.handle.signal(signal.SIGKILL)
        await first.handle.wait()
    for gate in (first, second):
        gate.handle.close()
