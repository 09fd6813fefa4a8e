"""The commands that only read: check, schema, scene list and show, logs, history, verify."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from lumbridge_compute.cli.streams import Stream
from tests.system.node import COMMAND, SystemNode, free_port


def test_check_is_content_with_a_right_registry(node: SystemNode) -> None:
    ran = node.ok("check")
    assert ran.out == f"{node.root}/compute.yaml: no faults (3 models, 2 Scenes)\n"
    assert node.ok("check", "--json").json == {
        "ok": True,
        "exit": 0,
        "file": f"{node.root}/compute.yaml",
        "faults": [],
        "warnings": [],
    }


def test_check_lists_every_fault_with_its_place(node: SystemNode) -> None:
    (node.root / "compute.yaml").write_text(
        "version: 1\nmodels:\n  a: {command: [x], port: 99999}\nscenes:\n  s: {models: [b]}\n"
    )
    ran = node.run("check")
    assert ran.exit == 2
    lines = ran.out.splitlines()
    assert lines[0].startswith(f"{node.root}/compute.yaml:3:")
    assert "models.a.port" in lines[0]
    assert lines[1].startswith(f"{node.root}/compute.yaml:5:")
    assert lines[-1].endswith("2 faults")
    document = node.run("check", "--json").json
    assert [fault["line"] for fault in document["faults"]] == [3, 5]


def test_check_warns_of_what_would_fail_later(node: SystemNode) -> None:
    node.models["small"]["command"] = ["/no/such/program"]
    node.models["voice"]["env"] = {"KEY": "${env:LUMBRIDGE_TEST_UNSET}"}
    node.models["large"]["memory"] = "90000GiB"
    node.settings["memory_floor"] = "80000GiB"
    node.write()
    ran = node.ok("check")
    for text in ("/no/such/program", "LUMBRIDGE_TEST_UNSET", "the memory floor of", "needs 9"):
        assert text in ran.out
    assert "4 warnings" in ran.out.splitlines()[-1]


@pytest.mark.parametrize("kind", ["missing", "folder", "dangling"])
def test_check_says_why_there_is_nothing_to_check(node: SystemNode, kind: str) -> None:
    path = node.root / "compute.yaml"
    path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind == "dangling":
        path.symlink_to("nowhere")
    ran = node.run("check")
    assert (ran.exit, ran.out) == (2, "")
    assert "error: cannot read" in ran.err


def test_the_schema_needs_no_node(node: SystemNode, tmp_path: Path) -> None:
    schema = node.ok("schema", cwd=tmp_path).json
    assert schema["$schema"].startswith("https://json-schema.org/")


def test_scenes_are_listed_with_what_the_state_says_of_them(node: SystemNode) -> None:
    node.ok("scene", "activate", "night")
    lines = node.ok("scene", "list").out.splitlines()
    assert [line.split()[0] for line in lines] == ["SCENE", "day", "night"]
    assert "active, desired" in lines[2]
    scenes = node.ok("scene", "list", "--json").json["scenes"]
    assert [(s["name"], s["active"], s["models"]) for s in scenes] == [
        ("day", False, ["small", "voice"]),
        ("night", True, ["large", "voice"]),
    ]


def test_a_scene_is_shown_with_its_models_in_start_order(node: SystemNode) -> None:
    ran = node.ok("scene", "show", "day")
    assert ran.out.startswith("Scene 'day'\n")
    shown = node.ok("scene", "show", "day", "--json").json
    assert [model["name"] for model in shown["models"]] == ["small", "voice"]
    assert "${port}" in shown["models"][0]["command"], "placeholders stay as they were written"
    missing = node.run("scene", "show", "dya")
    assert missing.exit == 2
    assert "hint: did you mean 'day'?" in missing.err


def test_scenes_are_listed_also_beside_a_damaged_state(node: SystemNode) -> None:
    (node.root / ".kuda").mkdir()
    (node.root / ".kuda" / "state.yaml").write_text("")
    ran = node.ok("scene", "list")
    assert "day" in ran.out
    assert ran.err.startswith("warning: cannot read the state")


def write_log(node: SystemNode, name: str, text: str) -> Path:
    folder = node.root / ".kuda" / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.log"
    path.write_text(text)
    return path


def test_the_newest_lines_of_a_log_are_shown(node: SystemNode) -> None:
    write_log(node, "small", "".join(f"line {i}\n" for i in range(300)))
    assert node.ok("logs", "small").out.splitlines()[0] == "line 200"
    assert node.ok("logs", "small", "-n", "2").out == "line 298\nline 299\n"
    assert node.ok("logs", "small", "-n", "0").out == ""
    assert node.ok("logs", "small", "-n1", "--json").json == {
        "model": "small",
        "lines": ["line 299"],
    }


def test_a_log_is_shown_of_a_model_that_only_has_one(node: SystemNode) -> None:
    write_log(node, "old", "still here\n")
    (node.root / "compute.yaml").write_text("{")
    assert node.ok("logs", "old").out == "still here\n"


def test_a_model_without_output_is_no_failure_and_an_unknown_one_is(node: SystemNode) -> None:
    ran = node.ok("logs", "voice")
    assert (ran.out, ran.err) == ("", "'voice' has no output: it was not started here\n")
    for name in ("voce", "../state", "/etc/passwd", ".", ""):
        ran = node.run("logs", name)
        assert (ran.exit, ran.out) == (2, ""), name
    assert "did you mean 'voice'?" in node.run("logs", "voce").err


def lines_of(process: subprocess.Popen[bytes]) -> Iterator[str]:
    assert process.stdout is not None
    while True:
        ready, _, _ = select.select([process.stdout], [], [], 30)
        assert ready, "no line within 30 s"
        line = process.stdout.readline()
        if not line:
            return
        yield line.decode().rstrip("\n")


def test_a_followed_log_goes_on_over_truncation_and_replacement(node: SystemNode) -> None:
    path = write_log(node, "small", "one\ntwo\n")
    follow = node.start("logs", "small", "-f", "-n", "1")
    lines = lines_of(follow)
    assert next(lines) == "two"
    with path.open("a") as log:
        log.write("three\nfo")
    assert next(lines) == "three"
    with path.open("a") as log:
        log.write("ur\n")
    assert next(lines) == "four"
    path.write_text("five\n")
    assert next(lines) == "five"
    path.unlink()
    path.write_text("a longer line than all that was there before\n")
    assert next(lines) == "a longer line than all that was there before"
    follow.send_signal(signal.SIGINT)
    _, err = follow.communicate(timeout=30)
    assert (follow.returncode, err) == (0, b"")


def test_a_log_that_is_not_there_yet_can_be_followed(node: SystemNode) -> None:
    follow = node.start("logs", "small", "-f")
    assert follow.stderr is not None
    assert b"no output" in follow.stderr.readline()
    write_log(node, "small", "now\n")
    assert next(lines_of(follow)) == "now"
    assert follow.stdout is not None
    follow.stdout.close()
    assert follow.wait(timeout=30) == 0
    follow.stderr.close()


def test_following_an_idle_log_takes_no_cpu_time(node: SystemNode) -> None:
    write_log(node, "small", "one\n")
    follow = node.start("logs", "small", "-f")
    assert next(lines_of(follow)) == "one"

    def ticks() -> int:
        fields = Path(f"/proc/{follow.pid}/stat").read_text().rsplit(") ", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    before = ticks()
    select.select([], [], [], 1.0)
    assert ticks() - before <= 10, "of 100 in this second"
    follow.send_signal(signal.SIGINT)
    follow.communicate(timeout=30)


def test_history_is_a_table_with_the_errors_below(node: SystemNode) -> None:
    assert node.ok("history").out == "nothing has been recorded yet\n"
    assert node.ok("history", "--json").json == {"entries": []}
    node.models["small"]["command"] += ["--die-on-start", "3"]
    node.write()
    node.run("scene", "activate", "day")
    node.ok("scene", "activate", "night")
    lines = node.ok("history").out.splitlines()
    assert lines[0].split()[:4] == ["TIME", "COMMAND", "SCENE", "OUTCOME"]
    assert lines[1].split()[1:3] == ["activate", "day"]
    assert "exit code 3" in lines[2]
    assert lines[3].split()[1:4] == ["activate", "night", "committed"]
    (newest,) = node.ok("history", "-n", "1", "--json").json["entries"]
    assert (newest["scene"], newest["exit"]) == ("night", 0)
    assert newest["models"]["large"]["load_s"] > 0


@contextmanager
def relay(upstream: int) -> Iterator[int]:
    """A TCP relay in front of a port, as a gateway is; answers with its own port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]

        def serve() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                with client, socket.create_connection(("127.0.0.1", upstream)) as behind:
                    _pump(client, behind)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield port
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def _pump(client: socket.socket, behind: socket.socket) -> None:
    while True:
        ready, _, _ = select.select([client, behind], [], [], 30)
        for one in ready:
            data = one.recv(65536)
            if not data:
                return
            (behind if one is client else client).sendall(data)


