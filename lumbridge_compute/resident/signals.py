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
    """SIGTERM and SIGINT call `leave`, at most once, and end this; SIGHUP calls `reload`.

    A `reload` that waits does not delay the others; the end of this cancels it.  A SIGHUP that was
    blocked comes now: it was sent since compute.yaml was read, or a little before.
    """
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as received:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
        task_status.started()
        async with trio.open_nursery() as reloads:
            async for number in received:
                if number != signal.SIGHUP:
                    break
                reloads.start_soon(reload)
            reloads.cancel_scope.cancel()
    await leave()
