"""Every start x command x effect x fault, then resume, then a second fault in that resume."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from lumbridge_compute.core.state import NodeState
from lumbridge_compute.effects import STATE_FILE
from lumbridge_compute.errors import Exit
from lumbridge_compute.orders import Command, Order
from tests.fakes.faults import AFFECTED, Fault, Kind
from tests.fakes.running import Run, run_command
from tests.fakes.sim_effects import Call, SimEffects
from tests.fakes.world import World
from tests.proof.facts import ours, parsed, state_of, whole
from tests.proof.starts import STARTS
from tests.proof.witness import CHANGES, Checks, Violation

ORDERS: dict[str, Order] = {
    "activate-day": Order(Command.ACTIVATE, "day"),
    "activate-night": Order(Command.ACTIVATE, "night"),
    "plan-night": Order(Command.ACTIVATE, "night", dry_run=True),
    "resume": Order(Command.RESUME),
    "resume-force": Order(Command.RESUME, force=True),
    "resume-agent": Order(Command.RESUME, by_agent=True),
    "plan-resume": Order(Command.RESUME, dry_run=True),
    "deactivate": Order(Command.DEACTIVATE),
    "adopt-day": Order(Command.ADOPT, "day"),
    "forget-talk": Order(Command.FORGET, "talk"),
}
RESUME = ORDERS["resume"]
DEADLY = (Kind.KILL, Kind.POWER)
LOOKS = 12
_OTHER_RESUMES = ("resume-force", "resume-agent")
_BOTH_SIDES = (*DEADLY, Kind.INTERRUPT, Kind.INTERRUPT_TWICE)
LASTING = (*CHANGES, "rename", "create", "fsync", "fsync_folder", "remove", "append_history")
"""Effects after which the world is another: a death between two others is one death."""


@dataclass(frozen=True, slots=True)
class Story:
    """One case.  `faults` strike the command, `later` the resume after it."""

    start: str
    order: str
    faults: tuple[Fault, ...] = ()
    later: tuple[Fault, ...] = ()
    seed: int = 0

    def __str__(self) -> str:
        return " ".join(self.words())

    def words(self) -> Iterator[str]:
        """The arguments with which `scripts/prove --replay` tells it again."""
        yield from (self.start, self.order, f"--seed={self.seed}")
        yield from (f"--fault={fault}" for fault in self.faults)
        yield from (f"--later={fault}" for fault in self.later)


@dataclass(frozen=True, slots=True)
class Told:
    """A story as it went: each run with its label, what it broke, and the world at its end."""

    story: Story
    runs: tuple[tuple[str, Run], ...]
    violations: tuple[tuple[str, Violation], ...]
    world: World


@dataclass
class Tally:
    """How much was tried."""

    runs: int = 0
    stories: int = 0
    faults: dict[Kind, int] = field(default_factory=dict)
    broken: list[Told] = field(default_factory=list)

    def add(self, told: Told) -> None:
        self.stories += 1
        self.runs += len(told.runs)
        for fault in (*told.story.faults, *told.story.later):
            self.faults[fault.kind] = self.faults.get(fault.kind, 0) + 1
        if told.violations:
            self.broken.append(told)


class Telling:
    """Runs one story, part by part."""

    def __init__(self, story: Story, world: World | None = None) -> None:
        self.story = story
        self.world = world if world is not None else STARTS[story.start](story.seed)
        self.runs: list[tuple[str, Run]] = []
        self.violations: list[tuple[str, Violation]] = []

    def run(self, label: str, order: Order, faults: tuple[Fault, ...] = ()) -> Run:
        made: list[Checks] = []

        def witness(effects: SimEffects) -> Checks:
            made.append(Checks(effects, order))
            return made[0]

        run = run_command(self.world, order, witness, faults)
        made[0].finish(run)
        self.runs.append((label, run))
        self.violations += [(label, each) for each in made[0].violations]
        return run

    def converge(self) -> None:
        """What an undisturbed resume, and a second one, must come to."""
        self.world.remove_strangers()
        if parsed(self.world.disk.read(STATE_FILE)) is None and self.story.start == "damaged":
            return
        first = self.run("resume", RESUME)
        if (cause := unconverged(self.world, first)) is not None:
            self._unmet("resume", first, cause)
            return
        before = self.world.disk.read(STATE_FILE)
        again = self.run("resume again", RESUME)
        if settled(first) and (effects := lasting(again)):
            self._unmet("resume again", again, f"{effects[0]} by a resume after a good one")
        elif settled(first) and self.world.disk.read(STATE_FILE) != before:
            self._unmet("resume again", again, "the state has changed")

    def told(self) -> Told:
        return Told(self.story, tuple(self.runs), tuple(self.violations), self.world)

    def _unmet(self, label: str, run: Run, cause: str) -> None:
        self.violations.append((label, Violation("converges", len(run.calls) - 1, cause)))


def tell(story: Story) -> Told:
    """The whole story: the command with its faults, the resume with its own, then peace."""
    telling = Telling(story)
    telling.run("command", ORDERS[story.order], story.faults)
    if story.later:
        telling.run("disturbed resume", RESUME, story.later)
    telling.converge()
    return telling.told()


def faults_at(call: Call, kinds: Iterable[Kind] = Kind) -> Iterator[Fault]:
    """Every fault that can strike at `call`, before and after it."""
    for kind in kinds:
        if kind in AFFECTED:
            if call.name in AFFECTED[kind]:
                yield Fault(kind, call.number)
                if kind is Kind.EIO and call.name in ("rename", "fsync_folder", "create"):
                    yield Fault(kind, call.number, after=True)
            continue
        if kind in DEADLY and call.name not in (*LASTING, "ask"):
            continue  # what dies between two lasting effects dies before the next
        yield Fault(kind, call.number)
        if kind in _BOTH_SIDES and call.name in LASTING:
            yield Fault(kind, call.number, after=True)


def stories(start: str, order: str, seed: int, kinds: Iterable[Kind] = Kind) -> Iterator[Story]:
    """One for each effect of the undisturbed command and each fault there.

    A loop that waits looks again and again: of so many looks in a row the first and the last ones
    count.  A resume that goes as a plain one would is not struck a second time.
    """
    kinds = tuple(kinds)
    plain = Story(start, order, seed=seed)
    yield plain
    calls = Telling(plain).run("command", ORDERS[order]).calls
    if order in _OTHER_RESUMES and _course(calls) == _course(
        Telling(Story(start, "resume", seed=seed)).run("command", RESUME).calls
    ):
        return
    for call in _worth_striking(calls):
        for fault in faults_at(call, kinds):
            yield replace(plain, faults=(fault,))


def _course(calls: Iterable[Call]) -> list[tuple[str, str]]:
    return [(call.name, call.detail) for call in calls if call.name != "try_lock"]


def _worth_striking(calls: Sequence[Call]) -> Iterator[Call]:
    for lasting, group in itertools.groupby(calls, lambda call: call.name in LASTING):
        found = list(group)
        if not lasting and len(found) > 2 * LOOKS:
            found = found[:LOOKS] + found[-LOOKS:]
        yield from found


def named_stories(start: str, order: str, kinds: str) -> Iterator[Story]:
    """As `stories`, of kinds joined by commas; for "none" the undisturbed command alone."""
    if kinds == "none":
        yield Story(start, order)
    else:
        yield from stories(start, order, 0, [Kind(kind) for kind in kinds.split(",")])


def second_stories(
    story: Story, world: World | None = None, kinds: Iterable[Kind] = DEADLY
) -> Iterator[Story]:
    """The same story with a second fault at each effect of the resume that follows it.

    `world` is what the first part has left, where that is known; it is used up.
    """
    telling = Telling(story, world)
    if world is None:
        telling.run("command", ORDERS[story.order], story.faults)
    calls = telling.run("resume", RESUME).calls
    for call in calls:
        if call.name in LASTING:
            for kind in kinds:
                yield replace(story, later=(Fault(kind, call.number),))
                yield replace(story, later=(Fault(kind, call.number, after=True),))


def signature(world: World) -> object:
    """Equal for worlds that a resume can't tell apart, but for times."""
    bodies = sorted(
        (b.pid, b.name, b.phase.name, b.group, tuple(b.listens), b.serves, b.ending, b.terms)
        for b in world.bodies.values()
    )
    return world.disk.read(STATE_FILE), tuple(bodies), world.pending(), world.boot