def test_verify_compares_a_gateway_with_the_model_behind_it(node: SystemNode) -> None:
    node.ok("scene", "activate", "day")
    port, voice = node.models["small"]["port"], node.models["voice"]["port"]
    with relay(port) as gateway:
        node.settings["gateways"] = [
            {"listen": f"127.0.0.1:{gateway}", "upstream": f"127.0.0.1:{port}"}
        ]
        node.write()
        ran = node.ok("verify")
        assert ran.out == f"127.0.0.1:{gateway}: equal; gateway: 'small'; small: 'small'\n"
        document = node.ok("verify", "--json").json
        assert document["gateways"][0]["gateway"] == document["gateways"][0]["backend"] == ["small"]
        assert {model["pid"] for model in document["models"]} == set(node.pids().values())
    with relay(voice) as gateway:
        node.settings["gateways"] = [
            {"listen": f"127.0.0.1:{gateway}", "upstream": f"127.0.0.1:{port}"}
        ]
        node.write()
        ran = node.run("verify")
        assert ran.exit == 4
        assert "NOT equal; gateway: 'voice'; small: 'small'" in ran.out
        undeclared = f"127.0.0.1:{voice}"
        assert node.ok("verify", "--gateway", undeclared).out.startswith(f"{undeclared}: equal")


