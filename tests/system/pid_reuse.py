"""A recorded model dies and a stranger gets its PID: what each command does then.

To be run as the first process of a pid namespace of its own, with a folder for the node; prints
one line for each stranger.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.system.node import SERVER, SystemNode, until

COMMANDS = (
    ["status"],
    ["scene", "resume", "--dry-run"],
    ["scene", "resume"],
    ["scene", "activate", "night"],
    ["scene", "deactivate"],
)


def main(root: Path) -> None:
    node = SystemNode(root)
    port = node.model("small")
    node.model("large")
    node.scene("day", "small")
    node.scene("night", "large")
    node.write()
    try:
        for stranger in (["sleep", "1000"], [*SERVER, "--port", str(port), "--marker", "small"]):
            node.ok("scene", "activate", "day")
            pid = node.pids()["small"]
            os.kill(pid, signal.SIGKILL)
            until(lambda: not reap(pid), "the end of the model")  # noqa: B023 - called at once
            process = start_as(pid, stranger)
            exits = [node.run(*words).exit for words in COMMANDS]
            print(process.poll(), *exits, flush=True)  # noqa: T201 - what the test reads
            process.kill()
            process.wait()
    finally:
        node.close()


def reap(pid: int) -> bool:
    """Whether there is a process `pid`, after its end was taken note of: orphans are ours here."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    return Path(f"/proc/{pid}").exists()


def start_as(pid: int, words: list[str]) -> subprocess.Popen[bytes]:
    """A process with that very PID, leader of its session as a model would be."""
    while True:
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1))
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, start_new_session=True)
        if process.pid == pid:
            return process
        process.kill()
        process.wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
