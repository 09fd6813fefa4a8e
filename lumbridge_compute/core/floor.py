"""The memory floor: what one look at the available memory means, and when to look again.

Two floors.  Below the soft one (what the operator declared) a model gets TERM and some grace;
below the hard one, or when the memory would soon be gone, it gets KILL.  One at a time: another is
taken only after the memory of the one before had time to come back.  A number that can't be true
never leads to a signal.
"""

from __future__ import annotations

import enum

from lumbridge_compute.core.units import GIB
from lumbridge_compute.core.values import dataclass, replace

NAP_S = (0.01, 0.25)
"""The shortest and the longest time between two looks."""

ACTING_NAP_S = 0.02
"""The longest one while a victim ends: its time to exit is measured by looking."""

HELPLESS_NAP_S = 0.1
"""The longest one where nothing is left to stop: a new model wakes the loop anyway."""

FASTEST_FALL_BYTES_S = 8 * GIB
CONFIRM_S = 0.02
SPAN_S = 0.05
GRACE_S = 10.0
HORIZON_S = 0.5
LAST_BYTES = GIB // 4
SETTLE_S = 1.0
SETTLE_LIMIT_S = 10.0
PRESSED_S = 0.05
REARM_BYTES = GIB
REARM_S = 5.0


class Verdict(enum.Enum):
    """What a look says; SOFT asks for TERM and HARD for KILL where there is a victim."""

    FINE = "fine"
    SOFT = "soft"
    HARD = "hard"
    BLIND = "blind"


