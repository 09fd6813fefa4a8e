"""Commands that change the node: what is said where, and streams that nobody reads."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import select
import signal
import subprocess
import sys

import pytest

from tests.system.node import COMMAND, SystemNode, until

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")


def test_a_dry_run_prints_the_plan_and_changes_nothing(node: SystemNode) -> None:
    ran = node.ok("scene", "activate", "day", "--dry-run")
    lines = ran.out.splitlines()
    assert lines[0] == "plan: activate Scene 'day'"
    assert [line.split()[:2] for line in lines[2:4]] == [["start", "small"], ["start", "voice"]]
    assert ran.err == ""
    document = node.ok("scene", "activate", "day", "--dry-run", "--json").json
    assert (document["scene"], document["allowed"]) == ("day", True)
    assert [step["model"] for step in document["start"]] == ["small", "voice"]
    assert [path.name for path in node.root.iterdir()] == ["compute.yaml"]


def test_a_refused_dry_run_names_every_reason(node: SystemNode) -> None:
    for name in ("small", "voice"):
        node.stranger(port=node.models[name]["port"], marker=name)
    ran = node.run("scene", "activate", "day", "--dry-run", "--json")
    assert ran.exit == 3
    assert ran.json["allowed"] is False
    assert [(r["code"], r["model"]) for r in ran.json["refusals"]] == [
        ("port-conflict", "small"),
        ("port-conflict", "voice"),
    ]
    assert ran.err.count("error: ") == ran.err.count("hint: ") == 2


def test_the_result_is_on_stdout_and_all_else_on_stderr(node: SystemNode) -> None:
    ran = node.ok("scene", "activate", "day")
    pids = node.pids()
    ports = {name: node.models[name]["port"] for name in pids}
    assert ran.out == (
        f"now running: Scene 'day': small (pid {pids['small']}, port {ports['small']}), "
        f"voice (pid {pids['voice']}, port {ports['voice']})\n"
    )
    assert ran.err.startswith("plan: activate Scene 'day'\n")
    assert f"small: starting (pid {pids['small']})\n" in ran.err
    assert ran.err.endswith("Scene 'day' is active\n")
    quiet = node.ok("scene", "deactivate", "-q")
    assert (quiet.out, quiet.err) == ("now running: nothing\n", "")


def test_every_command_has_one_document(node: SystemNode) -> None:
    done = node.ok("scene", "activate", "day", "--json").json
    assert (done["ok"], done["exit"], done["scene"], done["active_scene"]) == (
        True,
        0,
        "day",
        "day",
    )
    assert {row["name"]: row["pid"] for row in done["models"] if row["pid"]} == node.pids()
    assert [row["in_active_scene"] for row in done["models"]] == [True, True, False]
    for words, code in (
        (["scene", "activate", "dya"], 2),
        (["scene", "forget", "small"], 3),
        (["scene", "adopt", "night"], 3),
        (["scene", "forget"], 2),
    ):
        ran = node.run(*words, "--json")
        assert (ran.exit, ran.json["exit"], ran.json["ok"]) == (code, code, False)
        assert ran.json["error"] or ran.json["refusals"]
        assert ran.json["scene"] == (words[2] if words[1] != "forget" else None)
    failed = node.run("scene", "activate", "dya", "--json").json
    assert failed["active_scene"] == "day"
    assert failed["hint"] == "did you mean 'day'?"
    assert node.ok("scene", "resume", "--json").json["active_scene"] == "day"
    assert node.ok("scene", "deactivate", "--json").json["active_scene"] is None


def test_a_failed_switch_says_what_runs_again(node: SystemNode) -> None:
    node.model("broken", "--die-on-start", "7", port=node.models["small"]["port"])
    node.scene("bad", "voice", "broken")
    node.write()
    node.ok("scene", "activate", "day")
    ran = node.run("scene", "activate", "bad")
    assert ran.exit == 1
    assert ran.out.startswith("now running: Scene 'day' (restored): ")
    assert "error: cannot start 'broken'" in ran.err
    assert "exit code 7" in ran.err
    assert "hint: " in ran.err
    history = node.ok("history", "--json").json["entries"]
    assert [(entry["scene"], entry["exit"]) for entry in history] == [("day", 0), ("bad", 1)]


def test_two_pids_for_one_model_are_bad_usage(node: SystemNode) -> None:
    ran = node.run("scene", "adopt", "day", "--pid", "small=5", "--pid", "small=6")
    assert ran.exit == 2
    assert "two processes" in ran.err


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-", ">/dev/full"])
def test_a_stream_that_is_closed_at_start_changes_nothing(node: SystemNode, closed: str) -> None:
    script = f'exec "$@" {closed}'
    line = ["sh", "-c", script, "sh", *COMMAND, "--root", str(node.root), "scene", "activate"]
    done = subprocess.run([*line, "day"], env=node.environment(), capture_output=True, check=False)
    assert done.returncode == 0, done
    assert b"Traceback" not in done.stderr
    assert node.status()["verdict"] == "exact"
    done = subprocess.run([*line, "dya"], env=node.environment(), capture_output=True, check=False)
    assert done.returncode == 2


def test_what_a_model_writes_reaches_its_log_alone_when_our_streams_are_closed(
    node: SystemNode,
) -> None:
    script = 'exec "$@" <&- >&- 2>&-'
    line = [
        "sh",
        "-c",
        script,
        "sh",
        *COMMAND,
        "--root",
        str(node.root),
        "scene",
        "activate",
        "day",
    ]
    subprocess.run(line, env=node.environment(), check=True)
    state = (node.root / ".kuda" / "state.yaml").read_text()
    assert node.state()["active_scene"] == "day"
    assert "listens on" not in state
    assert "now running" not in state
    assert "listens on" in node.ok("logs", "small").out


def test_a_pipe_that_nobody_reads_holds_up_no_transaction(node: SystemNode) -> None:
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETFL, os.O_NONBLOCK)
    with contextlib.suppress(BlockingIOError):
        while os.write(writing, b"x" * 4096):
            pass
    fcntl.fcntl(writing, fcntl.F_SETFL, 0)
    command = node.start("scene", "activate", "day", stderr=writing)
    os.close(writing)
    out, _ = command.communicate(timeout=60)
    os.close(reading)
    assert command.returncode == 0
    assert out.startswith(b"now running: Scene 'day'")


def on_a_terminal(node: SystemNode, *words: str) -> tuple[subprocess.Popen[bytes], int]:
    """The command with a terminal of its own, 100 columns wide, and our end of it."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, 0x5414, b"\x28\x00\x64\x00\x00\x00\x00\x00")  # TIOCSWINSZ
    command = subprocess.Popen(
        [*COMMAND, "--root", str(node.root), *words],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        env=node.environment({"TERM": "xterm"}),
    )
    os.close(theirs)
    return command, ours


