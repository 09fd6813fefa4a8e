"""When has memory come back after stops, and does a Scene rest above the floor?"""

from __future__ import annotations

from dataclasses import dataclass, replace

from lumbridge_compute.core.units import GIB, MIB

SETTLED_CHANGE_BYTES = 32 * MIB
"""Less than this between two samples is other programs' noise."""

SMALL_BYTES = 256 * MIB
"""Nobody waits for less than this to come back."""

PAUSE_S = 0.003
SLOW_PAUSE_S = 0.1
LIMIT_S = 10.0
REST_MARGIN_BYTES = GIB // 2
CLEAR_BYTES = 2 * GIB
REST_S = 3.0


@dataclass(frozen=True, slots=True)
class Settling:
    """A wait for the memory of stopped models; bytes and seconds of a steady clock.

    Release of 2 GiB takes 20 ms with huge pages and 1 to 2 s with small ones, so what the models
    were known to hold is waited for, and an unknown amount until it stops growing.
    """

    started_s: float
    before_bytes: int
    expected_bytes: int | None
    last_bytes: int | None = None
    quiet: int = 0

    def see(self, available_bytes: int) -> Settling:
        """The wait after one more sample of MemAvailable."""
        grown = 0 if self.last_bytes is None else available_bytes - self.last_bytes
        first = self.last_bytes is None
        still = not first and grown < SETTLED_CHANGE_BYTES
        return replace(self, last_bytes=available_bytes, quiet=self.quiet + 1 if still else 0)

    def pause_s(self, now_s: float) -> float | None:
        """Seconds until the next sample; None when the wait is over."""
        waited_s = now_s - self.started_s
        if waited_s >= LIMIT_S or self.last_bytes is None:
            return None if waited_s >= LIMIT_S else PAUSE_S
        if self.expected_bytes is None:
            return None if self.quiet >= 2 else PAUSE_S
        back = self.last_bytes - self.before_bytes
        if self.expected_bytes < SMALL_BYTES or back >= 0.9 * self.expected_bytes:
            return None
        # What others took meanwhile never comes back: a full second of quiet ends the wait too.
        return None if self.quiet * SLOW_PAUSE_S >= 1.0 else SLOW_PAUSE_S


def rests_above(available_bytes: int, floor_bytes: int) -> bool | None:
    """May a Scene rest here?  False below floor + 0.5 GiB; True at once when 2 GiB or more are
    free above the floor; None when it takes `REST_S` seconds of samples to say so."""
    if floor_bytes == 0 or available_bytes >= floor_bytes + CLEAR_BYTES:
        return True
    return None if available_bytes >= floor_bytes + REST_MARGIN_BYTES else False
