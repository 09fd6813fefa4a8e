"""Faults at single system calls of the real command, by strace: kill -9, or a full disk."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import Counter
from dataclasses import dataclass

from tests.proof.plays import trace_of
from tests.system.node import COMMAND, Ran, SystemNode

CALLS = {"write": "write", "fsync": "fsync", "openat": "openat", "rename": "/^rename"}
"""Which calls may be struck, and strace's name for them."""

FAULTS = {"KILL": "signal=KILL", "ENOSPC": "error=ENOSPC"}

_IN_THE_FOLDER = frozenset({"openat", "rename"})
"""Calls that name a folder: those outside the node's private one are left alone."""

_CALL = re.compile(r"(\d+) +\w+\(")


@dataclass(frozen=True, slots=True)
class Struck:
    """`fault` at call `number` of `call`, counted from 1 in each thread; with number 0 the calls
    are only told."""

    call: str
    number: int
    fault: str = "KILL"

    def __str__(self) -> str:
        return f"{self.call}:{self.number}:{self.fault}"

    @classmethod
    def parse(cls, text: str) -> Struck:
        """The blow of `str`.  Raises ValueError."""
        call, number, fault = text.split(":")
        if call not in CALLS or fault not in FAULTS:
            raise ValueError(f"{text!r} names no system call, or no fault")
        return cls(call, int(number), fault)

    def run(self, node: SystemNode, *args: str) -> Ran:
        """The installed command under strace, which lets go of what it starts: the models."""
        name = CALLS[self.call]
        words = ["strace", "-f", "--detach-on=execve", "-qq", "-y", "-o", str(trace_of(node))]
        words += ["-e", f"trace={name}", "-e", "signal=none"]
        if self.number:
            words += ["-e", f"inject={name}:{FAULTS[self.fault]}:when={self.number}"]
        if self.call in _IN_THE_FOLDER:
            words += ["-P", str(node.root / ".kuda")]
        return node.run(*args, command=[*words, *COMMAND])


def count_calls(node: SystemNode) -> int:
    """How many calls the thread with the most has made, in the trace of a command just run."""
    calls = Counter(_CALL.findall(trace_of(node).read_text()))
    return max(calls.values(), default=0)


def why_no_strace() -> str | None:
    """Why system calls can't be struck on this machine; None where they can."""
    strace = shutil.which("strace")
    if strace is None:
        return "strace is not installed"
    words = [strace, "-f", "--detach-on=execve", "-qq", "-o", os.devnull]
    tried = subprocess.run([*words, "true"], capture_output=True, text=True, check=False)
    return None if tried.returncode == 0 else f"strace can't trace here: {tried.stderr.strip()}"
