"""The node's status for whoever asks: one look at a time, shared by all who asked before it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import trio

_T = TypeVar("_T")


class Board(Generic[_T]):
    """What `look` found, never older than the question.

    However many ask, one look is under way and one more waits to begin.
    """

    def __init__(self, look: Callable[[], Awaitable[_T]]) -> None:
        self._look = look
        self._turn = trio.Lock()
        self._begun = self._done = 0
        self._found: _T | None = None

    async def read(self) -> _T:
        """What a look that begins from now on finds.  Raises what `look` raises, for each who asks.

        When this is cancelled, the next one looks anew.
        """
        wanted = self._begun + 1
        async with self._turn:
            if self._done < wanted:
                self._begun += 1
                number = self._begun
                self._found = await self._look()
                self._done = number
            found = self._found
        assert found is not None  # noqa: S101 - a look finds something, or raises
        return found