def read_terminal(ours: int) -> str:
    """Everything until the other side is closed."""
    shown = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:
            break
        if not piece:
            break
        shown += piece
    os.close(ours)
    return shown.decode()


def test_a_terminal_shows_a_live_line_for_each_model(node: SystemNode) -> None:
    node.models["voice"]["command"] += ["--slow-start", "1"]
    node.write()
    node.ok("scene", "activate", "day")
    node.ok("scene", "deactivate")
    command, ours = on_a_terminal(node, "scene", "activate", "day")
    shown = read_terminal(ours)
    assert command.wait(timeout=60) == 0
    assert "plan: activate Scene 'day'" in shown
    assert " of about 1." in shown
    assert "  voice  exactly healthy after" in shown
    assert "memory: " in shown
    assert "now running: Scene 'day': small (pid " in shown.rstrip().splitlines()[-1]
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h"), "the cursor comes back"


def test_a_terminal_that_goes_away_does_not_cancel(node: SystemNode) -> None:
    node.models["voice"]["command"] += ["--slow-start", "1"]
    node.write()
    command, ours = on_a_terminal(node, "scene", "activate", "day")
    assert os.read(ours, 10)
    os.close(ours)
    assert command.wait(timeout=60) == 0
    assert node.status()["verdict"] == "exact"


def test_a_stopped_terminal_does_not_hold_up_the_switch(node: SystemNode) -> None:
    command, ours = on_a_terminal(node, "scene", "activate", "day")
    assert os.read(ours, 10)
    os.write(ours, b"\x13")  # Ctrl-S
    until(lambda: node.status()["verdict"] == "exact", "the Scene is active", 60)
    os.write(ours, b"\x11")  # Ctrl-Q
    read_terminal(ours)
    assert command.wait(timeout=60) == 0


def test_ctrl_c_on_the_terminal_says_what_happens_and_rolls_back(node: SystemNode) -> None:
    node.models["voice"]["command"] += ["--slow-start", "30"]
    node.write()
    command, ours = on_a_terminal(node, "scene", "activate", "day")
    shown = b""
    while b"voice  loading" not in shown:
        ready, _, _ = select.select([ours], [], [], 60)
        assert ready, shown
        shown += os.read(ours, 65536)
    command.send_signal(signal.SIGINT)
    rest = read_terminal(ours)
    assert command.wait(timeout=60) == 130
    assert "rolling back" in rest
    assert rest.rstrip().splitlines()[-1].endswith("now running: nothing")
    assert node.servers() == set()


