from __future__ import annotations

import os
import platform
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace

import pytest
import trio

from lumbridge_compute.core.identity import Identity
from lumbridge_compute.host import pidfd
from lumbridge_compute.host.pidfd import HeldProcess, Sent, identify, open_same, permitted
from lumbridge_compute.host.procfs import read_process
from tests.host.zoo import Zoo, until

KERNEL = tuple(int(part) for part in platform.release().split(".")[:2])
signals_whole_groups = pytest.mark.skipif(
    KERNEL < (6, 9), reason="PIDFD_SIGNAL_PROCESS_GROUP came with Linux 6.9"
)


@pytest.fixture
def sent() -> Iterator[list[Sent]]:
    """The signals that left during a test."""
    seen: list[Sent] = []
    pidfd.observers.append(seen.append)
    yield seen
    pidfd.observers.remove(seen.append)


def held(pid: int) -> HeldProcess:
    identity = identify(pid)
    assert identity is not None
    process = open_same(identity)
    assert process is not None
    return process


def cause(process: HeldProcess) -> str | None:
    """How a child ended; closing its handle reaps it, so its Popen knows no more than that."""
    until(lambda: process.ended, "the end of the process")
    return process.exit_cause()


def as_zombie(child: subprocess.Popen[str]) -> None:
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)


def test_an_identity_opens_its_own_process(zoo: Zoo) -> None:
    child = zoo.sleeper()
    with held(child.pid) as process:
        assert process.identity.pid == child.pid
        assert not process.ended
        assert process.signal(signal.SIGTERM)
        assert cause(process) == "killed by SIGTERM"


def test_each_process_has_an_inode_where_the_kernel_has_pidfs(zoo: Zoo) -> None:
    with held(zoo.sleeper().pid) as first, held(zoo.sleeper().pid) as second:
        inodes = [each.identity.pidfd_inode for each in (first, second)]
    if KERNEL < (6, 9):
        assert inodes == [None, None]
    else:
        assert None not in inodes
        assert inodes[0] != inodes[1]


@pytest.mark.parametrize("change", ["boot_id", "start_ticks", "pidfd_inode"])
def test_another_identity_with_this_pid_opens_nothing(
    zoo: Zoo, change: str, sent: list[Sent]
) -> None:
    identity = identify(zoo.sleeper().pid)
    assert identity is not None
    if change == "pidfd_inode" and identity.pidfd_inode is None:
        pytest.skip("no pidfs on this kernel")
    others = {"boot_id": "another boot", "start_ticks": 1, "pidfd_inode": 1}
    other = replace(identity, **{change: others[change]})  # type: ignore[arg-type]
    assert open_same(other) is None
    assert permitted(other)
    assert sent == []


def test_an_identity_without_an_inode_opens_its_process(zoo: Zoo) -> None:
    identity = identify(zoo.sleeper().pid)
    assert identity is not None
    process = open_same(replace(identity, pidfd_inode=None))
    assert process is not None
    process.close()


def test_a_zombie_has_an_identity_and_is_not_opened(zoo: Zoo) -> None:
    child = zoo.sleeper()
    before = identify(child.pid)
    assert before is not None
    as_zombie(child)
    assert identify(child.pid) == before
    assert open_same(before) is None


def test_a_signal_to_a_zombie_goes_nowhere(zoo: Zoo, sent: list[Sent]) -> None:
    child = zoo.sleeper()
    process = HeldProcess(os.pidfd_open(child.pid), held(child.pid).identity)
    as_zombie(child)
    assert not process.signal(signal.SIGTERM)
    assert sent == []
    process.close()


def test_what_is_gone_has_no_identity(zoo: Zoo) -> None:
    child = zoo.sleeper()
    before = identify(child.pid)
    assert before is not None
    child.kill()
    child.wait()
    assert identify(child.pid) is None
    assert open_same(before) is None
    assert permitted(before)


@pytest.mark.parametrize("pid", [0, -1, -(1 << 40), (1 << 22) + 1, 1 << 70])
def test_a_number_that_is_no_pid_has_no_identity(pid: int) -> None:
    assert identify(pid) is None
    assert permitted(Identity("x", pid, 1))


@pytest.mark.parametrize(
    "pid", [0, -1, 1, os.getpid(), os.getppid(), os.getpgrp()], ids=lambda pid: "pid"
)
def test_we_and_what_we_live_in_are_never_targets(pid: int, sent: list[Sent]) -> None:
    with pytest.raises(ValueError, match=f"pid {pid} is"):
        open_same(Identity("x", pid, 1))
    identity = identify(pid)
    if identity is not None:
        # A handle made in another way is no way around it.
        process = HeldProcess(os.pidfd_open(pid), identity)
        for call in (process.signal, process.signal_group):
            with pytest.raises(ValueError, match=f"pid {pid} is"):
                call(0)
        process.close()
    assert sent == []


