"""The memory floor decides from numbers alone; here each number is exact."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumbridge_compute.core.floor import (
    CONFIRM_S,
    NAP_S,
    Decision,
    FloorPolicy,
    Look,
    Past,
    Verdict,
    decide,
    find_absurdity,
    forget_stopped,
    grace_s,
    measure_fall,
    pass_over,
)
from lumbridge_compute.core.units import GIB, MIB

POLICY = FloorPolicy(3 * GIB)
TOTAL = 64 * GIB
VICTIMS = ("first", "second", "third")


class Machine:
    """Decisions one after another, as the loop would take them."""

    def __init__(self, policy: FloorPolicy = POLICY) -> None:
        self.policy = policy
        self.past = Past()
        self.signals: list[tuple[float, str, Verdict]] = []
        self.settled: list[tuple[str, float | None, int]] = []
        self.rearmed_s: list[float] = []

    def look(self, at_s: float, available: float | None, *, gone: bool = False) -> Decision:
        number = None if available is None else int(available)
        decision = decide(self.policy, self.past, Look(at_s, number, TOTAL, VICTIMS, gone))
        self.past = decision.past
        if decision.victim:
            self.signals.append((at_s, decision.victim, decision.verdict))
        if decision.settled:
            ended = decision.settled
            self.settled.append((ended.action.victim, ended.exit_s, ended.back_bytes))
        if decision.rearmed:
            self.rearmed_s.append(at_s)
        return decision

    def run(
        self,
        available: Callable[[float], float],
        until_s: float,
        *,
        from_s: float = 0.0,
        gone_s: float = float("inf"),
    ) -> float:
        """Look as often as the decisions ask; the time of the last look."""
        now_s = from_s
        while True:
            decision = self.look(now_s, available(now_s), gone=now_s >= gone_s)
            if now_s >= until_s:
                return now_s
            now_s += decision.sleep_s


def ramp(start: float, rate: float) -> Callable[[float], float]:
    return lambda at_s: max(float(MIB), start - rate * at_s)


@pytest.mark.parametrize(
    ("floor", "hard"),
    [(3 * GIB, GIB), (1 * GIB, GIB // 2), (2 * GIB, GIB), (12 * GIB, 4 * GIB), (0, 0)],
)
def test_the_hard_floor_is_a_third_and_at_least_a_gibibyte_or_half(floor: int, hard: int) -> None:
    assert FloorPolicy(floor).hard_bytes == hard


@pytest.mark.parametrize("rate", [0.1, 1, 2.9, 4, 10])
@pytest.mark.parametrize("step_s", [0.01, 0.05, 0.25])
def test_a_steady_fall_is_measured_exactly(rate: float, step_s: float) -> None:
    samples = tuple((n * step_s, int(60 * GIB - rate * GIB * n * step_s)) for n in range(20))
    assert measure_fall(samples) == pytest.approx(rate * GIB, rel=1e-6)


def test_rising_or_unmoved_memory_does_not_fall() -> None:
    assert measure_fall(tuple((n * 0.05, GIB + n) for n in range(9))) == 0
    assert measure_fall(tuple((n * 0.05, GIB) for n in range(9))) == 0
    assert measure_fall(()) == measure_fall(((0.0, GIB),)) == 0


def test_the_dip_of_one_sample_is_no_fall() -> None:
    flat = tuple((n * 0.05, 8 * GIB) for n in range(9))
    assert measure_fall((*flat, (0.45, 2 * GIB))) == 0
    assert measure_fall((*flat, (0.45, 2 * GIB), (0.5, 8 * GIB))) == 0


def test_a_dip_of_one_sample_below_the_soft_floor_signals_nobody() -> None:
    machine = Machine()
    machine.run(lambda _: 4 * GIB, 1.0)
    machine.look(1.1, 2 * GIB)
    machine.run(lambda _: 4 * GIB, 2.0, from_s=1.11)
    assert machine.signals == []


def test_below_the_floor_twice_is_a_term() -> None:
    machine = Machine()
    end_s = machine.run(lambda _: 2.9 * GIB, 0.02)
    assert machine.signals == [(end_s, "first", Verdict.SOFT)]
    assert end_s >= CONFIRM_S


def test_looks_closer_than_20_ms_do_not_confirm_each_other() -> None:
    machine = Machine()
    machine.look(0.0, 2.9 * GIB)
    machine.look(0.019, 2.9 * GIB)
    assert machine.signals == []


@pytest.mark.parametrize("rate", [1.1, 2, 4, 8])
def test_a_fast_fall_is_a_term_at_the_first_look_below(rate: float) -> None:
    machine = Machine()
    machine.run(ramp(8 * GIB, rate * GIB), 5 / rate + 0.011)
    crossed_s = 5 / rate
    at_s, victim, _ = machine.signals[0]
    assert victim == "first"
    assert crossed_s < at_s <= crossed_s + NAP_S[0] + 1e-9


@pytest.mark.parametrize("rate", [0.05, 0.5, 2, 4, 8])
@pytest.mark.parametrize("start", [4, 8, 40])
def test_no_steady_fall_is_missed_by_sleeping(rate: float, start: float) -> None:
    machine = Machine()
    crossed_s = (start - 3) / rate
    machine.run(ramp(start * GIB, rate * GIB), crossed_s + 0.04)
    assert machine.signals
    assert machine.signals[0][0] <= crossed_s + 0.0301


def test_the_sleep_is_half_of_what_the_fastest_fall_needs() -> None:
    assert Machine().look(0, 4 * GIB).sleep_s == pytest.approx(1 / 16)
    assert Machine().look(0, 60 * GIB).sleep_s == 0.25
    assert Machine().look(0, 3 * GIB).sleep_s == 0.01
    machine = Machine()
    for n in range(4):
        decision = machine.look(n * 0.05, 16 * GIB - n * 0.5 * GIB)
    assert decision.fall_bytes_s == pytest.approx(10 * GIB)
    assert decision.sleep_s == pytest.approx(0.25)
    for n in range(4, 23):
        decision = machine.look(n * 0.05, 16 * GIB - n * 0.5 * GIB)
    assert decision.sleep_s == pytest.approx(2 / (2 * 15))


def test_grace_is_half_of_the_way_to_the_hard_floor_and_at_most_ten_seconds() -> None:
    assert grace_s(POLICY, 2 * GIB, 0) == 10
    assert grace_s(POLICY, 2 * GIB, GIB) == pytest.approx(0.5)
    assert grace_s(POLICY, 2 * GIB, GIB // 1000) == 10
    assert grace_s(POLICY, GIB // 2, GIB) == 0


def test_a_victim_that_ignores_term_is_killed_when_its_grace_is_over() -> None:
    machine = Machine()
    machine.run(lambda _: 2.5 * GIB, 11)
    (term_s, *_), (kill_s, victim, verdict) = machine.signals
    assert (victim, verdict) == ("first", Verdict.HARD)
    assert kill_s - term_s == pytest.approx(10, abs=0.002)


def test_grace_runs_out_also_when_memory_came_back() -> None:
    machine = Machine()
    machine.run(lambda at_s: (2.5 if at_s < 1 else 9) * GIB, 11)
    assert [verdict for *_, verdict in machine.signals] == [Verdict.SOFT, Verdict.HARD]


def test_below_the_hard_floor_is_a_kill_at_once() -> None:
    machine = Machine()
    machine.look(0, 0.9 * GIB)
    assert machine.signals == [(0, "first", Verdict.HARD)]


def test_a_term_under_way_becomes_a_kill_of_the_same_victim() -> None:
    machine = Machine()
    machine.run(lambda _: 2.5 * GIB, 0.1)
    machine.look(0.2, 0.9 * GIB)
    assert [(victim, verdict) for _, victim, verdict in machine.signals] == [
        ("first", Verdict.SOFT),
        ("first", Verdict.HARD),
    ]


def test_memory_that_will_be_gone_in_half_a_second_is_a_kill() -> None:
    machine = Machine()
    for n in range(8):
        machine.look(n * 0.05, 4 * GIB - n * 0.4 * GIB)
        if machine.signals:
            break
    ((at_s, victim, verdict),) = machine.signals
    assert at_s == pytest.approx(0.15)
    assert (victim, verdict) == ("first", Verdict.HARD)


def test_above_the_floor_no_forecast_kills() -> None:
    machine = Machine()
    machine.run(ramp(30 * GIB, 8 * GIB), 3.3)
    assert machine.signals == []


def test_a_second_victim_waits_until_the_first_is_gone_and_a_second_more() -> None:
    machine = Machine()
    machine.look(0, 0.9 * GIB)
    machine.run(lambda _: 0.9 * GIB, 4.5, from_s=0.01, gone_s=3.0)
    (_, _, _), (second_s, victim, _) = machine.signals
    assert victim == "second"
    assert second_s == pytest.approx(4.0, abs=0.05)
    ((name, exit_s, back),) = machine.settled
    assert exit_s == pytest.approx(3.0, abs=0.02)
    assert (name, back) == ("first", 0)


def test_a_victim_that_outlives_kill_is_waited_for_ten_seconds() -> None:
    machine = Machine()
    machine.run(lambda _: 0.9 * GIB, 10.5)
    assert [victim for _, victim, _ in machine.signals] == ["first", "second"]
    assert machine.signals[1][0] == pytest.approx(10, abs=0.05)
    assert machine.settled == [("first", None, 0)]


def test_below_half_of_the_hard_floor_nobody_is_waited_for() -> None:
    machine = Machine()
    machine.run(lambda _: 0.4 * GIB, 0.06)
    assert [victim for _, victim, _ in machine.signals] == ["first", "second"]
    assert machine.signals[1][0] >= 0.05


def test_memory_that_comes_back_is_waited_for_even_there() -> None:
    machine = Machine()
    machine.run(lambda at_s: (0.3 + 0.1 * at_s) * GIB, 1.0)
    assert [victim for _, victim, _ in machine.signals] == ["first"]


def test_what_came_back_is_told_a_second_after_the_end() -> None:
    machine = Machine()
    machine.look(0, 2 * GIB)
    machine.look(0.02, 2 * GIB)
    machine.run(lambda _: 9 * GIB, 2.0, from_s=0.5, gone_s=0.5)
    ((name, exit_s, back),) = machine.settled
    assert exit_s == pytest.approx(0.48)
    assert (name, back) == ("first", 7 * GIB)


def test_it_is_armed_anew_after_five_seconds_a_gibibyte_above() -> None:
    machine = Machine()
    machine.look(0, 0.9 * GIB)
    machine.run(lambda at_s: (3.9 if at_s < 3 else 4.1) * GIB, 9, from_s=0.5, gone_s=0.5)
    assert machine.rearmed_s == [pytest.approx(8, abs=0.3)]
    assert machine.past.stopped == frozenset()


def test_a_stopped_model_is_not_chosen_again_before_that() -> None:
    machine = Machine()
    machine.look(0, 0.9 * GIB)
    machine.run(lambda _: 3.5 * GIB, 8, from_s=0.5, gone_s=0.5)
    machine.look(8.1, 0.9 * GIB)
    assert [victim for _, victim, _ in machine.signals] == ["first", "second"]
    machine.past = forget_stopped(machine.past, "first", 8.1)
    assert "first" not in machine.past.stopped


def test_a_new_bearer_of_a_victims_name_is_not_killed_for_it() -> None:
    machine = Machine()
    machine.run(lambda _: 2.5 * GIB, 1)
    machine.past = forget_stopped(machine.past, "first", 1.01)
    machine.run(lambda _: 9 * GIB, 15, from_s=1.02)
    assert [verdict for *_, verdict in machine.signals] == [Verdict.SOFT]
    assert [name for name, *_ in machine.settled] == ["first"]


def test_where_nobody_is_left_it_looks_less_often() -> None:
    past = Past(stopped=frozenset(VICTIMS))
    for at_s in (0.0, 0.1):
        decision = decide(POLICY, past, Look(at_s, 2 * GIB, TOTAL, VICTIMS))
        past = decision.past
    assert (decision.verdict, decision.victim, decision.sleep_s) == (Verdict.SOFT, None, 0.1)


def test_a_victim_that_may_not_be_signalled_is_passed_over() -> None:
    machine = Machine()
    machine.look(0, 0.9 * GIB)
    machine.past = pass_over(machine.past, "first")
    machine.look(0.01, 0.9 * GIB)
    assert [victim for _, victim, _ in machine.signals] == ["first", "second"]


ABSURD = [(None, TOTAL), (GIB, None), (0, TOTAL), (-GIB, TOTAL), (TOTAL + 1, TOTAL), (GIB, 0)]


@pytest.mark.parametrize(("available", "total"), ABSURD)
def test_a_number_that_can_not_be_true_never_signals(
    available: int | None, total: int | None
) -> None:
    past = Past()
    for n in range(50):
        decision = decide(POLICY, past, Look(n * 0.1, available, total, VICTIMS))
        past = decision.past
        assert (decision.verdict, decision.victim) == (Verdict.BLIND, None)
    assert decision.cause
    assert decision.sleep_s == 0.25


def test_blindness_ends_a_confirmation() -> None:
    machine = Machine()
    machine.look(0, 2.9 * GIB)
    machine.look(0.01, None)
    machine.look(0.03, 2.9 * GIB)
    assert machine.signals == []


def test_the_grace_of_a_victim_is_not_over_while_blind() -> None:
    machine = Machine()
    machine.run(lambda _: 2.5 * GIB, 0.05)
    machine.look(20, None)
    assert len(machine.signals) == 1
    machine.look(20.1, 2.5 * GIB)
    assert machine.signals[1][1:] == ("first", Verdict.HARD)


def test_without_a_floor_nothing_is_ever_low() -> None:
    machine = Machine(FloorPolicy(0))
    machine.run(ramp(4 * GIB, GIB), 6)
    assert machine.signals == []


def looks() -> st.SearchStrategy[list[tuple[float, int | None, bool]]]:
    step = st.floats(0.001, 3)
    number = st.one_of(st.none(), st.integers(-MIB, TOTAL + MIB), st.integers(1, 4 * GIB))
    return st.lists(st.tuples(step, number, st.booleans()), max_size=60)


@given(looks())
def test_whatever_is_seen_one_victim_at_a_time_and_never_on_a_guess(
    steps: Iterable[tuple[float, int | None, bool]],
) -> None:
    now_s, past = 0.0, Past()
    for step_s, available, gone in steps:
        now_s += step_s
        look = Look(now_s, available, TOTAL, VICTIMS, gone)
        decision = decide(POLICY, past, look)
        assert 0.001 <= decision.sleep_s <= 0.25
        assert len(decision.past.samples) < 200
        if find_absurdity(look):
            assert decision.victim is None
        if decision.victim and past.action and decision.victim != past.action.victim:
            assert decision.settled
        if decision.victim and not past.action:
            assert available is not None
            assert available < POLICY.floor_bytes
        past = replace(decision.past)
