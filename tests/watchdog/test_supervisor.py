"""The sampler as a process, what looks after it, and the task that takes its place."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from lumbridge_compute.core.units import GIB, MIB
from lumbridge_compute.host.pidfd_signal import group_lives
from lumbridge_compute.watchdog.guard import Guard, GuardStatus
from lumbridge_compute.watchdog.loop import Signaller, Target
from lumbridge_compute.watchdog.protocol import FloorEvent, FloorEventKind
from lumbridge_compute.watchdog.supervisor import Machine, open_guard

K = FloorEventKind
ROOT = str(Path(__file__).parents[2])
LIMIT_S = 60
NO_INTERPRETER = ("/nonexistent/python",)


class Told:
    """Events as they come; `first` waits for one."""

    def __init__(self) -> None:
        self._sender, self._receiver = trio.open_memory_channel[FloorEvent](10_000)

    def __call__(self, event: FloorEvent) -> None:
        self._sender.send_nowait(event)

    async def first(self, kind: FloorEventKind) -> FloorEvent:
        async for event in self._receiver:
            if event.kind is kind:
                return event
        raise AssertionError


@asynccontextmanager
async def guarded(memory: Any, **machine: Any) -> AsyncIterator[tuple[Guard, Told]]:
    told = Told()
    with trio.fail_after(LIMIT_S):
        async with open_guard(3 * GIB, told, Machine(meminfo_path=memory.path, **machine)) as guard:
            yield guard, told


async def in_charge(guard: Guard, *, but: int | None = None) -> int:
    """The PID of the sampler, when there is one other than `but`."""

    def ready(status: GuardStatus) -> bool:
        return status.sampler_pid not in (None, but)

    pid: int = (await guard.status.wait_value(ready)).sampler_pid
    return pid


async def hand_over(guard: Guard, **models: Any) -> None:
    for name, model in models.items():
        await guard.add(name, model.pidfd, model.pid)
    await guard.set_order(models)


async def ended(pidfd: int) -> None:
    with trio.fail_after(LIMIT_S):
        await trio.lowlevel.wait_readable(pidfd)


def read_resident_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return next(
        int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS")
    )


async def test_the_sampler_stops_the_first_victim_and_tells_how_it_went(
    memory: Any, start_model: Callable[..., Any]
) -> None:
    first, second = start_model(), start_model()
    async with guarded(memory) as (guard, told):
        await in_charge(guard)
        await hand_over(guard, first=first, second=second)
        memory.set(2 * GIB)
        await ended(first.pidfd)
        memory.set(9 * GIB)
        term = await told.first(K.TERM)
        stopped = await told.first(K.STOPPED)
    assert first.wait() == signal.SIGTERM
    assert second.alive
    assert (term.victim, stopped.victim) == ("first", "first")
    assert stopped.back_bytes == 7 * GIB
    assert stopped.exit_s is not None


async def test_a_group_that_ignores_term_is_killed_as_a_whole(
    memory: Any, start_model: Callable[..., Any]
) -> None:
    model = start_model(ignores_term=True)
    async with guarded(memory) as (guard, told):
        await in_charge(guard)
        await hand_over(guard, model=model)
        memory.set(2 * GIB)
        await told.first(K.TERM)
        assert model.alive
        memory.set(0.9 * GIB)
        assert (await told.first(K.KILL)).victim == "model"
        assert model.wait() == signal.SIGKILL
        memory.set(9 * GIB)
        stopped = await told.first(K.STOPPED)
        assert stopped.detail == "KILL"
    assert not group_lives(model.pidfd, model.pid)


async def test_who_was_let_go_of_is_not_stopped(
    memory: Any, start_model: Callable[..., Any]
) -> None:
    first, second = start_model(), start_model()
    async with guarded(memory) as (guard, _told):
        await in_charge(guard)
        await hand_over(guard, first=first, second=second)
        await guard.remove("first")
        memory.set(0.9 * GIB)
        await ended(second.pidfd)
        assert first.alive


async def test_a_killed_sampler_is_replaced_and_knows_its_models(
    memory: Any, start_model: Callable[..., Any]
) -> None:
    model = start_model()
    async with guarded(memory) as (guard, told):
        before = await in_charge(guard)
        await hand_over(guard, model=model)
        os.kill(before, signal.SIGKILL)
        after = await in_charge(guard, but=before)
        assert after != before
        memory.set(0.9 * GIB)
        assert (await told.first(K.KILL)).victim == "model"
        assert model.wait() == signal.SIGKILL


async def test_a_sampler_ends_with_the_guard(memory: Any) -> None:
    async with guarded(memory) as (guard, _told):
        pidfd = os.pidfd_open(await in_charge(guard))
    await ended(pidfd)
    os.close(pidfd)


async def test_a_missing_and_an_absurd_number_are_blindness(
    memory: Any, start_model: Callable[..., Any]
) -> None:
    model = start_model()
    async with guarded(memory) as (guard, told):
        await in_charge(guard)
        await hand_over(guard, model=model)
        memory.write("MemTotal: 5 kB\nnothing else\n")
        assert (await told.first(K.BLIND)).detail == "MemAvailable and MemTotal can't be read"
        await guard.status.wait_value(lambda status: status.blind is not None)
        memory.set(65 * GIB)
        memory.set(32 * GIB)
        await told.first(K.SEES)
        memory.set(0)
        assert "MemAvailable is 0" in ((await told.first(K.BLIND)).detail or "")
        assert model.alive


async def test_another_floor_is_obeyed(memory: Any, start_model: Callable[..., Any]) -> None:
    model = start_model()
    async with guarded(memory) as (guard, told):
        await in_charge(guard)
        await hand_over(guard, model=model)
        memory.set(5 * GIB)
        await guard.set_floor(6 * GIB)
        assert (await told.first(K.TERM)).floor_bytes == 6 * GIB


async def test_the_sampler_is_small(memory: Any) -> None:
    async with guarded(memory) as (guard, _told):
        resident_bytes = read_resident_bytes(await in_charge(guard))
    assert resident_bytes < 20 * MIB


async def test_the_sampler_loads_nothing_heavy(memory: Any) -> None:
    code = (
        f"import sys; sys.path.insert(0, {ROOT!r}); import lumbridge_compute.watchdog.sampler; "
        "print(*sys.modules)"
    )
    argv = [sys.executable, "-I", "-S", "-B", "-c", code]
    loaded = (await trio.run_process(argv, capture_stdout=True)).stdout.decode().split()
    assert not {"trio", "json", "dataclasses", "logging", "subprocess", "yaml"} & set(loaded)


class Recorder(Signaller):
    """Victims that die at once."""

    def __init__(self) -> None:
        self.sent: list[tuple[float, str, int]] = []

    def send(self, target: Target, number: int) -> bool:
        self.sent.append((trio.current_time(), target.name, number))
        return True

    def lives(self, target: Target) -> bool:
        return target.name not in [name for _, name, _ in self.sent]

    def release(self, target: Target) -> None:
        pass


async def test_where_no_sampler_starts_a_task_watches_and_says_so(
    memory: Any, start_model: Callable[..., Any], autojump_clock: trio.testing.MockClock
) -> None:
    model, recorder = start_model(), Recorder()
    fake = {"interpreter": NO_INTERPRETER, "signaller": recorder, "now": trio.current_time}
    async with guarded(memory, **fake) as (guard, told):
        await hand_over(guard, model=model)
        await trio.sleep(sum(Machine().restart_pauses_s) + 1)
        status = guard.status.value
        assert status.sampler_pid is None
        assert status.cause.startswith("cannot start the sampler: ")
        began_s = trio.current_time()
        memory.set(2.5 * GIB)
        term = await told.first(K.TERM)
        stopped = await told.first(K.STOPPED)
    assert [(name, number) for _, name, number in recorder.sent] == [("model", signal.SIGTERM)]
    assert term.at_s - began_s <= 0.25 + 0.03
    assert stopped.at_s - term.at_s == pytest.approx(1, abs=0.06)


async def test_a_task_that_is_told_more_goes_by_it(
    memory: Any, start_model: Callable[..., Any], autojump_clock: trio.testing.MockClock
) -> None:
    first, second, recorder = start_model(), start_model(), Recorder()
    fake = {"interpreter": NO_INTERPRETER, "signaller": recorder, "now": trio.current_time}
    async with guarded(memory, **fake) as (guard, told):
        await hand_over(guard, first=first, second=second)
        await guard.set_order(["second"])
        await guard.remove("first")
        memory.set(0.9 * GIB)
        assert (await told.first(K.KILL)).victim == "second"
        await told.first(K.HELPLESS)
    assert [name for _, name, _ in recorder.sent] == ["second"]


async def test_samplers_that_end_at_once_are_not_started_for_ever(
    memory: Any, tmp_path: Path
) -> None:
    starts = tmp_path / "starts"
    script = ("/bin/sh", "-c", f"echo >>{starts}; exit 7")
    async with guarded(memory, interpreter=script, restart_pauses_s=(0, 0.01)) as (guard, _):
        await guard.status.wait_value(lambda status: "not started again" in (status.cause or ""))
        cause = guard.status.value.cause
    assert cause == "the sampler ended: exit code 7; it is not started again"
    assert len(starts.read_bytes()) == 3


async def test_a_sampler_that_talks_nonsense_is_not_believed_and_replaced(memory: Any) -> None:
    """It took the agent down."""
    script = ("/bin/sh", "-c", "echo nonsense >&0; exec sleep 1000")
    async with guarded(memory, interpreter=script, restart_pauses_s=()) as (guard, _):
        await guard.status.wait_value(lambda status: "not started again" in (status.cause or ""))
        assert "was not understood: " in (guard.status.value.cause or "")
        assert guard.status.value.sampler_pid is None


async def test_a_sampler_that_is_stuck_is_replaced(
    memory: Any, start_model: Callable[..., Any]
) -> None:
    model = start_model()
    async with guarded(memory, silence_limit_s=3) as (guard, told):
        before = await in_charge(guard)
        os.kill(before, signal.SIGSTOP)
        await in_charge(guard, but=before)
        await hand_over(guard, model=model)
        memory.set(0.9 * GIB)
        assert (await told.first(K.KILL)).victim == "model"


async def test_this_process_is_never_a_target(memory: Any) -> None:
    async with guarded(memory) as (guard, _told):
        own = os.pidfd_open(os.getpid())
        with pytest.raises(ValueError, match="this command"):
            await guard.add("own", own, os.getpid())
        os.close(own)


AGENT = """
    import os, sys, trio
    from lumbridge_compute.watchdog.supervisor import Machine, open_guard

    async def main():
        machine = Machine(meminfo_path=sys.argv[1])
        pidfd = os.pidfd_open(int(sys.argv[2]))
        async with open_guard(3 << 30, lambda event: None, machine) as guard:
            status = await guard.status.wait_value(lambda status: status.sampler_pid)
            await guard.add("model", pidfd, int(sys.argv[2]))
            await guard.set_order(["model"])
            print(status.sampler_pid, flush=True)
            await trio.sleep_forever()

    trio.run(main)
