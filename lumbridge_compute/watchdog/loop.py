"""Looks, decisions and signals joined: the same code in the sampler process and in the agent.

Nothing here waits, and nothing loads trio.  Before a signal leaves, nothing is written anywhere
and nothing grows: the same few small values are made at every look.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable

from lumbridge_compute.core.floor import (
    Decision,
    FloorPolicy,
    Look,
    Past,
    Verdict,
    decide,
    find_victim,
    forget_stopped,
    pass_over,
)
from lumbridge_compute.core.values import dataclass, replace
from lumbridge_compute.host import pidfd_signal
from lumbridge_compute.watchdog.protocol import (
    FloorEvent,
    FloorEventKind,
    Message,
    parse_names,
    parse_past,
)

SUMMARY_S = 2.0

_SIGNALS = {Verdict.SOFT: signal.SIGTERM, Verdict.HARD: signal.SIGKILL}
_KINDS = {Verdict.SOFT: FloorEventKind.TERM, Verdict.HARD: FloorEventKind.KILL}


@dataclass(frozen=True, slots=True)
class Target:
    """A model that may be stopped: a pidfd, the PID behind it, and whether its group is its own
    and may be signalled as a whole."""

    name: str
    pidfd: int
    pid: int
    group: bool = True


class Signaller:
    """Who signals, and tells what lives: through pidfds.  A test takes another."""

    def send(self, target: Target, number: int) -> bool:
        """False when nobody is left to signal.  Raises OSError where it is not allowed."""
        if target.group:
            return pidfd_signal.send_group(target.pidfd, target.pid, number)
        return pidfd_signal.send(target.pidfd, number)

    def lives(self, target: Target) -> bool:
        """True while anything of the target is alive; a zombie is not."""
        if target.group:
            return pidfd_signal.group_lives(target.pidfd, target.pid)
        return not pidfd_signal.has_ended(target.pidfd)

    def release(self, target: Target) -> None:
        """Help a killed target to give its memory back."""
        pidfd_signal.release_memory(target.pidfd)


@dataclass(frozen=True, slots=True)
class Senses:
    """How a loop meets the machine: `read` gives MemAvailable and MemTotal in bytes (None: can't
    be read), `now` is a steady clock in seconds."""

    read: Callable[[], tuple[int | None, int | None]]
    now: Callable[[], float]
    signaller: Signaller


class FloorLoop:
    """The floor over one set of targets.  Call `look` again after the seconds that it returns.

    `tell` takes events, and `keep` the past after each change of what a successor must know; both
    after the signal.
    """

    def __init__(
        self,
        senses: Senses,
        *,
        tell: Callable[[FloorEvent], None],
        keep: Callable[[Past], None],
    ) -> None:
        self.policy = FloorPolicy(0)
        self.past = Past()
        self._read, self._now, self._signaller = senses.read, senses.now, senses.signaller
        self._tell, self._keep = tell, keep
        self._targets: dict[str, Target] = {}
        self._order: tuple[str, ...] = ()
        self._blind = False
        self._helpless = False
        self._told_s: float | None = None

    def add(self, target: Target) -> None:
        """Guard `target`, whose pidfd is the loop's from now on; an older one of its name goes."""
        self.remove(target.name)
        self._targets[target.name] = target
        if target.name in self.past.stopped:
            self.past = forget_stopped(self.past, target.name, self._now())
            self._keep(self.past)

    def remove(self, name: str) -> None:
        """Let go of `name`.  If it was being stopped, it counts as gone, and is waited for."""
        target = self._targets.pop(name, None)
        if target is not None:
            os.close(target.pidfd)

    def set_order(self, names: Iterable[str]) -> None:
        """Who goes first; targets that are not named are never chosen."""
        self._order = tuple(names)

    def close(self) -> None:
        """Let go of all targets."""
        for target in self._targets.values():
            os.close(target.pidfd)
        self._targets.clear()

    def look(self) -> float:
        """Look once and act; the seconds until the next look."""
        available, total = self._read()
        low = available is not None and available < self.policy.floor_bytes
        victims = self._victims() if low else ()
        look = Look(self._now(), available, total, victims, self._is_gone())
        before = self.past
        decision = decide(self.policy, before, look)
        self.past = decision.past
        sent = self._act(decision)
        if before.action != self.past.action or before.stopped != self.past.stopped:
            self._keep(self.past)
        self._report(decision, look, sent)
        return decision.sleep_s

    def _victims(self) -> tuple[str, ...]:
        """Who may be signalled, first victim first: what is signalled already is left out."""
        targets = (self._targets.get(name) for name in self._order)
        return tuple(
            target.name
            for target in targets
            if target and target.name not in self.past.stopped and self._signaller.lives(target)
        )

    def _is_gone(self) -> bool:
        action = self.past.action
        if action is None or action.gone_s is not None:
            return False
        target = self._targets.get(action.victim)
        return target is None or not self._signaller.lives(target)

    def _act(self, decision: Decision) -> str | None:
        """Send the signal; None when it left or none was due, else why it did not."""
        if decision.victim is None:
            return None
        target = self._targets[decision.victim]
        try:
            self._signaller.send(target, _SIGNALS[decision.verdict])
        except OSError as error:
            self.past = pass_over(self.past, target.name)
            return os.strerror(error.errno or 0)
        if decision.verdict is Verdict.HARD:
            self._signaller.release(target)
        return None

    def _report(self, decision: Decision, look: Look, refusal: str | None) -> None:
        seen = FloorEvent(
            FloorEventKind.SAMPLE,
            look.at_s,
            available_bytes=look.available_bytes,
            total_bytes=look.total_bytes,
            floor_bytes=self.policy.floor_bytes,
            fall_bytes_s=decision.fall_bytes_s,
        )
        self._report_settled(decision, seen)
        self._report_signal(decision, seen, refusal)
        if decision.rearmed:
            self._tell(replace(seen, kind=FloorEventKind.REARMED))
        self._report_sight(decision, seen)
        self._report_helplessness(decision, look, seen)
        if self._told_s is None or look.at_s - self._told_s >= SUMMARY_S:
            self._told_s = look.at_s
            self._tell(seen)

    def _report_settled(self, decision: Decision, seen: FloorEvent) -> None:
        settled = decision.settled
        if settled is None:
            return
        event = replace(seen, kind=FloorEventKind.STOPPED, victim=settled.action.victim)
        last = "KILL" if settled.killed else "TERM"
        self._tell(
            replace(event, exit_s=settled.exit_s, back_bytes=settled.back_bytes, detail=last)
        )

    def _report_signal(self, decision: Decision, seen: FloorEvent, refusal: str | None) -> None:
        if decision.victim is None:
            return
        event = replace(seen, kind=_KINDS[decision.verdict], victim=decision.victim)
        action = decision.past.action
        if refusal is not None:
            event = replace(event, kind=FloorEventKind.REFUSED, detail=refusal)
        elif action is not None and decision.verdict is Verdict.SOFT:
            event = replace(event, grace_s=action.deadline_s - seen.at_s)
        self._tell(event)

    def _report_sight(self, decision: Decision, seen: FloorEvent) -> None:
        blind = decision.verdict is Verdict.BLIND
        if blind != self._blind:
            kind = FloorEventKind.BLIND if blind else FloorEventKind.SEES
            self._tell(replace(seen, kind=kind, detail=decision.cause))
        self._blind = blind

    def _report_helplessness(self, decision: Decision, look: Look, seen: FloorEvent) -> None:
        low = decision.verdict in (Verdict.SOFT, Verdict.HARD)
        helpless = low and self.past.action is None and not find_victim(self.past, look.victims)
        if helpless and not self._helpless:
            self._tell(replace(seen, kind=FloorEventKind.HELPLESS))
        if helpless or decision.verdict is Verdict.FINE:
            self._helpless = helpless


def obey(loop: FloorLoop, message: Message, descriptor: int) -> None:
    """Do what a message to a watcher says.  Raises ValueError for another one.

    `descriptor` is what came with it, the loop's from now on; -1 for none.
    """
    if message.kind == "floor":
        loop.policy = FloorPolicy(message.number("bytes") or 0)
    elif message.kind == "order":
        loop.set_order(parse_names(message.text("names")))
    elif message.kind == "remove":
        loop.remove(message.text("name"))
    elif message.kind == "past":
        loop.past = parse_past(message)
    elif message.kind == "add" and descriptor >= 0:
        pid, group = int(message.text("pid")), message.text("group") == "1"
        loop.add(Target(message.text("name"), descriptor, pid, group))
    else:
        raise ValueError(f"cannot obey {message.kind!r}: no such message, or no descriptor")
