"""How long to wait for a model, and how often to look (DESIGN section 7)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lumbridge_compute.core.health import Health, HealthName
from lumbridge_compute.core.units import render_seconds

SETTLED_S = 10.0
"""A settled result that stays unchanged for this long ends the wait."""

FINAL = frozenset({HealthName.DEAD, HealthName.FOREIGN_LISTENER})
"""Results that end a wait at once."""

FIRST_PAUSE_S = 0.003
YOUNG_PAUSE_S = 0.25
OLD_PAUSE_S = 1.0
GROWTH = 1.1


@dataclass(frozen=True, slots=True)
class Patience:
    """A wait for one model to become exactly healthy: what was heard so far.

    All times are seconds of one steady clock.  `since_s` is when the last result was first heard
    in an unbroken row of equal ones.
    """

    started_s: float
    timeout_s: float
    last: Health | None = None
    since_s: float = 0.0

    def hear(self, health: Health, now_s: float) -> Patience:
        """The wait after one more result."""
        if health == self.last:
            return self
        return replace(self, last=health, since_s=now_s)

    def verdict(self, now_s: float) -> str | None:
        """None to go on waiting, else the sentence with which to give up: the last result, and
        after how long."""
        if now_s < self._end_s(now_s):
            return None
        return self._sentence(now_s)

    def pause_s(self, now_s: float) -> float:
        """Seconds until the next look.

        Each pause is about a tenth of the age of the wait, so that a start is noticed at most so
        much late.  Up to 250 ms for a minute, 1 s from the fourth on.
        Never past the moment at which the wait ends by itself.
        """
        age_s = max(0.0, now_s - self.started_s)
        longest_s = min(max(YOUNG_PAUSE_S, age_s / 240), OLD_PAUSE_S)
        pause_s = min(FIRST_PAUSE_S + age_s * (GROWTH - 1), longest_s)
        return max(FIRST_PAUSE_S, min(pause_s, self._end_s(now_s) - now_s))

    def _end_s(self, now_s: float) -> float:
        end_s = self.started_s + self.timeout_s
        if self.last is None:
            return end_s
        if self.last.name in FINAL:
            return min(end_s, now_s)
        return min(end_s, self.since_s + SETTLED_S) if self.last.settled else end_s

    def _sentence(self, now_s: float) -> str:
        last = self.last.detail or self.last.name if self.last else "nothing was heard of it"
        after = render_seconds(now_s - self.started_s)
        if now_s >= self.started_s + self.timeout_s:
            return f"{last}, after {after}, all the time its health.timeout gives"
        return f"{last}, after {after}"
