from __future__ import annotations

import os
import select
import signal
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from lumbridge_compute.host.pidfd import identify
from lumbridge_compute.host.procfs import read_carriers, read_process
from lumbridge_compute.host.spawn import (
    OOM_SCORE_ADJ,
    Gate,
    raise_oom_score,
    start,
    start_gated,
    wait_ended,
)
from tests.host.zoo import Zoo, until

WAIT_MS = 30_000


def gated(zoo: Zoo, log: int, argv: Sequence[str], env: Mapping[str, str] | None = None) -> Gate:
    return start_gated("qwen", argv, str(zoo.folder), zoo.env if env is None else env, log)


def running(zoo: Zoo, log: int, env: Mapping[str, str] | None = None) -> Gate:
    """A model past its gate and past its exec."""
    gate = gated(zoo, log, ["sleep", "1000"], env)
    gate.release()
    comm = Path(f"/proc/{gate.handle.identity.pid}/comm")
    until(lambda: comm.read_text() == "sleep\n", "the exec")
    return gate


def test_nothing_runs_before_the_go_ahead(zoo: Zoo, log: int, tmp_path: Path) -> None:
    gate = gated(zoo, log, ["/bin/sh", "-c", f"touch {tmp_path}/ran"])
    row = read_process(gate.handle.identity.pid)
    assert row is not None
    assert row.alive
    gate.abandon()
    assert not (tmp_path / "ran").exists()
    assert identify(row.pid) is None
    gate.abandon()  # harmless


def test_the_child_becomes_the_model_and_keeps_its_identity(zoo: Zoo, log: int) -> None:
    gate = running(zoo, log)
    identity = gate.handle.identity
    assert identify(identity.pid) == identity
    gate.abandon()  # too late: does nothing
    assert not gate.handle.ended


def test_a_model_leads_a_session_and_a_group(zoo: Zoo, log: int) -> None:
    row = read_process(running(zoo, log).handle.identity.pid)
    assert row is not None
    assert row.pid == row.group == row.session


def test_a_model_has_three_descriptors_and_none_of_ours(zoo: Zoo, log: int, tmp_path: Path) -> None:
    with socket.socket() as ours, open(tmp_path / "other", "w") as file:
        for each in (ours, file):
            os.set_inheritable(each.fileno(), True)  # noqa: FBT003 - the library signature
        folder = f"/proc/{running(zoo, log).handle.identity.pid}/fd"
    targets = {name: os.readlink(f"{folder}/{name}") for name in os.listdir(folder)}
    assert targets == {"0": "/dev/null", "1": f"{tmp_path}/log", "2": f"{tmp_path}/log"}


def test_a_model_has_exactly_its_environment(zoo: Zoo, log: int) -> None:
    environment = {**zoo.env, "EMPTY": "", "ODD": "a b\nc=$x'", "UNICODE": "é"}
    pid = running(zoo, log, environment).handle.identity.pid
    entries = Path(f"/proc/{pid}/environ").read_bytes().decode().removesuffix("\0").split("\0")
    found = dict(entry.split("=", 1) for entry in entries)
    found.pop("_", None)  # some shells tell every program where it lies
    assert found == environment


def test_arguments_pass_without_a_shell_reading_them(zoo: Zoo, log: int, tmp_path: Path) -> None:
    odd = ["$HOME", "`id`", "a b", "", "*", "-n", "'\"", "é\n"]
    gate = gated(zoo, log, ["printf", "<%s>", *odd])
    gate.release()
    assert wait_ended(gate.handle, WAIT_MS)
    gate.handle.close()
    assert (tmp_path / "log").read_text() == "".join(f"<{each}>" for each in odd)


def test_output_of_both_kinds_is_appended_to_the_log(zoo: Zoo, log: int, tmp_path: Path) -> None:
    os.write(log, b"before\n")
    gate = gated(zoo, log, ["/bin/sh", "-c", "echo out; echo err >&2; pwd"])
    gate.release()
    assert wait_ended(gate.handle, WAIT_MS)
    gate.handle.close()
    assert (tmp_path / "log").read_text() == f"before\nout\nerr\n{zoo.folder}\n"


def test_a_missing_program_is_told_in_the_log(zoo: Zoo, log: int, tmp_path: Path) -> None:
    gate = gated(zoo, log, ["no-such-program"])
    gate.release()
    assert wait_ended(gate.handle, WAIT_MS)
    assert gate.handle.exit_cause() == "exit code 127"
    gate.handle.close()
    text = (tmp_path / "log").read_text()
    assert text.startswith("qwen: ")
    assert "no-such-program" in text


def test_a_missing_folder_leaves_nothing_behind(zoo: Zoo, log: int) -> None:
    before = os.listdir("/proc/self/fd")
    with pytest.raises(FileNotFoundError):
        start_gated("qwen", ["true"], "/no/such/folder", zoo.env, log)
    assert os.listdir("/proc/self/fd") == before
    assert read_carriers({zoo.token}) == {zoo.token: frozenset()}


