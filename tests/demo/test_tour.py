"""The guided tour, for real: what it shows, and that nothing is left of it however it ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.system.node import COMMAND, SystemNode

BOUND_S = 180


class Demo:
    """One run of the command in a bare environment, with a folder of its own for temporary files;
    all that it starts carries the mark of `node`."""

    def __init__(self, folder: Path) -> None:
        self.node = SystemNode(folder)
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, stdout: int = subprocess.PIPE) -> subprocess.Popen[bytes]:
        marks = {k: v for k, v in self.node.environment().items() if k.startswith("LUMBRIDGE")}
        process = subprocess.Popen(
            [*COMMAND, "demo"],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
            env={**marks, "LC_ALL": "C", "TMPDIR": str(self.node.root)},
        )
        self._running.append(process)
        return process

    def left(self) -> tuple[set[int], list[str]]:
        """Processes and files of the demo that are still there."""
        return self.node.processes() | self._inside(), os.listdir(self.node.root)

    def _inside(self) -> set[int]:
        """Processes that work in its folder, whatever their environment: the agent's helpers."""
        found = set()
        for pid in filter(str.isdecimal, os.listdir("/proc")):
            with suppress(OSError):
                folder = os.readlink(f"/proc/{pid}/cwd").removesuffix(" (deleted)")
                if Path(folder).is_relative_to(self.node.root):
                    found.add(int(pid))
        return found

    def close(self) -> None:
        self.node.close()
        for process in self._running:
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
            process.wait()


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    made = Demo(tmp_path)
    try:
        yield made
    finally:
        made.close()


def read_until(process: subprocess.Popen[bytes], text: str) -> None:
    """Read what is shown up to the line that holds `text`."""
    assert process.stdout is not None
    for line in process.stdout:
        if text.encode() in line:
            return
    raise AssertionError(f"never shown: {text}")


def test_every_step_does_what_it_says_and_nothing_is_left(demo: Demo) -> None:
    process = demo.start()
    out, err = process.communicate(timeout=BOUND_S)
    assert (process.returncode, err) == (0, b""), out
    assert demo.left() == (set(), [])
    text = out.decode("ascii")
    assert "\033" not in text
    steps = [line for line in text.splitlines() if line.startswith("== ")]
    assert len(steps) == 11
    assert re.search(r"the stream had \d+ tokens of 'qwen3-32b', then (\[DONE\]|a reset)", text)
    for shown in (
        "scene adopt quick --pid=small=",
        "answers as 'qwen3-8b'; 'small' is still pid ",
        "start   large ",
        "answers as 'qwen3-32b'; 'voice' is still pid ",
        "answers as 'Qwen3-14B', wanted 'qwen3-14b'",
        "Scene 'clever' is restored and verified",
        "degraded: Scene 'clever'",
        "\ngateway: 127.0.0.1:",
        "\nagent: pid ",
        "a client streams from 'qwen3-32b' through port ",
        "without an error, and was answered by 'qwen3-8b'",
        "the agent has ended with exit code 0\n-> port ",
        "now running: nothing",
    ):
        assert shown in text


@pytest.mark.parametrize(
    ("moment", "signals"),
    [
        ("serves 'qwen3-8b'", [signal.SIGTERM]),
        ("mistaken: loading", [signal.SIGINT, signal.SIGINT, signal.SIGTERM]),
        ("small: starting", [signal.SIGINT]),
        ("== The agent leaves", [signal.SIGINT]),
    ],
    ids=[
        "while a server starts",
        "three times in a switch",
        "while a client waits",
        "while the agent leaves",
    ],
)
def test_an_interrupt_at_any_moment_leaves_nothing(
    demo: Demo, moment: str, signals: list[signal.Signals]
) -> None:
    process = demo.start()
    read_until(process, moment)
    for number in signals:
        process.send_signal(number)
    _, err = process.communicate(timeout=BOUND_S)
    assert (process.returncode, err) == (130, b"error: interrupted\n")
    assert demo.left() == (set(), [])


def test_a_reader_that_leaves_ends_it(demo: Demo) -> None:
    process = demo.start()
    read_until(process, "==")
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(BOUND_S) == 1
    assert demo.left() == (set(), [])


def test_a_step_that_fails_ends_it_with_a_sentence(demo: Demo) -> None:
    with open("/dev/full", "wb") as full:
        process = demo.start(full.fileno())
    _, err = process.communicate(timeout=BOUND_S)
    assert process.returncode == 1
    assert err == b"error: cannot go on with the demo: what it shows can't be written\n"
    assert demo.left() == (set(), [])
