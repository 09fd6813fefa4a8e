"""What the service manager and the operator tell by signal: leave, or read the registry again."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable

import trio


async def watch_signals(
    leave: Callable[[], Awaitable[None]],
    reload: Callable[[], Awaitable[None]],
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """SIGTERM and SIGINT call `leave`, at most once, and end this; SIGHUP calls `reload`."""
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as received:
        task_status.started()
        async for number in received:
            if number != signal.SIGHUP:
                break
            await reload()
    await leave()