@dataclass(frozen=True, slots=True)
class FloorPolicy:
    """The soft floor in bytes; 0 means no floor."""

    floor_bytes: int

    @property
    def hard_bytes(self) -> int:
        """The hard floor: a third of the soft one, at least 1 GiB or half of the soft one."""
        return max(self.floor_bytes // 3, min(GIB, self.floor_bytes // 2))


@dataclass(frozen=True, slots=True)
class Action:
    """One victim being stopped; times on the steady clock of the looks.

    `before_bytes` and `fall_bytes_s` were seen when the first signal left.  `deadline_s` is when
    TERM has had its grace; `killed_s` is when KILL left, `gone_s` when nothing of it was left
    alive, and `killed_bytes` was available at the earlier of these two.
    """

    victim: str
    at_s: float
    before_bytes: int
    fall_bytes_s: float
    deadline_s: float
    killed_s: float | None = None
    killed_bytes: int = 0
    gone_s: float | None = None


@dataclass(frozen=True, slots=True)
class Past:
    """What the looks so far left behind.

    `samples` are (time, bytes), oldest first; `stopped` names what was signalled since the floor
    was armed, and is not chosen again before it is armed anew.
    """

    samples: tuple[tuple[float, int], ...] = ()
    below_s: float | None = None
    clear_s: float | None = None
    action: Action | None = None
    stopped: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Look:
    """One look: MemAvailable and MemTotal in bytes as read (None: could not be), the models that
    may be stopped, first victim first, and whether the victim of the running action is gone."""

    at_s: float
    available_bytes: int | None
    total_bytes: int | None
    victims: tuple[str, ...] = ()
    gone: bool = False


@dataclass(frozen=True, slots=True)
class Settled:
    """How stopping one victim ended: seconds from the first signal until it was gone (None: it is
    not), whether it took KILL, and the memory that came back, in bytes."""

    action: Action
    exit_s: float | None
    back_bytes: int

    @property
    def killed(self) -> bool:
        return self.action.killed_s is not None


@dataclass(frozen=True, slots=True)
class Decision:
    """What follows from a look: signal `victim` (TERM if SOFT, KILL if HARD; None: nobody), keep
    `past`, look again after `sleep_s`.

    `settled` tells of an action that is over, `rearmed` that the floor is armed anew, `cause` why
    the look was blind.
    """

    verdict: Verdict
    past: Past
    sleep_s: float
    fall_bytes_s: float = 0.0
    victim: str | None = None
    settled: Settled | None = None
    rearmed: bool = False
    cause: str | None = None


def decide(policy: FloorPolicy, past: Past, look: Look) -> Decision:
    """Judge one look.  A blind one signals nobody and forgets the samples before it."""
    cause = find_absurdity(look)
    if cause is not None or look.available_bytes is None:
        blank = replace(past, samples=(), below_s=None, clear_s=None)
        return Decision(Verdict.BLIND, blank, NAP_S[1], cause=cause)
    available = look.available_bytes
    past = _note(policy, past, look, available)
    fall = measure_fall(past.samples)
    past, settled = _settle(policy, past, look.at_s, available)
    past, rearmed = _rearm(past, look.at_s)
    verdict = _judge(policy, past, look.at_s, available, fall)
    past, victim = _choose(policy, past, look, verdict, fall)
    sleep_s = _nap(policy, past, look, available, fall)
    return Decision(verdict, past, sleep_s, fall, victim, settled, rearmed)


def find_absurdity(look: Look) -> str | None:
    """Why the numbers of a look can't be true; None where they can."""
    available, total = look.available_bytes, look.total_bytes
    if available is None or total is None:
        return "MemAvailable and MemTotal can't be read"
    if total <= 0:
        return f"MemTotal is {total} bytes"
    if not 0 < available <= total:
        return f"MemAvailable is {available} bytes of {total}"
    return None


def measure_fall(samples: tuple[tuple[float, int], ...]) -> float:
    """How fast memory falls, in bytes a second; 0 where it does not.

    The slower of two neighbouring spans of 50 ms or more counts, so that the dip of one sample
    is no fall.
    """
    middle = _before(samples, len(samples) - 1)
    oldest = _before(samples, middle)
    if oldest < 0:
        return 0.0
    recent = _slope(samples[middle], samples[-1])
    return max(0.0, min(recent, _slope(samples[oldest], samples[middle])))


def forget_stopped(past: Past, name: str, now_s: float) -> Past:
    """The past when another process bears `name`: it may be chosen, and what was done to the one
    before it is not done to it."""
    action = past.action
    if action and action.victim == name and action.gone_s is None:
        action = replace(action, gone_s=now_s)
    return replace(past, action=action, stopped=past.stopped - {name})


def pass_over(past: Past, name: str) -> Past:
    """The past after a signal to `name` was refused: it is nobody to wait for, nor to ask again."""
    return replace(past, action=None, stopped=past.stopped | {name})


def _before(samples: tuple[tuple[float, int], ...], index: int) -> int:
    """The newest sample that is a span older than that at `index`; -1 where there is none."""
    other = index - 1
    while other >= 0 and samples[index][0] - samples[other][0] < SPAN_S - 1e-9:
        other -= 1
    return other


def _slope(older: tuple[float, int], newer: tuple[float, int]) -> float:
    return (older[1] - newer[1]) / (newer[0] - older[0])


def _note(policy: FloorPolicy, past: Past, look: Look, available: int) -> Past:
    samples = (*past.samples, (look.at_s, available))
    oldest = _before(samples, _before(samples, len(samples) - 1))
    below = available < policy.floor_bytes
    clear = available > policy.floor_bytes + REARM_BYTES
    action = past.action
    if action and look.gone and action.gone_s is None:
        left = available if action.killed_s is None else action.killed_bytes
        action = replace(action, gone_s=look.at_s, killed_bytes=left)
    return Past(
        samples=samples[max(0, oldest) :],
        below_s=_since(past.below_s, look.at_s) if below else None,
        clear_s=_since(past.clear_s, look.at_s) if clear else None,
        action=action,
        stopped=past.stopped,
    )


def _since(before_s: float | None, now_s: float) -> float:
    return now_s if before_s is None else before_s


def _settle(
    policy: FloorPolicy, past: Past, now_s: float, available: int
) -> tuple[Past, Settled | None]:
    action = past.action
    if action is None or not _over(policy, action, now_s, available):
        return past, None
    exit_s = None if action.gone_s is None else action.gone_s - action.at_s
    settled = Settled(action, exit_s, available - action.before_bytes)
    return replace(past, action=None), settled


def _over(policy: FloorPolicy, action: Action, now_s: float, available: int) -> bool:
    """May another victim be taken?"""
    if action.gone_s is not None and now_s >= action.gone_s + SETTLE_S:
        return True
    since_s = action.gone_s if action.killed_s is None else action.killed_s
    if since_s is None:
        return False
    if now_s >= since_s + SETTLE_LIMIT_S:
        return True
    # So little is left that waiting is worse; unless it is coming back already.
    pressed = available < policy.hard_bytes / 2 and available <= action.killed_bytes
    return pressed and now_s >= since_s + PRESSED_S


def _rearm(past: Past, now_s: float) -> tuple[Past, bool]:
    calm = past.clear_s is not None and now_s - past.clear_s >= REARM_S
    if not calm or past.action is not None or not past.stopped:
        return past, False
    return replace(past, stopped=frozenset()), True


def _judge(policy: FloorPolicy, past: Past, now_s: float, available: int, fall: float) -> Verdict:
    # The forecast counts below the floor alone: above it, nothing was promised to be left.
    forecast = available - HORIZON_S * fall
    low = past.below_s is not None
    if low and (available < policy.hard_bytes or forecast < LAST_BYTES):
        return Verdict.HARD
    action = past.action
    if action and action.killed_s is None and action.gone_s is None and now_s >= action.deadline_s:
        return Verdict.HARD
    if past.below_s is None:
        return Verdict.FINE
    confirmed = now_s - past.below_s >= CONFIRM_S - 1e-9 or fall > GIB
    return Verdict.SOFT if confirmed else Verdict.FINE


def _choose(
    policy: FloorPolicy, past: Past, look: Look, verdict: Verdict, fall: float
) -> tuple[Past, str | None]:
    """Whom to signal now, and the past that knows of it."""
    available = look.available_bytes or 0
    action = past.action
    if action is not None:
        waits = action.killed_s is not None or action.gone_s is not None
        if verdict is not Verdict.HARD or waits:
            return past, None
        action = replace(action, killed_s=look.at_s, killed_bytes=available)
        return replace(past, action=action), action.victim
    victim = find_victim(past, look.victims)
    if verdict is Verdict.FINE or victim is None:
        return past, None
    deadline_s = look.at_s + grace_s(policy, available, fall)
    action = Action(victim, look.at_s, available, fall, deadline_s)
    if verdict is Verdict.HARD:
        action = replace(action, killed_s=look.at_s, killed_bytes=available)
    return replace(past, action=action, stopped=past.stopped | {victim}), victim


def find_victim(past: Past, victims: tuple[str, ...]) -> str | None:
    """The first of `victims` that was not signalled since the floor was armed."""
    return next((name for name in victims if name not in past.stopped), None)


def grace_s(policy: FloorPolicy, available: int, fall: float) -> float:
    """Seconds that TERM gets: half of what is left until the hard floor, at most 10."""
    if fall <= 0:
        return GRACE_S
    return max(0.0, min(GRACE_S, (available - policy.hard_bytes) / (2 * fall)))


def _nap(policy: FloorPolicy, past: Past, look: Look, available: int, fall: float) -> float:
    shortest, longest = NAP_S
    fastest = max(FASTEST_FALL_BYTES_S, 1.5 * fall)
    nap = min(longest, max(shortest, (available - policy.floor_bytes) / (2 * fastest)))
    action = past.action
    if action is not None:
        nap = min(nap, ACTING_NAP_S)
        if action.killed_s is None and action.gone_s is None:
            nap = max(0.001, min(nap, action.deadline_s - look.at_s))
    elif available < policy.floor_bytes and find_victim(past, look.victims) is None:
        return HELPLESS_NAP_S
    return nap