def test_observers_see_every_signal_before_it_leaves(zoo: Zoo, sent: list[Sent]) -> None:
    child = zoo.sleeper()
    with held(child.pid) as process:
        process.signal(signal.SIGSTOP)
        process.signal_group(signal.SIGCONT)
        assert permitted(process.identity)
        process.signal(signal.SIGKILL)
    assert sent == [
        Sent(child.pid, signal.SIGSTOP, group=False),
        Sent(child.pid, signal.SIGCONT, group=True),
        Sent(child.pid, 0, group=False),
        Sent(child.pid, signal.SIGKILL, group=False),
    ]


def test_a_group_signal_reaches_every_member_and_nobody_else(zoo: Zoo) -> None:
    leader = zoo.shell("sleep 1000 & setsid sh -c 'echo $$; exec sleep 1000' & wait")
    escaped = int(zoo.line(leader))
    stranger = zoo.sleeper()
    with held(leader.pid) as process:
        assert process.signal_group(signal.SIGKILL)
        assert cause(process) == "killed by SIGKILL"
    assert stranger.poll() is None
    row = read_process(escaped)
    assert row is not None
    assert row.alive


@signals_whole_groups
def test_a_group_is_reached_through_the_pidfd_of_its_dead_leader(zoo: Zoo) -> None:
    leader = zoo.shell("sleep 1000 & echo $!; exec sleep 1000")
    member = held(int(zoo.line(leader)))
    with held(leader.pid) as process:
        leader.kill()
        leader.wait()
        assert not process.signal(signal.SIGTERM)
        assert process.signal_group(signal.SIGTERM)
        until(lambda: member.ended, "the end of the member")
        until(lambda: not process.signal_group(signal.SIGTERM), "the end of the group")
    member.close()


def test_a_process_that_leads_no_group_has_no_group_to_signal(zoo: Zoo) -> None:
    leader = zoo.shell("sleep 1000 & echo $!; wait")
    with held(int(zoo.line(leader))) as member:
        assert not member.signal_group(signal.SIGKILL)
    assert leader.poll() is None


OLD_KERNEL = """
import signal, subprocess, sys
from lumbridge_compute.host.pidfd import identify, open_same
def start():
    child = subprocess.Popen(
        ["/bin/sh", "-c", "sleep 1000 & echo $!; wait"],
        stdout=subprocess.PIPE, text=True, start_new_session=True,
    )
    member = open_same(identify(int(child.stdout.readline())))
    return child, open_same(identify(child.pid)), member
child, leader, member = start()
print(leader.signal_group(signal.SIGKILL), child.wait())
child, leader, member = start()
child.kill()
child.wait()
print(leader.signal_group(signal.SIGKILL), member.ended)
"""


def test_a_kernel_without_group_signals_gets_killpg_while_the_leader_lives(zoo: Zoo) -> None:
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed")
    inject = "inject=pidfd_send_signal:error=EINVAL"
    prefix = [strace, "-qq", "-e", "trace=pidfd_send_signal", "-e", inject, "-o", "/dev/null"]
    child = zoo.python(OLD_KERNEL, prefix=prefix)
    assert zoo.line(child) == f"True {-signal.SIGKILL}"
    # The group of a dead leader may be anybody's by now.
    assert zoo.line(child) == "False False"


REUSE = """
import os, signal, subprocess, sys
from dataclasses import replace
from lumbridge_compute.host.pidfd import identify, open_same, permitted
from lumbridge_compute.host.procfs import read_process
def start():
    return subprocess.Popen(["sleep", "1000"], start_new_session=True)
first = start()
old = identify(first.pid)
handle = open_same(old)
first.kill()
first.wait()
while True:
    with open("/proc/sys/kernel/ns_last_pid", "w") as file:
        file.write(str(old.pid - 1))
    second = start()
    if second.pid == old.pid:
        break
    second.kill()
    second.wait()
new = identify(second.pid)
group = read_process(second.pid).group
assert (new.pid, group) == (old.pid, old.pid)
# The same PID within the same tick: only the inode tells them apart.
twin = replace(new, pidfd_inode=old.pidfd_inode)
print(
    open_same(old) is None or new.start_ticks == old.start_ticks,
    old.pidfd_inode is None or open_same(twin) is None,
    handle.signal(signal.SIGKILL),
    handle.signal_group(signal.SIGKILL),
    permitted(old),
    second.poll(),
)
second.kill()
second.wait()
"""


