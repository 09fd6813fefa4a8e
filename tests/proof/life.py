"""The life of one node: commands with faults, and all that happens to it between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from lumbridge_compute.core.events import Outcome
from lumbridge_compute.core.state import Bound, FloorLatch, NodeState, record_loss, with_latch
from lumbridge_compute.effects import STATE_FILE, Holder
from lumbridge_compute.errors import Exit
from lumbridge_compute.interruption import Interruption
from lumbridge_compute.journal import Journal
from lumbridge_compute.orders import Command, Order
from tests.fakes.bodies import Body
from tests.fakes.faults import Fault, Kind
from tests.fakes.running import Run, run_command, run_work
from tests.fakes.sim_effects import Call, SimEffects
from tests.proof.circumstances import circumstances
from tests.proof.damage import damaged
from tests.proof.edits import edited
from tests.proof.enumerator import ORDERS, RESUME, faults_at, lasting, settled, unconverged
from tests.proof.facts import parsed, state_of
from tests.proof.looking import look_at_status
from tests.proof.report import render_ending, render_runs
from tests.proof.starts import STARTS
from tests.proof.witness import Checks, Violation

Step = tuple[str, ...]
"""What happens next, as words: the first names the kind of step."""

TURNS: dict[str, dict[str, object]] = {
    "well": {},
    "dying": {"dies_after_s": 0.03},
    "lying": {"marker": "another"},
    "silent": {"silent": True},
    "slow": {"load_s": 5.0, "term_s": 0.9},
    "stubborn": {"ignores_term": True},
}
"""How the programs of a model may change."""

COMMANDS = (*ORDERS, "adopt-night", "adopt-day-pids", "forget-ear", "forget-think", "status")


class Broken(AssertionError):
    """A promise was broken; the text tells the whole life, of these `steps`."""

    def __init__(self, name: str, steps: Sequence[Step], told: str) -> None:
        super().__init__(told)
        self.name = name
        self.steps = tuple(steps)


class Life:
    """Takes one step after another and judges each.  `reached` counts what was met."""

    def __init__(self, start: str, seed: int = 0, reached: Counter[str] | None = None) -> None:
        self.steps: list[Step] = [("start", start, str(seed))]
        self.reached: Counter[str] = reached if reached is not None else Counter()
        self.world = STARTS[start](seed)
        self._programs = dict(self.world.programs)
        self._registry = self.world.registry
        self._last: Run | None = None
        self._last_label = ""
        self._good: bytes | None = None
        self._know_ours()

    def take(self, step: Step) -> None:
        """Do what `step` says.  Raises Broken where a promise is broken by it."""
        self.steps.append(step)
        kind, *words = step
        getattr(self, f"_{kind.replace('-', '_')}")(*words)
        self._know_ours()

    def faults_of(self, order: str, kind: Kind, near: str | None = None) -> list[Fault]:
        """Every fault of this kind that strikes this command now; `near` effects of that name,
        where there is any."""
        calls: tuple[Call, ...] = ()
        if order != "status":
            made = self._order(order)
            calls = run_command(self.world.copy(), made, lambda e: Checks(e, made)).calls
        named = [call for call in calls if call.name == near]
        return [fault for call in named or calls for fault in faults_at(call, (kind,))]

    def end(self) -> None:
        """The operator mends what only he can; then one resume converges and a second has no
        effect."""
        self.steps.append(("end",))
        world = self.world
        if parsed(world.disk.read(STATE_FILE)) is None:
            before = world.disk.read(STATE_FILE)
            run = self._command("resume on damage", RESUME)
            if run.outcome is None or run.outcome.exit is not Exit.BAD_INPUT:
                self._unmet("damage", f"a resume ended with {render_ending(run)}")
            if world.disk.read(STATE_FILE) != before:
                self._unmet("damage", "a resume has changed it")
            world.disk.put(STATE_FILE, self._good or b"version: 0\n")
        self._mend()
        if parsed(world.disk.read(STATE_FILE)) is None:
            return
        first = self._command("last resume", RESUME)
        if (cause := unconverged(world, first)) is not None:
            self._unmet("converges", cause)
        before = world.disk.read(STATE_FILE)
        again = self._command("resume again", RESUME)
        if settled(first) and (calls := lasting(again)):
            self._unmet("converges", f"{calls[0]} by a resume after a good one")
        if settled(first) and world.disk.read(STATE_FILE) != before:
            self._unmet("converges", "the state has changed")
        self.reached["converged to a Scene" if state_of(world).active_scene else "converged"] += 1

    # commands

    def _run(self, name: str, *faults: str) -> None:
        found = tuple(map(Fault.parse, faults))
        self.reached.update(circumstances(self.world))
        self.reached[f"run {name.split('-', maxsplit=1)[0]}"] += 1
        self.reached.update(f"fault {fault.kind}" for fault in found)
        self.reached["fault"] += bool(found)
        if name == "status":
            look_at_status(self.world, self._unmet)
            return
        run = self._command(name, self._order(name), found)
        if run.outcome is None:
            self.reached["killed"] += 1
        else:
            self.reached[f"exit {int(run.outcome.exit)}"] += 1

    def _order(self, name: str) -> Order:
        if name in ORDERS:
            return ORDERS[name]
        command, rest = name.split("-", 1)
        scene = rest.removesuffix("-pids")
        pids: dict[str, int] = {}
        if scene != rest and scene in self.world.registry.scenes:
            names = self.world.registry.scenes[scene].models
            pids = {b.name: b.pid for b in self.world.living() if b.leads and b.name in names}
        return Order(Command(command), scene, pids=pids)

    def _command(self, label: str, order: Order, faults: tuple[Fault, ...] = ()) -> Run:
        return self._judge(
            label, order, lambda witness: run_command(self.world, order, witness, faults)
        )

    def _judge(
        self, label: str, order: Order, go: Callable[[Callable[[SimEffects], Checks]], Run]
    ) -> Run:
        made: list[Checks] = []

        def witness(effects: SimEffects) -> Checks:
            made.append(Checks(effects, order))
            return made[0]

        self._last_label, self._last = label, None
        self._last = run = go(witness)
        made[0].finish(run)
        if made[0].violations:
            raise self._broken(made[0].violations)
        return run

    def _unmet(self, name: str, cause: str) -> None:
        number = len(self._last.calls) - 1 if self._last is not None else 0
        raise self._broken([Violation(name, number, cause)])

    def _broken(self, violations: Sequence[Violation]) -> Broken:
        return Broken(violations[0].name, self.steps, "\n".join(self.told(violations)))

    def told(self, violations: Sequence[Violation]) -> Iterator[str]:
        """What broke, how it came to that, and the command that shows it again."""
        for violation in violations:
            yield f"broken: {violation}"
        yield from ("--- the life", *("  " + " ".join(step) for step in self.steps))
        runs = [(self._last_label, self._last)] if self._last is not None else []
        numbers = [violation.number for violation in violations]
        yield from render_runs(runs, lambda _label: numbers, self.world)
        yield f"replay: scripts/prove --live '{render_steps(self.steps)}'"

    # what an agent writes between commands

    def _loses(self, name: str) -> None:
        """A model dies, and the agent records it."""
        if self._die(name, "whole"):
            self._record(lambda state: _lost(state, name, None))

    def _floor(self, name: str) -> None:
        """The floor stops a model, and the agent records it."""
        if self._die(name, "whole"):
            latch = FloorLatch(state_of(self.world).active_scene, self.world.boot_id, "2026-01-01")
            self._record(lambda state: _lost(state, name, latch))

    def _record(self, change: Callable[[NodeState], NodeState]) -> None:
        async def work(effects: SimEffects, _interruption: Interruption) -> Outcome:
            lock = effects.try_lock("agent")
            assert not isinstance(lock, Holder)
            try:
                journal = Journal(effects)
                await journal.load()
                await journal.update(change)
            finally:
                lock.release()
            return Outcome(Exit.DONE, active_scene=journal.state.active_scene)

        if parsed(self.world.disk.read(STATE_FILE)) is not None:
            order = Order(Command.FORGET)
            self._judge("agent records", order, lambda seen: run_work(self.world, work, seen))

    # what else happens

    def _edit(self, *words: str) -> None:
        if words == ("broken",):
            self.world.registry_fault = "line 3: unknown key"
        elif words == ("mended",):
            self.world.registry_fault = None
        elif words == ("undone",):
            self.world.registry = self._registry
        else:
            self.world.registry = edited(self.world.registry, words)

    def _damage(self, kind: str, part: str) -> None:
        before = self.world.disk.read(STATE_FILE) or b""
        after = damaged(before, kind, float(part))
        self._good = before if parsed(before) is not None else self._good
        if after is not None:
            self.world.disk.put(STATE_FILE, after)

    def _put_back(self) -> None:
        """The operator puts back the last state file that could be read."""
        if parsed(self.world.disk.read(STATE_FILE)) is None and self._good is not None:
            self.world.disk.put(STATE_FILE, self._good)

    def _reboot(self, strangers: str) -> None:
        """The power fails; so many strangers have the first PIDs afterwards."""
        self.world.reboot()
        for _ in range(int(strangers)):
            self.world.stranger()

    def _wait(self, seconds: str) -> None:
        self.world.advance(self.world.now_s + float(seconds))

    def _die(self, name: str, whole: str) -> bool:
        leaders = [b for b in self.world.living() if b.model == name and b.leads]
        for leader in leaders:
            for body in list(self.world.living()):
                if body is leader or (whole == "whole" and body.start == leader.start):
                    self.world.end(body, "killed by SIGKILL")
        return bool(leaders)

    def _turn(self, name: str, how: str) -> None:
        """A model's server behaves in another way, also where it runs already."""
        changes: dict[str, object] = TURNS[how]
        program = replace(self._programs[name], **changes)  # type: ignore[arg-type]
        self.world.programs[name] = program
        if how != "dying":
            for body in self.world.living():
                if body.name == name and body.program is not None:
                    body.program = replace(
                        body.program, marker=program.marker, silent=program.silent
                    )

    def _stranger(self, port: str) -> None:
        """A stranger comes, on a port where nobody or only those that share it listen."""
        markers = {model.port: model.marker for model in self.world.registry.models.values()}
        if all(body.shares_port for body in self.world.listeners(int(port))):
            self.world.stranger(port=int(port), marker=markers.get(int(port), ""))

    def _strangers_go(self) -> None:
        self.world.remove_strangers()

    def _churn(self, whether: str) -> None:
        self.world.churn = whether == "on"

    # whose a process is

    def _know_ours(self) -> None:
        """A process is ours while a record names it: what an operator let go, or damage took from
        the file, is a stranger's by then.  A token that no record has proves nothing."""
        state = parsed(self.world.disk.read(STATE_FILE))
        if state is None:
            return
        for body in self.world.bodies.values():
            if body.start:
                self._know(body, state)

    def _know(self, body: Body, state: NodeState) -> None:
        leader = self.world.leaders[body.start]
        for name, record in state.processes.items():
            if isinstance(record, Bound) and record.identity.matches(leader):
                body.model = name
                body.token = body.token if body.token == record.token else None
                body.scope = body.scope if body.scope == record.scope else None
                return
            if not isinstance(record, Bound) and record.pid == leader.pid:
                alive = self.world.body_of(leader) is not None
                body.model = name if alive else None
                body.token = body.scope = None
                return
        body.model = None

    def _mend(self) -> None:
        """Strangers go, those that were ours included, and compute.yaml is as it was at first."""
        self.world.remove_strangers()
        self.world.registry_fault, self.world.registry = None, self._registry
        self._know_ours()
        for body in list(self.world.living()):
            if body.start and body.model is None:
                self.world.end(body, "killed by SIGKILL")
        self.world.advance(self.world.now_s + 10)


def render_steps(steps: Sequence[Step]) -> str:
    """One line that `parse_steps` reads again."""
    return "; ".join(" ".join(step) for step in steps)


def live(text: str) -> None:
    """Live a rendered life again.  Raises Broken as it did."""
    _live([tuple(part.split()) for part in text.split(";")])


def smallest(broken: Broken) -> Broken:
    """The same promise broken by as few steps as it takes: each that can be left out is."""
    at = len(broken.steps) - 1
    while at > 0:
        steps = (*broken.steps[:at], *broken.steps[at + 1 :])
        try:
            _live(steps)
        except Broken as smaller:
            if smaller.name == broken.name:
                broken = smaller
        at = min(at, len(broken.steps)) - 1
    return broken


def _live(steps: Sequence[Step]) -> None:
    (_, start, seed), *rest = steps
    life = Life(start, int(seed))
    for step in rest:
        if step == ("end",):
            life.end()
        else:
            life.take(step)


def _lost(state: NodeState, name: str, latch: FloorLatch | None) -> NodeState:
    """As the agent's watch over processes records it."""
    if latch is not None:
        state = with_latch(state, latch)
    if name not in state.processes or state.active_scene is None:
        return state
    return record_loss(state, f"{name!r} has ended")
