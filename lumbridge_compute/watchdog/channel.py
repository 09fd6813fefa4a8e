"""Start the sampler, and the socket that joins it to the agent.

Source: unix(7), SOCK_SEQPACKET and SCM_RIGHTS.
"""

from __future__ import annotations

import array
import contextlib
import os
import signal
import socket
from collections.abc import Sequence
from pathlib import Path

import trio

from lumbridge_compute.host import spawn
from lumbridge_compute.host.pidfd import HeldProcess
from lumbridge_compute.watchdog.protocol import LINE_BYTES

_LEAVE_S = 1.0
_PASSED_ON = ("LD_LIBRARY_PATH",)  # without it some interpreters do not start
_CODE = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from lumbridge_compute.watchdog.sampler import main; sys.exit(main())"
)


class Channel:
    """The agent's end of the socket; close it, and the sampler ends."""

    def __init__(self, ours: socket.socket) -> None:
        ours.settimeout(0)
        self._socket = trio.socket.from_stdlib_socket(ours)

    async def send(self, line: bytes, descriptor: int = -1) -> None:
        """Send one message, with a copy of `descriptor`.  Raises OSError."""
        rights = [array.array("i", [descriptor])] if descriptor >= 0 else []
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, each) for each in rights]
        await self._socket.sendmsg([line], ancillary)

    async def receive(self) -> bytes:
        """The next message; empty when the sampler has ended."""
        try:
            return await self._socket.recv(LINE_BYTES)
        except ConnectionError:
            return b""

    def hang_up(self) -> None:
        """End both directions: whoever receives here finds the sampler gone, and it us."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()


def start_sampler(interpreter: Sequence[str], meminfo_path: str) -> tuple[HeldProcess, Channel]:
    """Start the process.  Raises OSError.

    Of our environment it gets nothing that it does not need: no secret, no socket of systemd.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    root = str(Path(__file__).parents[2])
    argv = [*interpreter, "-c", _CODE, root, str(os.getpid()), meminfo_path]
    env = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    try:
        with theirs:
            held = spawn.start(argv, "/", env, theirs.fileno(), 2)
    except BaseException:
        ours.close()
        raise
    return held, Channel(ours)


async def end_sampler(held: HeldProcess) -> None:
    """See it ended: it leaves when its channel is closed, else it is killed."""
    with trio.CancelScope(shield=True):
        with trio.move_on_after(_LEAVE_S):
            await held.wait()
        if not held.ended:
            held.signal(signal.SIGKILL)
            await held.wait()
