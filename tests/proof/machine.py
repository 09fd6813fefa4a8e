"""Hypothesis chooses what happens to a node, step by step, and makes what breaks it small."""

from __future__ import annotations

from collections import Counter

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

names = st.sampled_from(sorted(MODELS))
scenes = st.sampled_from(["day", "night"])
kinds = st.none() | st.sampled_from(Kind)
parts = st.integers(0, 999).map(lambda n: n / 1000)
stays = st.sampled_from([False, False, False, True])
ADOPTS = ("adopt-day", "adopt-night", "adopt-day-pids")
CUTS = (Kind.KILL, Kind.POWER, Kind.INTERRUPT_TWICE, Kind.LEAVE)
MOMENTS = (None, "signal_group", "release", "ask", "rename")
OTHERS = tuple(name for name in COMMANDS if name.split("-")[0] not in ("activate", "resume"))


class NodeMachine(RuleBasedStateMachine):
    """One life of a node.  Its rules are few, so that each comes up often enough; what they do is
    drawn inside them."""

    life: Life

    @initialize(start=st.sampled_from(sorted(STARTS)), seed=st.integers(0, 3), churn=st.booleans())
    def begins(self, start: str, seed: int, *, churn: bool) -> None:
        self.life = Life(start, seed, REACHED)
        if churn:
            self.life.take(("churn", "on"))

    # commands

    @rule(scene=scenes, kind=kinds, part=parts)
    def activate(self, scene: str, kind: Kind | None, part: float) -> None:
        self._run(f"activate-{scene}", kind, part)

    @rule(name=st.sampled_from(["resume", "resume-agent", "resume-force"]), kind=kinds, part=parts)
    def resume(self, name: str, kind: Kind | None, part: float) -> None:
        self._run(name, kind, part)

    @rule(name=st.sampled_from(OTHERS), kind=kinds, part=parts)
    def command(self, name: str, kind: Kind | None, part: float) -> None:
        self._run(name, kind, part)

    @rule(kind=st.sampled_from(CUTS), part=parts, near=st.sampled_from(MOMENTS))
    def crashes(self, kind: Kind, part: float, near: str | None) -> None:
        """A switch to the Scene that is not active is cut off: what follows has to cope."""
        state = parsed(self.life.world.disk.read(STATE_FILE))
        other = "night" if state is None or state.active_scene == "day" else "day"
        self._run(f"activate-{other}", kind, part, near)

    @rule(whole=st.booleans(), name=st.sampled_from(["resume", "resume-agent"]))
    @precondition(lambda self: any(ours(self.life.world)))
    def fails_again_and_again(self, name: str, *, whole: bool) -> None:
        """A model that runs can't start any more, and is missed."""
        victim = max(ours(self.life.world), key=lambda body: body.start).name
        if victim in MODELS:
            self.life.take(("turn", victim, "dying"))
            self.life.take(("die", victim, "whole" if whole else "leader"))
            for _ in range(3):
                self._run(name, None, 0)

    def _run(self, name: str, kind: Kind | None, part: float, near: str | None = None) -> None:
        faults = self.life.faults_of(name, kind, near) if kind is not None else []
        chosen = [str(faults[int(part * len(faults))])] if faults else []
        self.life.take(("run", name, *chosen))

    # what else happens

    @rule(
        step=st.one_of(
            st.tuples(st.just("die"), names, st.sampled_from(["whole", "leader"])),
            st.tuples(st.sampled_from(["loses", "floor"]), names),
            st.tuples(st.just("wait"), st.sampled_from(["0.05", "0.3", "3"])),
        )
    )
    @precondition(lambda self: any(ours(self.life.world)))
    def something_dies(self, step: Step) -> None:
        self.life.take(step)

    @rule(name=names, how=st.sampled_from(sorted(TURNS)))
    def a_server_turns(self, name: str, how: str) -> None:
        self.life.take(("turn", name, how))

    @rule(
        step=st.one_of(
            st.tuples(st.just("stranger"), st.sampled_from(sorted({*map(str, PORTS.values())}))),
            st.just(("strangers-go",)),
            st.tuples(st.just("churn"), st.sampled_from(["on", "off"])),
            st.tuples(st.just("reboot"), st.sampled_from(["0", "4"])),
        )
    )
    def the_machine_changes(self, step: Step) -> None:
        self.life.take(step)

    @rule(edit=st.sampled_from((*EDITS, "undone")))
    def the_registry_is_edited(self, edit: str) -> None:
        self.life.take(("edit", *edit.split()))

    @rule(name=st.sampled_from(COMMANDS), stays=stays)
    def the_registry_is_broken(self, name: str, *, stays: bool) -> None:
        self.life.take(("edit", "broken"))
        self._run(name, None, 0)
        if not stays:
            self.life.take(("edit", "mended"))

    @rule()
    @precondition(lambda self: self.life.world.registry_fault is not None)
    def the_registry_is_mended(self) -> None:
        self.life.take(("edit", "mended"))

    @rule(kind=st.sampled_from(DAMAGES), part=parts, name=st.sampled_from(COMMANDS), stays=stays)
    @precondition(lambda self: "damaged" not in _now(self))
    def the_state_is_damaged(self, kind: str, part: float, name: str, *, stays: bool) -> None:
        self.life.take(("damage", kind, str(part)))
        self._run(name, None, 0)
        if not stays:
            self.life.take(("put-back",))

    @rule()
    @precondition(lambda self: "damaged" in _now(self))
    def the_state_is_put_back(self) -> None:
        self.life.take(("put-back",))

    @rule(name=st.sampled_from(ADOPTS))
    @precondition(lambda self: not {"legacy", "lost its record"}.isdisjoint(_now(self)))
    def adopt(self, name: str) -> None:
        self._run(name, None, 0)

    def teardown(self) -> None:
        if hasattr(self, "life"):
            self.life.end()


def _now(machine: NodeMachine) -> set[str]:
    return circumstances(machine.life.world)
