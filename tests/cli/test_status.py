"""`status` of nodes in every condition."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.node import SystemNode


def write_state(node: SystemNode, text: str) -> Path:
    private = node.root / ".kuda"
    private.mkdir(mode=0o700, exist_ok=True)
    path = private / "state.yaml"
    path.write_text(text)
    return path


def test_a_fresh_node_is_idle_and_stays_untouched(node: SystemNode) -> None:
    ran = node.ok("status", "--check")
    assert ran.out.startswith("idle: nothing is active and nothing is desired\n")
    assert ran.err == ""
    assert [path.name for path in node.root.iterdir()] == ["compute.yaml"]


def test_an_active_scene_is_exact_with_pids_and_what_its_start_cost(node: SystemNode) -> None:
    node.ok("scene", "activate", "day")
    document = node.ok("status", "--check", "--json").json
    assert document["verdict"] == "exact"
    assert document["root"] == str(node.root)
    rows = {row["name"]: row for row in document["models"]}
    assert {name: rows[name]["pid"] for name in node.pids()} == node.pids()
    assert rows["small"]["health"] == rows["voice"]["health"] == "exact"
    assert rows["small"]["measured_load_s"] > 0
    assert (rows["large"]["ownership"], rows["large"]["pid"]) == ("none", None)
    ran = node.ok("status")
    assert ran.out.startswith("exact: Scene 'day' runs, every model exactly healthy\n")


def test_a_model_that_has_died_degrades_the_node(node: SystemNode) -> None:
    node.ok("scene", "activate", "day")
    os.kill(node.pids()["voice"], signal.SIGKILL)
    ran = node.run("status", "--check")
    assert ran.exit == 4
    assert ran.out.startswith(
        "degraded: Scene 'day' is recorded as active but 'voice' is gone\n"
        "hint: lumbridge-compute scene resume\n"
    )
    assert node.ok("status", "--json").json["verdict"] == "degraded"


@pytest.mark.parametrize(
    "text", ["", "\0" * 64, "version: 1\nprocesses: {", "version: 99\n", "[]", "version: 1\n"]
)
def test_a_damaged_state_is_unknown_and_the_world_is_shown(node: SystemNode, text: str) -> None:
    port = node.models["voice"]["port"]
    stranger = node.stranger(port=port, marker="voice")
    path = write_state(node, text)
    ran = node.run("status")
    assert ran.exit == 2
    assert ran.out.startswith("unknown: ")
    assert "hint: " in ran.out
    assert f"pid {stranger.pid}" in ran.out
    document = node.run("status", "--json")
    assert document.exit == 2
    assert document.json["verdict"] == "unknown"
    assert document.json["problems"]
    assert path.read_text() == text


def test_a_state_that_is_a_folder_is_unknown(node: SystemNode) -> None:
    (node.root / ".kuda" / "state.yaml").mkdir(parents=True)
    ran = node.run("status")
    assert (ran.exit, ran.out.split(":")[0]) == (2, "unknown")


def test_a_damaged_registry_is_told_and_what_is_recorded_is_shown(node: SystemNode) -> None:
    node.ok("scene", "activate", "day")
    (node.root / "compute.yaml").write_text("version: 1\nmodells: {}\n")
    ran = node.run("status")
    assert ran.exit == 2
    assert ran.out.startswith("unknown: cannot use ")
    assert "did you mean 'models'" in ran.out
    document = node.run("status", "--json").json
    assert document["state"]["active_scene"] == "day"
    rows = {row["name"]: (row["ownership"], row["health"]) for row in document["models"]}
    assert rows == {"small": ("owned", "exact"), "voice": ("owned", "exact")}


def test_a_missing_registry_is_told(node: SystemNode) -> None:
    (node.root / "compute.yaml").unlink()
    ran = node.run("status")
    assert ran.exit == 2
    assert "compute.yaml" in ran.out.splitlines()[0]
    assert "Traceback" not in ran.out


def test_both_damaged_are_both_told(node: SystemNode) -> None:
    (node.root / "compute.yaml").write_text("{")
    write_state(node, "")
    ran = node.run("status")
    assert ran.exit == 2
    assert ran.out.startswith("unknown: cannot read the state")
    assert "problem: cannot use" in ran.out


def test_a_legacy_state_is_shown_with_the_way_to_bind_it(node: SystemNode) -> None:
    stranger = node.stranger(port=node.models["voice"]["port"], marker="voice")
    write_state(node, f"active_scene: day\nprocesses: {{voice: {stranger.pid}}}\n")
    ran = node.ok("status")
    assert ran.out.startswith("degraded: ")
    assert "scene adopt" in ran.out
    rows = {row["name"]: row for row in node.status()["models"]}
    assert (rows["voice"]["ownership"], rows["voice"]["pid"]) == ("legacy", stranger.pid)
    assert rows["voice"]["health"] == "exact"


def test_a_hand_started_scene_is_seen_and_its_adoption_suggested(node: SystemNode) -> None:
    for name in ("small", "voice"):
        node.stranger(port=node.models[name]["port"], marker=name)
    ran = node.ok("status")
    assert ran.out.startswith("idle: ")
    assert "scene adopt day" in ran.out.splitlines()[1]


def test_an_interrupted_transition_that_nobody_goes_on_with_is_degraded(node: SystemNode) -> None:
    node.ok("scene", "activate", "day")
    path = node.root / ".kuda" / "state.yaml"
    text = path.read_text().replace("transition_scene: null", 'transition_scene: "night"')
    path.write_text(text)
    ran = node.run("status", "--check")
    assert ran.exit == 4
    assert "the switch to Scene 'night' was interrupted" in ran.out.splitlines()[0]


def test_a_running_transaction_is_a_transition_with_its_holder(node: SystemNode) -> None:
    node.models["voice"]["command"] += ["--slow-start", "20"]
    node.write()
    command = node.start("scene", "activate", "day")
    assert command.stderr is not None
    while b"voice: starting" not in command.stderr.readline():
        pass
    ran = node.ok("status")
    first = ran.out.splitlines()[0]
    assert first.startswith(f"transition: pid {command.pid} ")
    assert "switching to Scene 'day'" in first
    assert node.status()["verdict"] == "transition"
    command.send_signal(signal.SIGINT)
    command.communicate(timeout=60)
    assert command.returncode == 130


def test_the_watch_tells_changes_alone_and_ends_with_its_reader(node: SystemNode) -> None:
    watch = node.start("status", "--watch")
    assert watch.stdout is not None
    assert watch.stdout.readline().startswith(b"idle: ")
    node.ok("scene", "activate", "day")
    seen = [watch.stdout.readline()]
    while not seen[-1].startswith(b"exact: "):
        assert seen[-1], "the watch has ended"
        seen.append(watch.stdout.readline())
    watch.stdout.close()
    assert watch.wait(timeout=30) == 0
    assert watch.stderr is not None
    assert watch.stderr.read() == b""
    watch.stderr.close()


def test_ctrl_c_is_how_one_leaves_a_watch(node: SystemNode) -> None:
    watch = node.start("status", "--watch")
    assert watch.stdout is not None
    assert watch.stdout.readline().startswith(b"idle: ")
    watch.send_signal(signal.SIGINT)
    _, err = watch.communicate(timeout=30)
    assert (watch.returncode, err) == (0, b"")


def loaded_by(code: str) -> set[str]:
    """The modules that an interpreter has loaded after `code`."""
    code = f"import sys\n{code}\nprint(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def test_a_status_of_an_idle_node_loads_nothing_that_it_does_not_need(node: SystemNode) -> None:
    loaded = loaded_by(
        "from lumbridge_compute.__main__ import main\n"
        f"sys.argv[1:] = ['--root', {str(node.root)!r}, 'status']\n"
        "assert main() == 0"
    )
    # What the interpreter's own start loads, by its site packages, is not ours.
    loaded -= loaded_by("")
    unneeded = {
        *("trio", "httpx", "h11", "anyio", "rich", "psutil", "asyncio", "ssl", "inspect"),
        *("dataclasses", "subprocess", "logging", "difflib", "hashlib", "shutil", "tempfile"),
        *("threading", "concurrent.futures", "urllib.parse", "email", "importlib.metadata"),
    }
    assert loaded & unneeded == set()
    planners = {"plan_scene", "plan_adopt", "report_plan", "report_outcome", "digest"}
    assert {f"lumbridge_compute.core.{name}" for name in planners} & loaded == set()


def test_the_document_is_one_also_when_there_is_no_node(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lumbridge_compute", "status", "--json"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    document = json.loads(done.stdout)
    for way in ("--root", "LUMBRIDGE_COMPUTE_ROOT", "current folder"):
        assert way in document["error"]
        assert way in done.stderr


def test_nothing_is_waited_for_when_the_reader_of_a_watch_is_gone_at_once(
    node: SystemNode,
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    watch = node.start("status", "--watch", stdout=writing)
    os.close(writing)
    assert watch.wait(timeout=30) == 0
    watch.communicate()


def test_a_pipe_in_place_of_a_lock_is_not_waited_for(node: SystemNode) -> None:
    private = node.root / ".kuda"
    private.mkdir(mode=0o700)
    for name in ("lock", "agent.lock", "history.jsonl"):
        os.mkfifo(private / name)
    assert node.ok("status").out.startswith("idle: ")
