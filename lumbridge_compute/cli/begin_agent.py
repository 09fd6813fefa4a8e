"""The first moments of `agent`: its signals are taken before what takes a while to load."""

from __future__ import annotations

import faulthandler
import os
import signal

from lumbridge_compute.cli.call import Call
from lumbridge_compute.cli.streams import STDERR
from lumbridge_compute.errors import Exit
from lumbridge_compute.host.spawn import normalise_signals


def begin_agent(call: Call) -> int:
    """As `run_agent_command`."""
    take_signals()
    from lumbridge_compute.cli.agent import run_agent_command

    return run_agent_command(call)


def take_signals() -> None:
    """What a signal does until the agent listens, and once it has left.

    SIGTERM and SIGINT end it: there is nothing to put in order.  SIGHUP waits for the agent to
    listen, and does nothing to one that leaves.  SIGABRT, by which systemd's watchdog ends an agent
    that hangs, leaves the stack of every thread on stderr, so in the journal.

    Source: systemd.service(5), WatchdogSec=.
    """
    normalise_signals()
    # SIGINT first: who sees that SIGTERM is caught, as nothing but this does it, sees both.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: os._exit(int(Exit.DONE)))
    signal.signal(signal.SIGHUP, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    faulthandler.enable(STDERR)
