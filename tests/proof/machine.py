"""Hypothesis chooses what happens to a node, step by step.

It chooses the rules and, for each, a number by which the rest is drawn: by itself it would repeat
what it drew before, and whole kinds of faults would be met in no life of a hundred.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from lumbridge_compute.effects import STATE_FILE
from tests.fakes.faults import Kind
from tests.proof.circumstances import circumstances
from tests.proof.damage import DAMAGES
from tests.proof.edits import EDITS
from tests.proof.facts import ours, parsed
from tests.proof.life import COMMANDS, TURNS, Life, Step
from tests.proof.starts import MODELS, PORTS, STARTS

REACHED: Counter[str] = Counter()
"""How often each circumstance, command, fault and answer was met in this process."""

_T = TypeVar("_T")
_luck = st.integers(0, 2**32 - 1)
# What few effects can meet is drawn more often.
_KINDS = (*Kind, Kind.ENOSPC, Kind.ENOSPC_EVER, Kind.EIO, Kind.MODEL_DIES)
_RESUMES = ("resume", "resume-agent", "resume-force")
_ADOPTS = ("adopt-day", "adopt-night", "adopt-day-pids")
_OTHERS = tuple(name for name in COMMANDS if name.split("-")[0] not in ("activate", "resume"))
_CUTS = (Kind.KILL, Kind.POWER, Kind.INTERRUPT_TWICE, Kind.LEAVE)
_MOMENTS = (None, "signal_group", "release", "ask", "rename", "fsync_folder")
_PORTS = tuple(sorted({str(port) for port in PORTS.values()}))
_NAMES = tuple(sorted(MODELS))


class NodeMachine(RuleBasedStateMachine):
    """One life of a node.  Its rules are few, so that each comes up often enough."""

    life: Life

    @initialize(luck=_luck)
    def begins(self, luck: int) -> None:
        chance = random.Random(luck)
        self.life = Life(chance.choice(sorted(STARTS)), chance.randrange(4), REACHED)
        if chance.random() < 0.5:
            self.life.take(("churn", "on"))

    def _draw(self, luck: int) -> _Draw:
        return _Draw(random.Random(f"{luck} {len(self.life.steps)}"))

    # commands

    @rule(luck=_luck)
    def activates(self, luck: int) -> None:
        draw = self._draw(luck)
        self._run(f"activate-{draw.one(('day', 'night'))}", draw, draw.fault())

    @rule(luck=_luck)
    def resumes(self, luck: int) -> None:
        draw = self._draw(luck)
        self._run(draw.one(_RESUMES), draw, draw.fault())

    @rule(luck=_luck)
    def another_command(self, luck: int) -> None:
        draw = self._draw(luck)
        self._run(draw.one(_OTHERS), draw, draw.fault())

    @rule(luck=_luck)
    def is_cut_off(self, luck: int) -> None:
        """A switch to the Scene that is not active is cut off: what follows has to cope."""
        draw = self._draw(luck)
        state = parsed(self.life.world.disk.read(STATE_FILE))
        other = "night" if state is None or state.active_scene == "day" else "day"
        name = draw.one((f"activate-{other}", f"activate-{other}", "deactivate"))
        self._run(name, draw, draw.one(_CUTS), draw.one(_MOMENTS))

    @rule(luck=_luck)
    @precondition(lambda self: any(ours(self.life.world)))
    def fails_again_and_again(self, luck: int) -> None:
        """A model that runs can't start any more, and is missed."""
        draw = self._draw(luck)
        victim = max(ours(self.life.world), key=lambda body: body.start).name
        if victim in MODELS:
            self.life.take(("turn", victim, "dying"))
            self.life.take(("die", victim, draw.one(("whole", "leader"))))
            name = draw.one(_RESUMES[:2])
            for _ in range(3):
                self._run(name, draw)

    @rule(luck=_luck)
    @precondition(lambda self: not {"legacy", "lost its record"}.isdisjoint(_now(self)))
    def adopts(self, luck: int) -> None:
        draw = self._draw(luck)
        self._run(draw.one(_ADOPTS), draw)

    def _run(
        self, name: str, draw: _Draw, kind: Kind | None = None, near: str | None = None
    ) -> None:
        faults = self.life.faults_of(name, kind, near) if kind is not None else []
        self.life.take(("run", name, *([str(draw.one(faults))] if faults else [])))

    # what else happens

    @rule(luck=_luck)
    @precondition(lambda self: any(ours(self.life.world)))
    def something_ends(self, luck: int) -> None:
        draw = self._draw(luck)
        name = draw.one(sorted({str(body.model) for body in ours(self.life.world)}))
        self.life.take(
            draw.one(
                (
                    ("die", name, "whole"),
                    ("die", name, "leader"),
                    ("die", name, "leader"),
                    ("loses", name),
                    ("floor", name),
                    ("wait", draw.one(("0.05", "0.3", "3"))),
                )
            )
        )

    @rule(luck=_luck)
    def the_machine_changes(self, luck: int) -> None:
        draw = self._draw(luck)
        self.life.take(
            draw.one(
                (
                    ("stranger", draw.one(_PORTS)),
                    ("strangers-go",),
                    ("strangers-go",),
                    ("churn", draw.one(("on", "off"))),
                    ("reboot", draw.one(("0", "4"))),
                    ("turn", draw.one(_NAMES), draw.one(sorted(TURNS))),
                    ("turn", draw.one(_NAMES), "well"),
                )
            )
        )

    @rule(luck=_luck)
    def a_file_changes(self, luck: int) -> None:
        """Of compute.yaml or state.yaml; where it can't be read then, mostly for one command."""
        draw = self._draw(luck)
        what = draw.one(("edit", "edit", "edit", "break", "damage"))
        if what == "edit":
            self.life.take(("edit", *draw.one((*EDITS, "undone", "undone")).split()))
            return
        done: Step = ("edit", "broken")
        undone: Step = ("edit", "mended")
        if what == "damage" and "damaged" not in _now(self):
            done, undone = ("damage", draw.one(DAMAGES), f"{draw.part():.3f}"), ("put-back",)
        self.life.take(done)
        self._run(draw.one(COMMANDS), draw)
        if draw.part() < 0.7:
            self.life.take(undone)

    @rule()
    @precondition(lambda self: not {"damaged", "registry broken"}.isdisjoint(_now(self)))
    def the_files_are_mended(self) -> None:
        self.life.take(("put-back",))
        self.life.take(("edit", "mended"))

    def teardown(self) -> None:
        if hasattr(self, "life"):
            self.life.end()


class _Draw:
    """Draws from one number."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def one(self, among: Sequence[_T]) -> _T:
        return self._chance.choice(among)

    def part(self) -> float:
        return self._chance.random()

    def fault(self) -> Kind | None:
        """None one time in three."""
        return self.one(_KINDS) if self.part() < 0.67 else None


def _now(machine: NodeMachine) -> set[str]:
    return circumstances(machine.life.world)