def test_a_reused_pid_gets_no_signal_meant_for_the_one_before(zoo: Zoo) -> None:
    unshare = shutil.which("unshare")
    if unshare is None or os.geteuid() != 0:
        pytest.skip("a pid namespace of our own needs root and unshare")
    namespace = [unshare, "--pid", "--fork", "--mount-proc", "--kill-child"]
    probe = subprocess.run(
        [*namespace, "test", "-w", "/proc/sys/kernel/ns_last_pid"], capture_output=True, check=False
    )
    if probe.returncode != 0:
        pytest.skip("no pid namespace with ns_last_pid on this machine")
    child = zoo.python(REUSE, prefix=namespace)
    assert zoo.output(child) == "True True False False True None"


async def test_waiting_ends_with_a_process_that_is_no_child(zoo: Zoo) -> None:
    parent = zoo.shell("sleep 1000 & echo $!; wait; exec sleep 1000")
    with held(int(zoo.line(parent))) as process, trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(process.wait)
            nursery.start_soon(process.wait)  # any number may
            await trio.testing.wait_all_tasks_blocked()
            process.signal(signal.SIGKILL)
        await process.wait()


async def test_a_wait_can_be_cancelled_and_outlives_the_close(zoo: Zoo) -> None:
    child = zoo.sleeper()
    process = held(child.pid)
    with trio.move_on_after(0) as scope:
        await process.wait()
    assert scope.cancelled_caught
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(process.wait)
            await trio.testing.wait_all_tasks_blocked()
            process.close()
            process.close()
            child.kill()


@pytest.mark.parametrize(
    ("script", "cause"),
    [
        ("exit 0", "exit code 0"),
        ("exit 7", "exit code 7"),
        ("kill -9 $$", "killed by SIGKILL"),
        ("kill -40 $$", "killed by signal 40"),
    ],
)
def test_the_end_of_a_child_is_told_to_every_handle(zoo: Zoo, script: str, cause: str) -> None:
    child = zoo.shell(f"read go; {script}")
    first, second = held(child.pid), held(child.pid)
    assert first.exit_cause() is None
    assert child.stdin is not None
    child.stdin.write("go\n")
    child.stdin.flush()
    until(lambda: first.ended, "the end of the child")
    assert (first.exit_cause(), second.exit_cause()) == (cause, cause)
    child.returncode = 0  # reaped by the handle
    assert identify(child.pid) is None
    first.close()
    second.close()


def test_closing_the_handle_of_a_dead_child_reaps_it(zoo: Zoo) -> None:
    child = zoo.sleeper()
    process = held(child.pid)
    as_zombie(child)
    process.close()
    child.returncode = 0
    assert read_process(child.pid) is None


def test_the_end_of_a_stranger_is_told_where_the_kernel_keeps_it(zoo: Zoo) -> None:
    parent = zoo.shell("sleep 1000 & echo $!; wait; echo reaped; exec sleep 1000")
    with held(int(zoo.line(parent))) as process:
        process.signal(signal.SIGTERM)
        assert zoo.line(parent) == "reaped"
        assert process.exit_cause() == ("killed by SIGTERM" if KERNEL >= (6, 15) else None)


def test_the_end_of_a_strangers_zombie_is_read_from_its_row(zoo: Zoo) -> None:
    parent = zoo.shell("sleep 1000 & echo $!; exec sleep 1000")
    with held(int(zoo.line(parent))) as process:
        process.signal(signal.SIGTERM)
        until(lambda: process.ended, "the end of the process")
        assert process.exit_cause() in ("killed by SIGTERM", None)
        if os.geteuid() == 0:
            assert process.exit_cause() == "killed by SIGTERM"


def test_a_dead_first_thread_does_not_end_a_process(zoo: Zoo) -> None:
    child = zoo.python(
        "import ctypes, threading\n"
        "def live():\n"
        "    print('up', flush=True)\n"
        "    threading.Event().wait()\n"
        "threading.Thread(target=live).start()\n"
        "ctypes.CDLL(None).syscall(60 if __import__('platform').machine() == 'x86_64' else 93, 0)\n"
    )
    assert zoo.line(child) == "up"
    until(lambda: (row := read_process(child.pid)) and row.state == "Z", "the end of the thread")
    with held(child.pid) as process:
        assert not process.ended
        assert process.signal(signal.SIGKILL)
        assert cause(process) == "killed by SIGKILL"
