"""What the agent and its sampler say to each other: one message, one line of ASCII.

`kind key=value key=value ...`, where `detail` is always last and runs to the end.  Names of models
hold no space, so nothing is quoted; and neither side loads a parser that it would else not need.

To the sampler: `floor bytes=N` · `add name=M pid=P group=1` with the pidfd beside it · `remove
name=M` · `order names=A,B` · `past ...` (an action that an earlier sampler began) · `sync
version=N`, answered by `synced version=N` when all before it is in force.  From the sampler:
`synced`, `past`, and the events.
"""

from __future__ import annotations

import enum
import math

from lumbridge_compute.core.floor import Action, Past
from lumbridge_compute.core.values import dataclass

LINE_BYTES = 65536


class FloorEventKind(enum.Enum):
    """What the floor tells."""

    SAMPLE = "sample"
    TERM = "term"
    KILL = "kill"
    STOPPED = "stopped"
    REFUSED = "refused"
    HELPLESS = "helpless"
    REARMED = "rearmed"
    BLIND = "blind"
    SEES = "sees"
    READY = "ready"


@dataclass(frozen=True, slots=True)
class FloorEvent:
    """One thing that the floor saw or did; bytes, seconds, and the steady clock for `at_s`.

    TERM and KILL have just left for `victim`; TERM gives it `grace_s`.  STOPPED says how that
    ended: `exit_s` from the first signal until it was gone (None: it is not), and `back_bytes`
    that came back until now.  REFUSED: the kernel did not let us signal `victim`.  HELPLESS: below
    the floor and nobody left to stop.  BLIND says why in `detail`; READY what the sampler got.
    """

    kind: FloorEventKind
    at_s: float
    available_bytes: int | None = None
    total_bytes: int | None = None
    floor_bytes: int = 0
    fall_bytes_s: float = 0.0
    victim: str | None = None
    grace_s: float | None = None
    exit_s: float | None = None
    back_bytes: int | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """A line taken apart."""

    kind: str
    values: dict[str, str]

    def text(self, key: str) -> str:
        """Raises ValueError where it is missing."""
        value = self.values.get(key)
        if value is None:
            raise ValueError(f"cannot read message {self.kind!r}: it has no {key!r}")
        return value

    def number(self, key: str) -> int | None:
        value = self.values.get(key)
        return None if value is None else int(value)

    def seconds(self, key: str) -> float | None:
        value = self.values.get(key)
        number = None if value is None else float(value)
        if number is not None and not math.isfinite(number):
            raise ValueError(f"cannot read message {self.kind!r}: {key!r} is {value}")
        return number


def render_message(kind: str, **values: object) -> bytes:
    """One line; a value of None is left out."""
    words = [f"{key}={value}" for key, value in values.items() if value is not None]
    return " ".join([kind, *words]).replace("\n", " ").encode("ascii", "backslashreplace")


def parse_message(line: bytes) -> Message:
    """Take a line apart.  Raises ValueError for what is none."""
    head, has_detail, detail = line.decode("ascii").partition(" detail=")
    kind, *words = head.split(" ")
    values = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise ValueError(f"cannot read message {line!r}: {word!r} has no value")
        values[key] = value
    if has_detail:
        values["detail"] = detail
    return Message(kind, values)


def render_event(event: FloorEvent) -> bytes:
    """An event as a line."""
    return render_message(
        event.kind.value,
        at=f"{event.at_s:.6f}",
        available=event.available_bytes,
        total=event.total_bytes,
        floor=event.floor_bytes,
        fall=f"{event.fall_bytes_s:.0f}",
        victim=event.victim,
        grace=_seconds(event.grace_s),
        exit=_seconds(event.exit_s),
        back=event.back_bytes,
        detail=event.detail,
    )


def parse_event(message: Message) -> FloorEvent:
    """The event that a line tells.  Raises ValueError for another message."""
    return FloorEvent(
        FloorEventKind(message.kind),
        message.seconds("at") or 0.0,
        available_bytes=message.number("available"),
        total_bytes=message.number("total"),
        floor_bytes=message.number("floor") or 0,
        fall_bytes_s=message.seconds("fall") or 0.0,
        victim=message.values.get("victim"),
        grace_s=message.seconds("grace"),
        exit_s=message.seconds("exit"),
        back_bytes=message.number("back"),
        detail=message.values.get("detail"),
    )


def render_past(past: Past) -> bytes:
    """What a next sampler must know: whom this one has signalled, and when."""
    action = past.action
    if action is None:
        return render_message("past", stopped=_names(past.stopped))
    return render_message(
        "past",
        stopped=_names(past.stopped),
        victim=action.victim,
        at=_seconds(action.at_s),
        before=action.before_bytes,
        fall=f"{action.fall_bytes_s:.0f}",
        deadline=_seconds(action.deadline_s),
        killed=_seconds(action.killed_s),
        left=action.killed_bytes,
        gone=_seconds(action.gone_s),
    )


def parse_past(message: Message) -> Past:
    """The past that a line tells, without its samples.  Raises ValueError for another message."""
    stopped = parse_names(message.values.get("stopped", ""))
    victim = message.values.get("victim")
    if victim is None:
        return Past(stopped=frozenset(stopped))
    action = Action(
        victim,
        message.seconds("at") or 0.0,
        message.number("before") or 0,
        message.seconds("fall") or 0.0,
        message.seconds("deadline") or 0.0,
        message.seconds("killed"),
        message.number("left") or 0,
        message.seconds("gone"),
    )
    return Past(action=action, stopped=frozenset(stopped))


def parse_names(text: str) -> tuple[str, ...]:
    """Names joined by commas, which no name holds."""
    return tuple(text.split(",")) if text else ()


def _names(names: frozenset[str]) -> str:
    return ",".join(sorted(names))


def _seconds(value: float | None) -> str | None:
    return None if value is None else f"{value:.6f}"