def test_a_go_ahead_to_a_dead_child_is_an_error(zoo: Zoo, log: int) -> None:
    gate = gated(zoo, log, ["sleep", "1000"])
    gate.handle.signal(signal.SIGKILL)
    assert wait_ended(gate.handle, WAIT_MS)
    with pytest.raises(BrokenPipeError):
        gate.release()
    assert gate.handle.exit_cause() == "killed by SIGKILL"
    gate.handle.close()


def test_a_word_other_than_go_starts_nothing(zoo: Zoo, log: int, tmp_path: Path) -> None:
    gate = gated(zoo, log, ["touch", str(tmp_path / "ran")])
    os.write(gate._gate, b"g\n")
    assert wait_ended(gate.handle, WAIT_MS)
    gate.abandon()
    assert not (tmp_path / "ran").exists()


def test_the_kernel_ends_a_model_before_us(zoo: Zoo, log: int) -> None:
    pid = gated(zoo, log, ["sleep", "1000"]).handle.identity.pid
    path = Path(f"/proc/{pid}/oom_score_adj")
    own = int(Path("/proc/self/oom_score_adj").read_text())
    assert int(path.read_text()) == max(own, OOM_SCORE_ADJ)


def test_a_higher_oom_score_stays(zoo: Zoo) -> None:
    pid = zoo.sleeper().pid
    path = Path(f"/proc/{pid}/oom_score_adj")
    path.write_text("700")
    raise_oom_score(pid)
    assert path.read_text() == "700\n"


def test_a_start_without_a_gate_runs_at_once(zoo: Zoo, log: int, tmp_path: Path) -> None:
    with open(os.devnull) as nothing:
        handle = start(
            ["/bin/sh", "-c", "echo up"], str(zoo.folder), zoo.env, nothing.fileno(), log
        )
    assert wait_ended(handle, WAIT_MS)
    assert handle.exit_cause() == "exit code 0"
    handle.close()
    assert (tmp_path / "log").read_text() == "up\n"


SIGNALS = """
import os, signal, sys
from lumbridge_compute.host.spawn import normalise_signals, start_gated
for number in signal.valid_signals():
    if number not in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTTIN, signal.SIGTTOU):
        signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR2})
if sys.argv[1] == "normalise":
    normalise_signals()
gate = start_gated("qwen", ["true"], "/", dict(os.environ), 1)
with open(f"/proc/{gate.handle.identity.pid}/status") as file:
    status = dict(line.split(":", 1) for line in file)
print(int(status["SigIgn"], 16) == 0, int(status["SigBlk"], 16) == 0)
for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGPIPE):
    os.kill(os.getpid(), number)
gate.abandon()
"""


def test_a_model_starts_with_default_signals(zoo: Zoo) -> None:
    child = zoo.python(SIGNALS, "normalise")
    assert zoo.output(child) == "True True"


def test_without_that_a_model_would_ignore_what_we_ignore(zoo: Zoo) -> None:
    child = zoo.python(SIGNALS, "leave")
    assert zoo.line(child) == "False False"


STARTER = """
import os, sys
from lumbridge_compute.host.spawn import start_gated
log, records, release = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] != "hold"
print("up", flush=True)
while sys.stdin.readline():
    starter = os.fork()
    if starter == 0:
        while True:
            gate = start_gated(
                "qwen", ["/bin/sh", "-c", "echo $$; exec sleep 1000"], "/", dict(os.environ), log
            )
            if release:
                os.write(records, f"{gate.handle.identity.pid}\\n".encode())
                gate.release()
    print(starter, flush=True)
    os.waitpid(starter, 0)
    print("dead", flush=True)
"""


@pytest.mark.parametrize("what", ["hold", "record and release"])
def test_a_starter_killed_at_any_moment_leaves_no_unrecorded_model(
    zoo: Zoo, tmp_path: Path, what: str
) -> None:
    """`ran` gets the pid of each model that ran, `records` that of each that was allowed to."""
    with open(tmp_path / "ran", "ab") as ran, open(tmp_path / "records", "ab") as records:
        descriptors = ran.fileno(), records.fileno()
        for each in descriptors:
            os.set_inheritable(each, True)  # noqa: FBT003 - the library signature
        helper = zoo.python(STARTER, *map(str, descriptors), what, close_fds=False)
    assert helper.stdin is not None
    assert zoo.line(helper) == "up"
    for moment in range(20):
        helper.stdin.write("start\n")
        helper.stdin.flush()
        starter = int(zoo.line(helper))
        # A sample of moments within the first starts, not a wait for anything.
        select.select([], [], [], int.from_bytes(os.urandom(1)) / 255 * 0.03 * (moment % 4))
        os.kill(starter, signal.SIGKILL)
        assert zoo.line(helper) == "dead"
    recorded = set((tmp_path / "records").read_text().split())
    allowed = {int(pid) for pid in recorded}

    def unrecorded() -> frozenset[int]:
        return read_carriers({zoo.token})[zoo.token] - {helper.pid} - allowed

    until(lambda: not unrecorded(), "the end of every child at a gate")
    assert set((tmp_path / "ran").read_text().split()) <= recorded
    if what == "hold":
        assert recorded == set()