def test_a_signal_that_was_ignored_at_start_stays_ignored(node: SystemNode) -> None:
    node.models["voice"]["command"] += ["--slow-start", "1"]
    node.write()
    script = 'trap "" INT; exec "$@"'
    line = [
        "sh",
        "-c",
        script,
        "sh",
        *COMMAND,
        "--root",
        str(node.root),
        "scene",
        "activate",
        "day",
    ]
    command = subprocess.Popen(line, env=node.environment(), stderr=subprocess.PIPE)
    assert command.stderr is not None
    while b"voice: starting" not in command.stderr.readline():
        pass
    command.send_signal(signal.SIGINT)
    command.communicate(timeout=60)
    assert command.returncode == 0


@ROOT_ONLY
def test_only_the_owner_of_the_root_may_change_the_node(node: SystemNode) -> None:
    os.chown(node.root, 65534, -1)
    ran = node.run("scene", "activate", "day")
    assert ran.exit == 3
    assert (
        f"hint: sudo -u nobody lumbridge-compute --root {node.root} scene activate day" in ran.err
    )
    assert node.run("scene", "activate", "day", "--json").json["exit"] == 3
    assert not (node.root / ".kuda").exists()
    assert node.ok("scene", "activate", "day", "--dry-run").out.startswith("plan: ")


@ROOT_ONLY
@pytest.mark.parametrize("name", [".", "compute.yaml"])
def test_root_runs_nothing_that_others_could_have_written(node: SystemNode, name: str) -> None:
    path = node.root / name
    path.chmod(0o777)
    ran = node.run("scene", "activate", "day")
    assert ran.exit == 3
    assert f"hint: chmod go-w {path.resolve()}" in ran.err
    assert "writable by others (mode 0777)" in ran.err
    checked = node.ok("check").out
    assert "writable by others" in checked


@ROOT_ONLY
def test_root_runs_no_registry_of_someone_else(node: SystemNode) -> None:
    os.chown(node.root / "compute.yaml", 65534, -1)
    ran = node.run("scene", "activate", "day")
    assert ran.exit == 3
    assert "belongs to nobody" in ran.err
    assert f"hint: chown root {node.root}/compute.yaml" in ran.err


@ROOT_ONLY
def test_root_runs_no_registry_in_a_folder_that_others_may_write_to(
    node: SystemNode, tmp_path_factory: pytest.TempPathFactory
) -> None:
    shared = tmp_path_factory.mktemp("shared")
    (node.root / "compute.yaml").rename(shared / "compute.yaml")
    (node.root / "compute.yaml").symlink_to(shared / "compute.yaml")
    assert node.ok("scene", "activate", "day", "--dry-run")
    shared.chmod(0o777)
    ran = node.run("scene", "activate", "day")
    assert ran.exit == 3
    assert f"hint: chmod go-w {shared}" in ran.err


_KILLED_WHILE_LOADING = """
import os, signal, sys
class AtImport:
    def find_spec(self, wanted, path, target=None):
        if wanted == "trio":
            os.kill(os.getpid(), getattr(signal, sys.argv[1]))
sys.meta_path.insert(0, AtImport())
from lumbridge_compute.cli.run import run
os._exit(run(["--root", sys.argv[2], "scene", "activate", "nothing", "--json"], os.environ))
"""


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 130), ("SIGINT", 130), ("SIGHUP", 2)])
def test_signals_count_before_the_transaction_is_loaded(
    node: SystemNode, name: str, code: int
) -> None:
    command = [sys.executable, "-c", _KILLED_WHILE_LOADING, name, str(node.root)]
    ran = subprocess.run(command, capture_output=True, env=node.environment(), check=False)
    assert ran.returncode == code, ran
    assert json.loads(ran.stdout)["exit"] == code


def test_a_second_command_is_busy_and_names_the_first(node: SystemNode) -> None:
    node.models["voice"]["command"] += ["--slow-start", "20"]
    node.write()
    first = node.start("scene", "activate", "day")
    assert first.stderr is not None
    while b"voice: starting" not in first.stderr.readline():
        pass
    ran = node.run("scene", "deactivate", "--json")
    assert (ran.exit, json.loads(ran.out)["exit"]) == (5, 5)
    assert f"pid {first.pid}" in ran.err
    assert "hint: " in ran.err
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=60)
