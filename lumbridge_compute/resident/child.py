"""One child of the agent: it begins before what is inside its block, and ends after it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def child(
    task: Callable[..., Awaitable[object]], *args: object, ready: bool = False
) -> AsyncIterator[None]:
    """Run `task(*args)` around the block; `ready`: until it says that it has started first.

    When the block ends, the task is cancelled and waited for.  When the task fails, the block is
    cancelled, and the failure goes on from here, in a group.
    """
    async with trio.open_nursery() as nursery:
        if ready:
            await nursery.start(task, *args)
        else:
            nursery.start_soon(task, *args)
        yield
        nursery.cancel_scope.cancel()
