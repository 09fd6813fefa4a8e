"""The sampler: a small process of its own that looks at the memory and stops models.

Started by the supervisor with its end of a socket pair as stdin, and with the smallest interpreter
that can be had.  It ends when the agent does.  Its pidfds come over the socket, so that it can act
on its own while the agent is stuck.

Source: unix(7), SOCK_SEQPACKET and SCM_RIGHTS; sched(7).
"""

from __future__ import annotations

import gc
import os
import select
import socket
import sys
import time
from collections import deque

from lumbridge_compute.core.floor import Past
from lumbridge_compute.host import pidfd_signal, urgent
from lumbridge_compute.host.meminfo import Meminfo
from lumbridge_compute.watchdog.loop import FloorLoop, Senses, Signaller, obey
from lumbridge_compute.watchdog.protocol import (
    LINE_BYTES,
    FloorEvent,
    FloorEventKind,
    Message,
    parse_message,
    render_event,
    render_message,
    render_past,
)

NAME = "lumbridge-floor"
_UNSENT = 256
"""So many messages wait for a stuck agent; then the oldest go."""


def main() -> int:
    """Run until the agent lets go of the socket.  Arguments: PID of the agent, path of meminfo."""
    parent_pid, meminfo_path = int(sys.argv[1]), sys.argv[2]
    if not urgent.end_with_parent(parent_pid):
        return 0
    urgent.set_name(NAME)
    with socket.socket(fileno=0) as agent:
        sampler = Sampler(agent, meminfo_path)
        sampler.rehearse()
        sampler.run()
    return 0


class Sampler:
    """A floor loop that is driven by a socket and a clock."""

    def __init__(self, agent: socket.socket, meminfo_path: str) -> None:
        self._agent = agent
        self._told = False
        self._unsent: deque[bytes] = deque(maxlen=_UNSENT)
        self._loop = FloorLoop(
            Senses(Meminfo(meminfo_path).read, time.monotonic, Signaller()),
            tell=self._tell,
            keep=self._keep,
        )

    def rehearse(self) -> None:
        """Walk the way to a signal once, so that nothing of it has to be loaded when it matters."""
        gains = [
            ("round-robin", urgent.take_priority()),
            ("memory-locked", urgent.lock_memory()),
            ("oom-exempt", urgent.avoid_oom_kill()),
        ]
        own = os.pidfd_open(os.getpid())
        pidfd_signal.send(own, 0)
        pidfd_signal.has_ended(own)
        pidfd_signal.send_group(own, os.getpid(), 0)
        os.close(own)
        # Nothing here makes cycles: without collections no look is late for one.
        gc.collect()
        gc.freeze()
        gc.disable()
        detail = " ".join(name for name, gained in gains if gained)
        ready = FloorEvent(FloorEventKind.READY, time.monotonic(), detail=detail or "nothing")
        self._tell(ready)

    def run(self) -> None:
        """Look, and do what the agent says between the looks."""
        poll = select.poll()
        poll.register(self._agent, select.POLLIN)
        self._flush()
        while not self._told:
            if not self._serve():
                return
        while True:
            due_s = time.monotonic() + self._loop.look()
            self._flush()
            while (left_s := due_s - time.monotonic()) > 0:
                if not poll.poll(left_s * 1000):
                    break
                if not self._serve():
                    return

    def _serve(self) -> bool:
        """Take one message; False when the agent is gone."""
        try:
            line, descriptors, _flags, _address = socket.recv_fds(self._agent, LINE_BYTES, 1)
        except ConnectionError:
            return False
        if not line:
            return False
        self._obey(parse_message(line), descriptors)
        self._flush()
        return True

    def _obey(self, message: Message, descriptors: list[int]) -> None:
        if message.kind == "sync":
            self._told = True
            self._unsent.append(render_message("synced", version=message.number("version")))
        else:
            obey(self._loop, message, descriptors[0] if descriptors else -1)

    def _tell(self, event: FloorEvent) -> None:
        if event.kind is FloorEventKind.SAMPLE and self._unsent:
            return  # the next one says the same, and must not push an action out
        self._unsent.append(render_event(event))

    def _keep(self, past: Past) -> None:
        self._unsent.append(render_past(past))

    def _flush(self) -> None:
        """Send what waits, without ever waiting for the agent."""
        while self._unsent:
            try:
                self._agent.send(self._unsent[0], socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            except OSError:
                return
            self._unsent.popleft()
