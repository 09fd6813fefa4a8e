"""Ctrl-C and SIGTERM: the first cancels and rolls back, the second leaves at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import trio


class Interrupted(Exception):
    """Interrupted before anything was changed."""


class Interruption:
    """Cancels the forward part of a transaction, then its way back.

    `interrupt` may be called at any time from the same trio run, also before the transaction has
    begun and after it has ended.
    """

    def __init__(self) -> None:
        self.count = 0
        self.leaving = False
        self._forward: trio.CancelScope | None = None
        self._back: trio.CancelScope | None = None

    def interrupt(self) -> None:
        self.count += 1
        if self._forward is not None:
            self._forward.cancel()
        if self._back is not None and self.count > 1:
            self._back.cancel()

    def leave(self) -> None:
        """End it at once with everything as it is, recorded: no way back."""
        self.leaving = True
        self.interrupt()
        self.interrupt()

    @contextmanager
    def forward(self) -> Iterator[trio.CancelScope]:
        """Bounds what the first interrupt ends; one that has come already ends it at once."""
        with trio.CancelScope() as scope:
            self._forward = scope
            if self.count:
                scope.cancel()
            yield scope
        self._forward = None

    @contextmanager
    def way_back(
        self, limit_s: float, *, even_when_left: bool = False
    ) -> Iterator[trio.CancelScope]:
        """Bounds the rollback: shielded from every cancellation but the second interrupt and its
        own deadline, `limit_s` seconds from now.  `even_when_left`: by the deadline alone."""
        with trio.CancelScope(deadline=trio.current_time() + limit_s, shield=True) as scope:
            if not even_when_left:
                self._back = scope
                if self.count > 1:
                    scope.cancel()
            yield scope
        self._back = None