def settled(run: Run) -> bool:
    """True when it was answered with exit 0."""
    return run.outcome is not None and run.outcome.exit is Exit.DONE


def lasting(run: Run) -> list[Call]:
    """Its effects after which the world is another."""
    probes = ("signal", "signal_group")
    return [
        call
        for call in run.calls
        if call.name in LASTING and not (call.name in probes and call.detail.endswith(" 0"))
    ]


def unconverged(world: World, run: Run) -> str | None:
    """Why the node is not where a resume should have brought it; None when it is."""
    state = state_of(world)
    if run.outcome is None:
        return "the resume did not end"
    said = f"exit {int(run.outcome.exit)}: {run.outcome.error}"
    if run.outcome.exit is Exit.REFUSED:
        return None if _may_refuse(world, state, run) else said
    if run.outcome.exit not in (Exit.DONE, Exit.FAILED_SAFELY):
        return said
    if state.transition_scene is not None or state.deactivating:
        return f"a transition is unfinished, {said}"
    scene = state.active_scene
    if scene is not None and not whole(world, state, scene):
        return f"{scene} is active and not exactly healthy, {said}"
    wanted = set(world.registry.scenes[scene].models) if scene is not None else set()
    left = [f"{body.name} {body.pid}" for body in ours(world) if body.model not in wanted]
    return f"still alive: {', '.join(left)}" if left else None


