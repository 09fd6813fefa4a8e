from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumbridge_compute.core.identity import Process
from lumbridge_compute.host.pidfd import identify, open_same
from lumbridge_compute.host.procfs import (
    parse_cgroup_paths,
    parse_meminfo,
    parse_stat,
    read_ancestors,
    read_boot_id,
    read_carriers,
    read_cgroup,
    read_environment,
    read_memory,
    read_name,
    read_own_pids,
    read_process,
    read_processes,
    read_scope_members,
    read_uptime_s,
    ticks_to_seconds,
)
from tests.host.zoo import Zoo, until

STAT = "{pid} ({name}) {state} 1 2 3 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 {threads} 0 {ticks} 99 1"


@given(
    name=st.binary(max_size=15).filter(lambda name: b"\0" not in name),
    pid=st.integers(1, 1 << 22),
    ticks=st.integers(0, 1 << 62),
)
def test_a_name_of_any_bytes_does_not_shift_the_fields(name: bytes, pid: int, ticks: int) -> None:
    text = STAT.format(pid=pid, name="@", state="S", threads=7, ticks=ticks).encode()
    row = parse_stat(text.replace(b"@", name))
    assert row == Process(pid, 1, 2, 3, "S", ticks, 7)


@given(st.binary())
def test_what_is_no_stat_line_is_no_process(data: bytes) -> None:
    assert parse_stat(data) is None or b")" in data


def test_a_process_named_to_fool_a_parser_is_read_right(zoo: Zoo, tmp_path: Path) -> None:
    program = tmp_path / "a) S 1 (b"
    shutil.copy("/bin/sleep", program)
    child = zoo.start(str(program), "1000")
    until(lambda: read_name(child.pid) == "a) S 1 (b", "the exec")
    row = read_process(child.pid)
    assert row is not None
    assert (row.parent_pid, row.group, row.session) == (os.getpid(), child.pid, child.pid)
    assert row.alive


def test_the_table_holds_us_our_parent_and_a_zombie(zoo: Zoo) -> None:
    child = zoo.sleeper()
    child.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    table = read_processes()
    assert table[os.getpid()].parent_pid == os.getppid()
    assert table[os.getpid()].alive
    assert not table[child.pid].alive


def test_start_ticks_are_on_the_clock_of_uptime(zoo: Zoo) -> None:
    before = read_uptime_s()
    row = read_process(zoo.sleeper().pid)
    assert row is not None
    assert before - 0.02 <= ticks_to_seconds(row.start_ticks) <= read_uptime_s() + 0.02


def test_a_process_that_is_gone_has_no_row(zoo: Zoo) -> None:
    child = zoo.sleeper()
    child.kill()
    child.wait()
    assert read_process(child.pid) is None
    assert read_cgroup(child.pid) is None
    assert read_name(child.pid) is None


def test_the_boot_id_is_the_kernels() -> None:
    assert read_boot_id() == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def test_ancestors_lead_from_the_parent_to_the_first_process() -> None:
    ancestors = read_ancestors(os.getpid())
    assert os.getppid() in ancestors
    assert os.getpid() not in ancestors
    assert all(pid > 0 for pid in ancestors)


def test_own_pids_are_we_our_group_and_our_ancestors(zoo: Zoo) -> None:
    stranger = zoo.sleeper()
    own = read_own_pids()
    assert {os.getpid(), os.getppid(), os.getpgrp()} <= own
    assert stranger.pid not in own


def test_a_child_that_left_the_session_carries_the_token(zoo: Zoo) -> None:
    parent = zoo.shell("setsid sh -c 'echo $$; exec sleep 1000'")
    escaped = int(zoo.line(parent))
    row = read_process(escaped)
    assert row is not None
    assert row.session == escaped
    assert read_carriers({zoo.token}) == {zoo.token: {parent.pid, escaped}}


def test_a_token_is_matched_whole(zoo: Zoo) -> None:
    zoo.sleeper()
    near = {zoo.token[:-1], zoo.token + "0", ""}
    assert read_carriers(near) == dict.fromkeys(near, frozenset())


def test_a_token_under_another_name_proves_nothing(zoo: Zoo) -> None:
    child = zoo.start(
        "sleep",
        "1000",
        env={"LUMBRIDGE_COMPUTE_TOKEN": "x", "OLD_LUMBRIDGE_COMPUTE_TOKEN": zoo.token},
    )
    assert read_carriers({zoo.token}) == {zoo.token: frozenset()}
    child.kill()


