"""When a wait ends, and how often it looks."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumbridge_compute.core.health import Health, HealthName
from lumbridge_compute.core.patience import FIRST_PAUSE_S, Patience

STARTING = Health(HealthName.STARTING, "nobody listens on port 8003 yet")
BUSY = Health(HealthName.BUSY, "port 8003 accepts connections but gives no whole answer")
WRONG = Health(
    HealthName.WRONG_MARKER,
    "port 8003 answers as 'kokoro-82m', wanted 'kokoro-82m-zh'",
    ("kokoro-82m",),
    settled=True,
)
LOADING = Health(HealthName.UNAUTHORIZED, "the ready check answers 401: it wants a key")
NEW = Patience(started_s=1000.0, timeout_s=900.0)


@pytest.mark.parametrize("name", [HealthName.DEAD, HealthName.FOREIGN_LISTENER])
def test_what_can_not_mend_ends_the_wait_at_once(name: HealthName) -> None:
    heard = NEW.hear(Health(name, "qwen ended with exit code 1"), 1003.0)
    assert heard.verdict(1003.0) == "qwen ended with exit code 1, after 3.0 s"


@pytest.mark.parametrize("health", [STARTING, BUSY, LOADING])
def test_what_may_mend_is_waited_for_up_to_the_timeout(health: Health) -> None:
    heard = NEW.hear(health, 1000.0)
    assert heard.verdict(1899.0) is None
    assert heard.verdict(1900.0) == (
        f"{health.detail}, after 15 min, all the time its health.timeout gives"
    )


def test_a_settled_result_ends_the_wait_after_ten_seconds() -> None:
    heard = NEW.hear(STARTING, 1000.0).hear(WRONG, 1030.0).hear(WRONG, 1039.0)
    assert heard.verdict(1039.9) is None
    assert heard.verdict(1040.0) == (
        "port 8003 answers as 'kokoro-82m', wanted 'kokoro-82m-zh', after 40 s"
    )


def test_a_result_that_changes_starts_the_ten_seconds_anew() -> None:
    heard = NEW.hear(WRONG, 1000.0).hear(BUSY, 1009.0).hear(WRONG, 1009.5)
    assert heard.verdict(1019.0) is None
    assert heard.verdict(1019.5) is not None


def test_the_timeout_counts_before_the_ten_seconds() -> None:
    heard = Patience(0.0, 2.0).hear(WRONG, 0.0)
    assert heard.verdict(1.9) is None
    assert "health.timeout" in (heard.verdict(2.0) or "")


def test_a_wait_that_heard_nothing_says_so() -> None:
    assert NEW.verdict(1000.0) is None
    assert (NEW.verdict(2000.0) or "").startswith("nothing was heard of it")


def looks(patience: Patience, until_s: float) -> list[float]:
    """The ages at which such a wait looks, when looking takes no time."""
    now_s, ages = patience.started_s, []
    while now_s - patience.started_s < until_s:
        now_s += patience.pause_s(now_s)
        ages.append(now_s - patience.started_s)
    return ages


def test_looking_starts_at_a_few_milliseconds_and_backs_off() -> None:
    heard = NEW.hear(STARTING, 1000.0)
    assert heard.pause_s(1000.0) == pytest.approx(FIRST_PAUSE_S)
    ages = looks(heard, 1.0)
    pauses = [later - sooner for sooner, later in pairwise(ages)]
    young = [later / sooner for sooner, later in pairwise(pauses)][:8]
    assert young == pytest.approx([1.1] * 8)
    assert heard.pause_s(1030.0) == pytest.approx(0.25)
    assert heard.pause_s(1120.0) == pytest.approx(0.5)
    assert heard.pause_s(1600.0) == pytest.approx(1.0)


def test_a_look_is_due_when_the_wait_ends() -> None:
    settled = NEW.hear(WRONG, 1300.0)
    assert settled.pause_s(1309.9) == pytest.approx(0.1)
    assert NEW.hear(BUSY, 1300.0).pause_s(1899.5) == pytest.approx(0.5)


@given(st.floats(0, 1e6), st.floats(0.001, 1e5), st.sampled_from([STARTING, WRONG, BUSY]))
def test_a_pause_is_bounded_and_never_zero(age_s: float, timeout_s: float, last: Health) -> None:
    pause_s = Patience(0.0, timeout_s).hear(last, age_s).pause_s(age_s)
    assert FIRST_PAUSE_S <= pause_s <= 1.0
