"""How the guided tour tells what happens, and how it stops where that is not so."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

import trio

from lumbridge_compute.core.values import dataclass
from lumbridge_compute.demo.stage import DemoFailed


class Screen(Protocol):
    """Where the tour is shown."""

    gone: bool

    def write(self, text: str) -> int: ...

    def fileno(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Script:
    """Writes what happens: headings, narration and commands, in colours where `coloured`."""

    screen: Screen
    coloured: bool

    def step(self, title: str, narration: str) -> None:
        self.write(f"\n{self._in('1', f'== {title}')}\n{narration}\n\n")

    def command(self, line: str) -> None:
        self.write(self._in("36", f"$ {line}") + "\n")

    def seen(self, sentence: str) -> None:
        self.write(self._in("32", f"-> {sentence}") + "\n")

    def write(self, text: str) -> None:
        self.screen.write(text)
        check(not self.screen.gone, "what it shows can't be written")

    def _in(self, colour: str, text: str) -> str:
        return f"\033[{colour}m{text}\033[0m" if self.coloured else text


def check(holds: bool, otherwise: str) -> None:  # noqa: FBT001 - reads as an assertion
    """Raise DemoFailed with the sentence `otherwise` unless it `holds`."""
    if not holds:
        raise DemoFailed(f"cannot go on with the demo: {otherwise}")


@asynccontextmanager
async def open_tasks() -> AsyncIterator[trio.Nursery]:
    """A nursery whose tasks end with its block; what fails in it is raised as it is, ungrouped."""
    try:
        async with trio.open_nursery() as nursery:
            yield nursery
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        _, failed = group.split(trio.Cancelled)
        if failed is None:
            raise
        raise _first(failed) from None


def _first(error: BaseException) -> BaseException:
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error
