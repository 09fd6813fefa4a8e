"""Start a model behind a gate: it becomes the model only after its identity is durable.

The child is a shell that waits for a word on its stdin.  When we end first, however, the pipe
closes and the child ends without having run anything.  The word given, the shell becomes the
model: pid and start ticks stay.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import subprocess
from collections.abc import Mapping, Sequence

from lumbridge_compute.host.pidfd import HeldProcess, hold_child

SHELL = "/bin/sh"
OOM_SCORE_ADJ = 300
"""The least that a model gets: the kernel ends a model before it ends what runs the machine."""

_SHELL_VARIABLES = ("PWD", "OLDPWD", "SHLVL")  # what a shell adds to an environment by itself
_GATE = 'read -r _gate && [ "$_gate" = go ] && unset _gate {added} && exec "$@" </dev/null'
_ABANDON_MS = 1000


class Gate:
    """A started child that waits for its go-ahead.  Release or abandon it."""

    def __init__(self, handle: HeldProcess, gate: int) -> None:
        """Take over both: the held child, and the end of the pipe that it reads from."""
        self.handle = handle
        self._gate = gate

    def release(self) -> None:
        """Give the go-ahead.  Raises OSError when the child has ended."""
        gate, self._gate = self._gate, -1
        try:
            os.write(gate, b"go\n")
        finally:
            os.close(gate)

    def abandon(self) -> None:
        """Close the gate without a go-ahead: the child ends without having run anything.

        Reaps it and closes its handle.  Does nothing after `release`.
        """
        if self._gate < 0:
            return
        os.close(self._gate)
        self._gate = -1
        if not wait_ended(self.handle, _ABANDON_MS):
            self.handle.signal(signal.SIGKILL)
            wait_ended(self.handle, _ABANDON_MS)
        self.handle.close()


def start_gated(name: str, argv: Sequence[str], cwd: str, env: Mapping[str, str], log: int) -> Gate:
    """Start a child in a session of its own that runs `argv` after the go-ahead.

    It has stdin from /dev/null then, stdout and stderr in `log` (a descriptor that stays the
    caller's), and no descriptor of ours.  Its environment is `env`; a shell between us and it
    drops variables whose names no shell could write, and may correct PWD.  `name` is what the
    shell calls itself in the log.  Raises OSError.
    """
    readable, writable = os.pipe()
    try:
        added = " ".join(variable for variable in _SHELL_VARIABLES if variable not in env)
        script = _GATE.format(added=added)
        handle = start([SHELL, "-c", script, name, *argv], cwd, env, readable, log)
        gate = Gate(handle, writable)
    except BaseException:
        os.close(writable)
        raise
    finally:
        os.close(readable)
    try:
        raise_oom_score(handle.identity.pid)
    except OSError:
        gate.abandon()
        raise
    return gate


def start(
    argv: Sequence[str], cwd: str, env: Mapping[str, str], stdin: int, log: int
) -> HeldProcess:
    """Start `argv` in a session of its own, at once.  Raises OSError."""
    child = subprocess.Popen(
        argv, cwd=cwd, env=env, stdin=stdin, stdout=log, stderr=log, start_new_session=True
    )
    # It is reaped through its pidfd.  Told that it has ended, Popen neither warns when it is
    # dropped nor reaps the child behind our back.
    child.returncode = 0
    return hold_child(child.pid)


def raise_oom_score(pid: int) -> None:
    """Raise oom_score_adj of `pid` to 300; a higher one stays.

    Source: proc_pid_oom_score_adj(5).
    """
    with open(f"/proc/{pid}/oom_score_adj", "rb+", buffering=0) as file:
        if int(file.read()) < OOM_SCORE_ADJ:
            file.seek(0)
            file.write(b"%d" % OOM_SCORE_ADJ)


def wait_ended(handle: HeldProcess, timeout_ms: int) -> bool:
    """Block until the process has ended; False when it has not within `timeout_ms`."""
    poll = select.poll()
    poll.register(handle.fileno(), select.POLLIN)
    return bool(poll.poll(timeout_ms))


def normalise_signals() -> None:
    """Let the children of this process start with default signal dispositions.

    An ignored signal stays ignored across exec, a handled one does not: each ignored one gets a
    handler that does nothing.  The signal mask is cleared.  To be called in the main thread.

    Source: signal(7), "Signal dispositions"; execve(2).
    """
    for number in signal.valid_signals():
        if number in (signal.SIGTTIN, signal.SIGTTOU):
            # A handler would turn a background write to our terminal into an endless retry; in a
            # session without a terminal the kernel never sends them.
            continue
        if signal.getsignal(number) is signal.SIG_IGN:
            _handle(number)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _handle(number: int) -> None:
    try:
        signal.signal(number, lambda *_: None)
    except OSError as error:
        if error.errno != errno.EINVAL:  # one of those that the C library keeps for itself
            raise
