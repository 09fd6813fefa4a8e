"""Looks that many ask for."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from lumbridge_compute.control.board import Board


class Looks:
    """Each ends when it is told to, with its number."""

    def __init__(self) -> None:
        self.begun = 0
        self.may_end = trio.Event()
        self.told: list[int] = []
        self.board = Board(self._look)

    async def _look(self) -> int:
        self.begun += 1
        number = self.begun
        await self.may_end.wait()
        return number

    async def ask(self) -> None:
        self.told.append(await self.board.read())


async def test_who_asks_during_a_look_shares_the_next_one() -> None:
    looks = Looks()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(looks.ask)
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(50):
            nursery.start_soon(looks.ask)
        await trio.testing.wait_all_tasks_blocked()
        assert looks.begun == 1
        looks.may_end.set()
    assert looks.told == [1] + [2] * 50


async def test_a_question_is_never_answered_by_an_older_look() -> None:
    looks = Looks()
    looks.may_end.set()
    await looks.ask()
    await looks.ask()
    assert looks.told == [1, 2]


async def test_when_the_one_who_looks_leaves_the_next_one_looks() -> None:
    looks = Looks()
    async with trio.open_nursery() as nursery:
        first = trio.CancelScope()

        async def leaver() -> None:
            with first:
                await looks.ask()

        nursery.start_soon(leaver)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(looks.ask)
        nursery.start_soon(looks.ask)
        await trio.testing.wait_all_tasks_blocked()
        first.cancel()
        await trio.testing.wait_all_tasks_blocked()
        looks.may_end.set()
    assert looks.told == [2, 2]


async def test_a_look_that_fails_fails_for_each_who_asked() -> None:
    async def fail() -> int:
        raise OSError(24, "Too many open files")

    board = Board(fail)
    for _ in range(2):
        with pytest.raises(OSError, match="Too many"):
            await board.read()