def test_a_scope_is_a_whole_component_of_the_path(tmp_path: Path) -> None:
    scope = "lumbridge-compute-qwen-1.scope"
    lines = {
        10: f"0::/lumbridge.slice/lumbridge-compute.slice/{scope}\n",
        11: f"12:memory:/\n1:name=systemd:/x/{scope}/worker\n0::/\n",
        12: f"0::/x/{scope}0\n",
        13: f"0::/x/other-{scope}\n",
        14: "0::/\n",
    }
    for pid, text in lines.items():
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cgroup").write_text(text)
    (tmp_path / "15").mkdir()  # ended while it was read
    (tmp_path / "self").mkdir()
    found = read_scope_members({scope, "absent.scope"}, str(tmp_path))
    assert found == {scope: {10, 11}, "absent.scope": frozenset()}


def test_a_path_with_colons_stays_whole() -> None:
    assert parse_cgroup_paths("0::/a:b/c\nnonsense\n") == [["", "a:b", "c"]]


def test_memory_is_told_in_bytes() -> None:
    memory = read_memory()
    assert memory is not None
    assert 1 << 20 < memory.available_bytes <= memory.total_bytes
    assert memory.total_bytes == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@given(st.binary())
def test_meminfo_without_both_numbers_is_unknown(data: bytes) -> None:
    assert parse_meminfo(data) is None
    assert parse_meminfo(b"MemTotal: 5 kB\n" + data) is None
    assert parse_meminfo(b"MemTotal: 5 kB\nMemAvailable: x kB\n") is None


def test_a_proc_that_is_not_there_is_empty_not_an_error(tmp_path: Path) -> None:
    assert read_processes(str(tmp_path)) == {}
    assert read_memory(str(tmp_path)) is None
    assert read_process(1, str(tmp_path)) is None


CHAIN = """
import os, time
end = time.monotonic() + 120
while time.monotonic() < end:
    if os.fork():
        os._exit(0)
    time.sleep(0.001)
"""


def test_a_process_that_lives_by_forking_is_in_every_look(zoo: Zoo) -> None:
    """Each of its processes ends after a millisecond, and leaves a child."""
    leader = zoo.python(CHAIN)
    identity = identify(leader.pid)
    assert identity is not None
    chain = open_same(identity)
    assert chain is not None
    with chain:
        until(lambda: chain.ended, "the end of the first of the chain")
        looks = [read_processes() for _ in range(20)]
        carriers = [read_carriers({zoo.token})[zoo.token] for _ in range(20)]
        assert chain.signal_group(signal.SIGKILL)  # the kernel lets none of them fork past it
    for table in looks:
        assert any(row.alive and row.group == leader.pid for row in table.values())
    assert all(carriers)


def test_a_process_in_the_middle_of_an_exec_carries_its_token(zoo: Zoo) -> None:
    # A hundred thousand times, a minute or two: it ends also where nobody is left to end it.
    again = '[ "$1" -gt 0 ] && exec /bin/sh -c "$0" "$0" "$(($1 - 1))"'
    child = zoo.start("/bin/sh", "-c", again, again, "100000")
    looks = [read_carriers({zoo.token})[zoo.token] for _ in range(200)]
    assert set(looks) == {frozenset({child.pid})}


def test_an_exec_that_is_cut_off_while_the_kernel_counts_the_strings_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both ends of the environment are equal there, as of a process that has none."""

    def stat(startcode: int, env_end: int) -> str:
        fields = ["0"] * 50
        fields[0], fields[23], fields[47], fields[48] = "R", str(startcode), "4096", str(env_end)
        return f"7 (sh) {' '.join(fields)}"

    folder = tmp_path / "7"
    folder.mkdir()
    (folder / "stat").write_text(stat(0, 4096))
    (folder / "environ").write_bytes(b"")

    def goes_on() -> None:
        (folder / "stat").write_text(stat(8192, 5000))
        (folder / "environ").write_bytes(b"A=1\0")

    monkeypatch.setattr("os.sched_yield", goes_on)
    assert read_environment(7, str(tmp_path)) == b"A=1\0"


def test_a_process_without_an_environment_is_not_waited_for(zoo: Zoo) -> None:
    child = zoo.start("env", "-i", "sleep", "1000")
    until(lambda: read_name(child.pid) == "sleep", "the exec")
    looks = [read_environment(child.pid) for _ in range(100)]
    assert set(looks) == {b""}


def test_who_has_no_descriptor_left_is_blind_and_says_so() -> None:
    script = (
        "import resource\n"
        "from lumbridge_compute.host.procfs import read_file\n"
        "assert read_file('/proc/self/nothing') is None\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))\n"
        "try:\n"
        "    read_file('/proc/self/stat')\n"
        "except OSError as error:\n"
        "    print(error.strerror)\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert told.stdout == "Too many open files\n"