def _may_refuse(world: World, state: NodeState, run: Run) -> bool:
    """Refusals that an operator has to answer: no resume may decide them."""
    refusals = run.outcome.refusals if run.outcome is not None else None
    codes = {each.code for each in refusals.reasons} if refusals is not None else set()
    return bool(codes) and codes <= {
        "legacy-record",
        "needs-operator",
        "unexpected-marker",
        "port-conflict",
    }


@dataclass
class Enumeration:
    """Every story of one start, or a `share` of them.

    A world that a resume can't tell from an earlier one is brought to peace once, and is where the
    second faults begin once.
    """

    start: str
    seed: int = 0
    kinds: tuple[Kind, ...] = tuple(Kind)
    twice: bool = True
    share: float = 1.0
    tally: Tally = field(default_factory=Tally)
    _seen: set[object] = field(default_factory=set)

    def run(self, orders: Iterable[str] = ORDERS) -> Tally:
        self._chance = random.Random(f"{self.start} {self.seed}")
        for order in orders:
            for story in stories(self.start, order, self.seed, self.kinds):
                if not story.faults or self._chance.random() < self.share:
                    self._tell(story)
        return self.tally

    def _tell(self, story: Story) -> None:
        telling = Telling(story)
        telling.run("command", ORDERS[story.order], story.faults)
        left = telling.world.copy()
        fresh = self._bring_to_peace(telling)
        self.tally.add(telling.told())
        if fresh and self.twice and story.faults:
            for second in second_stories(story, left.copy()):
                if self._chance.random() < self.share:
                    self._tell_second(second, left.copy())

    def _tell_second(self, story: Story, world: World) -> None:
        telling = Telling(story, world)
        telling.run("disturbed resume", RESUME, story.later)
        self._bring_to_peace(telling)
        self.tally.add(tell(story) if telling.violations else telling.told())

    def _bring_to_peace(self, telling: Telling) -> bool:
        mark = signature(telling.world)
        if mark in self._seen:
            return False
        self._seen.add(mark)
        telling.converge()
        return True
