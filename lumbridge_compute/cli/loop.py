"""One run of trio for a command that may change the node."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from lumbridge_compute.errors import Refused

_Result = TypeVar("_Result")


def run_loop(work: Callable[[], Awaitable[_Result]]) -> _Result:
    """What `work` returns.  Raises Refused where the machine has not the means to begin it."""
    begun = False

    async def begin() -> _Result:
        nonlocal begun
        begun = True
        return await work()

    try:
        return trio.run(begin)
    except OSError as error:
        if begun:
            raise
        raise cannot_begin(error) from error


def cannot_begin(error: OSError) -> Refused:
    """The machine refuses what the command needs before its first change."""
    return Refused(
        f"cannot begin: {(error.strerror or str(error)).lower()}",
        "raise the limit of this shell (ulimit -n), or end what uses it up",
    )
