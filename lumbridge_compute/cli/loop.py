"""One run of trio for a command that may change the node."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from lumbridge_compute.cli.streams import STDERR
from lumbridge_compute.errors import Refused

NEEDED_DESCRIPTORS = 48
"""What a switch of a few models takes: it must not find out in the middle that it has none left."""

_Result = TypeVar("_Result")


def run_loop(work: Callable[[], Awaitable[_Result]]) -> _Result:
    """What `work` returns.  Raises Refused where the machine has not the means to begin it."""
    begun = False

    async def begin() -> _Result:
        nonlocal begun
        begun = True
        return await work()

    try:
        _check_descriptors()
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


def _check_descriptors() -> None:
    """Raises OSError where there are not enough, now."""
    held: list[int] = []
    try:
        for _ in range(NEEDED_DESCRIPTORS):
            held.append(os.dup(STDERR))  # noqa: PERF401 - those that were had must be closed
    finally:
        for descriptor in held:
            os.close(descriptor)