def test_verify_fails_where_nobody_answers_or_nothing_of_ours_runs(node: SystemNode) -> None:
    assert node.run("verify").exit == 2
    address = f"127.0.0.1:{free_port()}"
    ran = node.run("verify", "--gateway", address, "--json")
    assert ran.exit == 4
    assert ran.json["gateways"][0]["detail"]
    node.ok("scene", "activate", "day")
    ran = node.run("verify", "--gateway", address)
    assert (ran.exit, "NOT equal; gateway: no answer" in ran.out) == (4, True)


@pytest.mark.parametrize("text", ["8011", "host:", ":8011", "127.0.0.1:0", "127.0.0.1:65536", "x"])
def test_verify_wants_an_address(node: SystemNode, text: str) -> None:
    ran = node.run("verify", "--gateway", text)
    assert ran.exit == 2
    assert "hint: " in ran.err


@pytest.mark.parametrize(
    "env",
    [
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"LC_ALL": "POSIX", "PYTHONIOENCODING": "ascii"},
        {"HOME": "", "LANG": "xx_YY.nonsense"},
        {"COLUMNS": "-5", "TERM": "nonsense"},
    ],
)
def test_no_environment_breaks_the_output(node: SystemNode, env: dict[str, str]) -> None:
    document = yaml.safe_load((node.root / "compute.yaml").read_text())
    document["scenes"]["day"]["description"] = "gr\u00fcn \u4e2d\u6587"
    (node.root / "compute.yaml").write_text(yaml.safe_dump(document, allow_unicode=True))
    for words in (["status"], ["scene", "list"], ["scene", "show", "day"], ["--help"]):
        node.ok(*words, env=env)
    assert node.ok("scene", "list", "--json", env=env).json["scenes"][0]["description"]
    assert node.run("scene", "show", "\udcff\u00fc", env=env).exit == 2


def test_a_home_and_an_environment_are_not_needed(node: SystemNode) -> None:
    done = subprocess.run(
        [*COMMAND, "--root", str(node.root), "status"],
        env={"PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_root_comes_from_the_environment_or_the_current_folder(
    node: SystemNode, tmp_path: Path
) -> None:
    env = {**node.environment(), "PYTHONPATH": str(Path(__file__).parents[2])}
    line = [*COMMAND, "status", "--json"]
    by_variable = subprocess.run(
        line,
        env={**env, "LUMBRIDGE_COMPUTE_ROOT": str(node.root)},
        cwd="/",
        capture_output=True,
        check=True,
    )
    by_folder = subprocess.run(line, env=env, cwd=node.root, capture_output=True, check=True)
    for done in (by_variable, by_folder):
        assert json.loads(done.stdout)["root"] == str(node.root)


def test_a_root_that_is_none_is_named(node: SystemNode, tmp_path: Path) -> None:
    for root, said in ((tmp_path / "none", "no such folder"), ("/dev/null", "not a folder")):
        ran = node.run("--root", str(root), "status")
        assert ran.exit == 2
        assert said in ran.err


def test_a_current_folder_that_was_deleted_is_no_traceback(
    node: SystemNode, tmp_path: Path
) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    script = 'rmdir "$1"; shift; exec "$@"'
    env = {**node.environment(), "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        ["sh", "-c", script, "sh", str(folder), *COMMAND, "status"],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "error: cannot find the node's root" in done.stderr
    assert "Traceback" not in done.stderr


def test_output_that_can_not_be_written_is_a_failure_of_a_reading_command(
    node: SystemNode,
) -> None:
    with Path("/dev/full").open("wb") as full:
        ran = node.run("status", stdout=full)
    assert (ran.exit, ran.err) == (1, "error: cannot write the result: No space left on device\n")


def test_a_reader_that_has_enough_is_no_failure(node: SystemNode) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    ran = node.run("status", stdout=writing)
    os.close(writing)
    assert (ran.exit, ran.err) == (0, "")


def test_a_stream_that_was_made_non_blocking_gets_every_byte() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    received: list[bytes] = []

    def read() -> None:
        while piece := os.read(reading, 65536):
            received.append(piece)

    thread = threading.Thread(target=read)
    thread.start()
    Stream(writing).write_bytes(b"x" * 1_000_000)
    os.close(writing)
    thread.join()
    os.close(reading)
    assert sum(map(len, received)) == 1_000_000