"""


def start_agent(*arguments: str) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-c", textwrap.dedent(AGENT), *arguments]
    env = {**os.environ, "PYTHONPATH": ROOT}
    return subprocess.Popen(argv, stdout=subprocess.PIPE, env=env)


@asynccontextmanager
async def agent(memory: Any, model: Any) -> AsyncIterator[tuple[subprocess.Popen[bytes], int]]:
    """An agent of its own process, and a pidfd of its sampler."""
    process = start_agent(memory.path, str(model.pid))
    try:
        assert process.stdout is not None
        pidfd = os.pidfd_open(int(process.stdout.readline()))
        yield process, pidfd
        os.close(pidfd)
    finally:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


@pytest.mark.parametrize("ignores_term", [False, True])
async def test_the_hard_floor_acts_while_the_agent_is_stuck(
    memory: Any, start_model: Callable[..., Any], *, ignores_term: bool
) -> None:
    model = start_model(ignores_term=ignores_term)
    async with agent(memory, model) as (process, _):
        process.send_signal(signal.SIGSTOP)
        memory.set(0.9 * GIB)
        await ended(model.pidfd)
        assert model.wait() == signal.SIGKILL
        process.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("stuck", [False, True])
async def test_a_killed_agent_takes_its_sampler_along_and_no_model(
    memory: Any, start_model: Callable[..., Any], *, stuck: bool
) -> None:
    model = start_model()
    async with agent(memory, model) as (process, sampler):
        if stuck:
            process.send_signal(signal.SIGSTOP)
        process.kill()
        await ended(sampler)
        assert model.alive
