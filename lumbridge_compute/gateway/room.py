"""The descriptors that clients may use up: some stay for the agent that the gateway lives in.

Whoever reaches a gateway can open connections; the switch that ends them, the state that it
writes and the socket that asks for it need descriptors too.

Source: getrlimit(2), RLIMIT_NOFILE; open(2): a new descriptor has the lowest number that is free.
"""

from __future__ import annotations

import os
import resource
import socket

RESERVE = 128
"""For the agent, where it may have four times as many; else a quarter of what it may have."""


def is_for_clients(descriptor: int) -> bool:
    """False where `descriptor`, just opened for a client, is one of the agent's."""
    return descriptor < _most()


def has_room(listener: socket.socket) -> bool:
    """Whether a client of `listener` and its upstream connection find room now."""
    try:
        probe = os.dup(listener.fileno())
    except OSError:
        return False
    os.close(probe)
    return is_for_clients(probe + 1)


def _most() -> float:
    """The lowest number that is not for clients."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return float("inf")
    return limit - min(RESERVE, limit // 4)
