"""Memory that comes back after stops, and where a Scene may rest: numbers in, a pause out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumbridge_compute.core.settle import (
    LIMIT_S,
    PAUSE_S,
    REST_MARGIN_BYTES,
    SLOW_PAUSE_S,
    Settling,
    rests_above,
)
from lumbridge_compute.core.units import GIB, MIB


def waited(before: int, expected: int | None, samples: list[int]) -> tuple[int, float]:
    """How many of `samples` a wait takes, the last for ever, and for how many seconds it lasts."""
    settling, now_s, seen = Settling(0.0, before, expected), 0.0, 0
    while True:
        settling = settling.see(samples[min(seen, len(samples) - 1)])
        seen += 1
        pause_s = settling.pause_s(now_s)
        if pause_s is None:
            return seen, now_s
        now_s += pause_s


def test_known_memory_is_waited_for_until_nine_tenths_are_back() -> None:
    samples = [10 * GIB, 11 * GIB, 13 * GIB, 14 * GIB - 300 * MIB, 20 * GIB]
    assert waited(10 * GIB, 4 * GIB, samples)[0] == 4


def test_memory_that_is_back_at_once_costs_no_pause() -> None:
    assert waited(10 * GIB, 4 * GIB, [14 * GIB]) == (1, 0.0)


def test_nobody_waits_for_a_little() -> None:
    assert waited(10 * GIB, 255 * MIB, [10 * GIB]) == (1, 0.0)


def test_nothing_that_stops_is_nothing_to_wait_for() -> None:
    assert waited(10 * GIB, 0, [10 * GIB]) == (1, 0.0)


def test_memory_that_others_took_meanwhile_is_given_up_after_a_second_of_quiet() -> None:
    seen, waited_s = waited(10 * GIB, 40 * GIB, [10 * GIB])
    assert waited_s == pytest.approx(1.0)
    assert seen == 11


def test_slow_release_is_waited_for_while_it_goes_on() -> None:
    # 2 GiB in small pages come back over one to two seconds.
    samples = [10 * GIB + step * 100 * MIB for step in range(21)]
    assert waited(10 * GIB, 2 * GIB, samples)[0] == 20


def test_a_pause_in_the_release_begins_the_second_of_quiet_anew() -> None:
    still = [10 * GIB] * 9
    samples = [*still, 12 * GIB, *[12 * GIB] * 9, 20 * GIB]
    assert waited(10 * GIB, 10 * GIB, samples)[0] == len(samples)


def test_unknown_memory_is_waited_for_until_it_stops_growing() -> None:
    samples = [10 * GIB, 11 * GIB, 12 * GIB, 12 * GIB + 31 * MIB, 12 * GIB + 40 * MIB, 90 * GIB]
    assert waited(10 * GIB, None, samples)[0] == 5


def test_unknown_memory_that_does_not_move_costs_two_short_pauses() -> None:
    seen, waited_s = waited(10 * GIB, None, [10 * GIB])
    assert seen == 3
    assert waited_s == pytest.approx(2 * PAUSE_S)


def test_memory_that_grows_for_ever_ends_at_the_limit() -> None:
    samples = [step * GIB for step in range(10_000)]
    for expected in (None, 100_000 * GIB):
        _, waited_s = waited(0, expected, samples)
        assert LIMIT_S <= waited_s < LIMIT_S + SLOW_PAUSE_S + 1e-6


@given(
    before=st.integers(0, 200 * GIB),
    expected=st.none() | st.integers(0, 200 * GIB),
    samples=st.lists(st.integers(0, 200 * GIB), min_size=1, max_size=30),
)
def test_every_wait_ends_within_its_limit(
    before: int, expected: int | None, samples: list[int]
) -> None:
    assert waited(before, expected, samples)[1] < LIMIT_S + SLOW_PAUSE_S + 1e-6


def test_a_wait_without_a_sample_asks_for_one_soon() -> None:
    assert Settling(0.0, GIB, GIB).pause_s(0.0) == PAUSE_S
    assert Settling(0.0, GIB, GIB).pause_s(LIMIT_S) is None


@pytest.mark.parametrize(
    ("available", "floor", "verdict"),
    [
        (0, 0, True),
        (3 * GIB + REST_MARGIN_BYTES - 1, 3 * GIB, False),
        (3 * GIB + REST_MARGIN_BYTES, 3 * GIB, None),
        (5 * GIB - 1, 3 * GIB, None),
        (5 * GIB, 3 * GIB, True),
    ],
)
def test_a_scene_rests_half_a_gibibyte_above_the_floor(
    available: int, floor: int, verdict: object
) -> None:
    assert rests_above(available, floor) is verdict
