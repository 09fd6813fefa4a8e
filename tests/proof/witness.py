"""The invariants: each a named check with its sentence, held against what really happens."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from lumbridge_compute.core.events import EventKind, Outcome
from lumbridge_compute.core.health import Answer, Request
from lumbridge_compute.core.identity import Identity
from lumbridge_compute.core.state import Bound, NodeState
from lumbridge_compute.effects import STATE_FILE
from lumbridge_compute.errors import Exit
from lumbridge_compute.orders import Command, Order
from tests.fakes.bodies import Body
from tests.fakes.faults import Fault, Kind
from tests.fakes.running import Run
from tests.fakes.sim_effects import Call, SimEffects
from tests.proof.facts import (
    exact,
    leader_identity,
    ours,
    parsed,
    provable,
    recorded,
    serves_exactly,
    state_of,
)

INVARIANTS = {
    "verified": "active = S only if every model of S was exactly verified after our last change",
    "recorded-target": "a signal's target matches a durable record at that moment",
    "no-orphan": "every live process of ours has a record or waits at its gate",
    "no-overlap": "nothing starts while what it replaces lives",
    "one-on-a-port": "never two of ours on a port",
    "converges": "after any crash one undisturbed resume converges and a second has no effect",
    "last-known-good": "last known good only ever was committed",
    "desired": "desired changes on commit, adopt and deactivate only",
    "no-effect": "refusals, dry runs and `status` have no effect at all",
    "status": "`status` says exact or idle where it is so, unknown where it can't know",
    "exit-0": "exit 0 means the target verified",
    "exit-1": "exit 1 means a proven state, as before, last known good, or idle, verified",
    "kept": "shared healthy models keep their PID",
    "strangers": "strangers are neither signalled nor waited for",
    "damage": "any bytes as state.yaml parse or are refused",
    "proof-of-death": "records shrink only after proof of death",
    "floor": "what the floor stopped does not restart by itself",
    "locked": "state is read and the node is changed only under the lock",
    "memory-follows-disk": "what is answered is what the disk says",
    "undo-once": "the way back is taken once",
    "answers": "every command ends in time with an answer: no traceback, whatever happens",
}

CHANGES = frozenset({"signal", "signal_group", "spawn", "release"})
LONGEST_S = 600.0
_PROVEN = (Exit.FAILED_SAFELY, Exit.INTERRUPTED)
_UNTOUCHED = (Exit.BAD_INPUT, Exit.REFUSED, Exit.BUSY)


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken promise: its name in INVARIANTS, after which effect, and what was seen."""

    name: str
    number: int
    detail: str

    def __str__(self) -> str:
        return f"{self.name} (after effect {self.number}): {INVARIANTS[self.name]}: {self.detail}"


@dataclass
class Checks:
    """A witness that holds every invariant against one run.  `violations` is what it found."""

    effects: SimEffects
    order: Order
    violations: list[Violation] = field(default_factory=list)
    struck: list[Fault] = field(default_factory=list)
    _hit: list[Body] = field(default_factory=list)
    _last_change: int = -1
    _exact_at: dict[Identity, int] = field(default_factory=dict)
    _good_scenes: set[str | None] = field(default_factory=set)
    _changes: list[str] = field(default_factory=list)
    _disturbed: bool = False
    _ports_seen_at: int = -1

    def __post_init__(self) -> None:
        self.world = self.effects.world
        self.before = self.world.disk.read(STATE_FILE)
        self.first = parsed(self.before) or NodeState()
        self._good_scenes |= {self.first.active_scene, self.first.last_known_good_scene}
        self._kept = self._shared()
        self._unrecorded = {
            body.start
            for body in self.world.ours()
            if not recorded(self.first, leader_identity(self.world, body))
        }

    # what is seen on the way

    def calls(self, call: Call) -> None:
        if call.name in CHANGES or call.name == "rename":
            if not self.effects.holds_lock:
                self._broken("locked", f"{call} without the lock")
            self._no_orphans()
        if self.world.version != self._ports_seen_at:  # who listens changes with it alone
            self._ports_seen_at = self.world.version
            self._one_on_a_port()

    def reads_state(self) -> None:
        if not self.effects.holds_lock and not self.order.dry_run:
            self._broken("locked", "the state was read without the lock")

    def strikes(self, fault: Fault, hit: Body | None) -> None:
        self.struck.append(fault)
        if hit is not None:
            self._hit.append(hit)
        if fault.kind in (Kind.MODEL_DIES, Kind.LEADER_DIES, Kind.STRANGER, Kind.FLOOR):
            self._disturbed = True

    def signals(self, handle: Body, number: int, reached: Collection[Body]) -> None:
        self._change(f"signal {number} to {handle.name} {handle.pid}")
        state = state_of(self.world)
        for body in reached:
            if body.model is None:
                self._broken("strangers", f"signal {number} reached {body.name} {body.pid}")
            elif not recorded(state, leader_identity(self.world, body)):
                self._broken("recorded-target", f"{body.name} {body.pid} has no record")
            elif body.start in self._kept and not self._disturbed:
                self._broken("kept", f"{body.name} {body.pid} was signalled")

    def waits(self, body: Body) -> None:
        if body.model is None:
            self._broken("strangers", f"{body.name} {body.pid} is waited for")

    def starts(self, body: Body) -> None:
        self._change(f"start of {body.name} {body.pid}")
        durable = parsed(self.world.disk.durable(STATE_FILE)) or NodeState()
        if not recorded(durable, self.world.identity(body)):
            self._broken("no-orphan", f"{body.name} {body.pid} starts without a durable record")
        if body.model in self.effects.floor_victims:
            self._broken("floor", f"{body.name} starts again")
        latch = self.first.floor_latch
        if latch is not None and latch.boot_id == self.world.boot_id and self.order.by_agent:
            self._broken("floor", f"{body.name} starts while the floor's latch holds")
        for other in ours(self.world):
            if other.start != body.start:
                self._overlap(body, other)

    def writes(self, before: bytes | None, after: bytes) -> None:
        old, new = parsed(before) or NodeState(), parsed(after)
        if new is None:
            self._broken("damage", "what was written can't be read")
            return
        self._changes.append("state written")
        self._no_lost_record(old, new)
        if new.active_scene is not None and new.active_scene != old.active_scene:
            if (cause := self._unproven(new, new.active_scene)) is not None:
                self._broken("verified", f"{new.active_scene} becomes active: {cause}")
            self._good_scenes.add(new.active_scene)
        good = new.last_known_good_scene
        if good != old.last_known_good_scene and good not in self._good_scenes:
            self._broken("last-known-good", f"it becomes {good}")
        self._desired(old, new)

    def hears(self, request: Request, body: Body | None, answer: Answer) -> None:
        state = state_of(self.world)
        records = [r for r in state.processes.values() if isinstance(r, Bound)]
        for record in self._legacy_as_bound(state) + records:
            leader = self.world.body_of(record.identity)
            if leader is None or record.definition.port != request.port:
                continue
            # A failure is no proof of the contrary: the next answer counts.
            if serves_exactly(self.world, leader, record):
                self._exact_at[record.identity] = self._now()

    # what must hold at the end

    def finish(self, run: Run) -> None:
        """Judge how it ended, once the command is gone."""
        if run.error is not None:
            self._broken("answers", f"it raised {run.error!r}")
        if run.took_s > LONGEST_S:
            self._broken("answers", f"it took {run.took_s:.0f} s")
        self._no_orphans()
        kinds = [event.kind for event in run.events]
        for kind in (EventKind.ROLLING_BACK, EventKind.RESTORED):
            if kinds.count(kind) > 1:
                self._broken("undo-once", f"{kind} {kinds.count(kind)} times")
        if run.outcome is not None:
            self._outcome(run.outcome)

    def _outcome(self, outcome: Outcome) -> None:
        state = state_of(self.world)
        changed = bool(self._changes) or self.world.disk.read(STATE_FILE) != self.before
        untouched = outcome.exit in _UNTOUCHED or self.order.dry_run
        if untouched and changed:
            self._broken("no-effect", f"exit {int(outcome.exit)} after {self._changes}")
        if outcome.exit is Exit.DONE and not self.order.dry_run:
            self._done(state)
        elif changed:
            self._latched(state)
        if outcome.exit in _PROVEN and changed:
            self._proven(state, outcome)
        blind = (Kind.EIO_EVER, Kind.EMFILE_EVER)
        unread = any(fault.kind in blind for fault in self.struck) or not any(
            call.name == "read" for call in self.effects.calls
        )
        unread = unread or (self.before is not None and parsed(self.before) is None)
        if outcome.exit in _UNTOUCHED or unread:
            return
        if outcome.active_scene != state.active_scene:
            said = f"{outcome.active_scene} was answered, {state.active_scene} is recorded"
            self._broken("memory-follows-disk", said)

    def _latched(self, state: NodeState) -> None:
        scene = self.world.registry.scenes.get(state.desired_scene or "")
        victims = self.effects.floor_victims.keys() & set(scene.models if scene else ())
        if not victims or any(fault.kind is not Kind.FLOOR for fault in self.struck):
            return  # where another fault came too, the write may have been lost to it
        latch = state.floor_latch
        if latch is None or latch.boot_id != self.world.boot_id:
            self._broken("floor", f"{min(victims)} was stopped, and the next resume starts it")

    def _done(self, state: NodeState) -> None:
        command, scene = self.order.command, state.active_scene
        unfinished = state.transition_scene is not None or state.deactivating
        if unfinished and command is not Command.FORGET:
            self._broken("exit-0", "a transition is unfinished")
        if command in (Command.ACTIVATE, Command.ADOPT) and scene != self.order.name:
            self._broken("exit-0", f"{self.order.name} was asked for, {scene} is active")
        elif command is Command.RESUME and scene != state.desired_scene and not self.order.by_agent:
            self._broken("exit-0", f"{state.desired_scene} is desired, {scene} is active")
        elif command is Command.DEACTIVATE and (scene or state.desired_scene):
            self._broken("exit-0", f"{scene} is active")
        if command is Command.FORGET:
            return
        if scene is None:
            self._idle("exit-0")
        elif (cause := self._unproven(state, scene)) is not None:
            self._broken("exit-0", f"{scene}: {cause}")

    def _proven(self, state: NodeState, outcome: Outcome) -> None:
        scene = state.active_scene
        if state.transition_scene is not None or state.deactivating:
            self._broken("exit-1", "a transition is unfinished")
        if scene is None:
            self._idle("exit-1")
            if outcome.restored:
                self._broken("exit-1", "restored is said, and nothing is active")
        elif scene not in (self.first.active_scene, self.first.last_known_good_scene):
            self._broken("exit-1", f"{scene} is active, which was not so before")
        elif (cause := self._unproven(state, scene)) is not None:
            self._broken("exit-1", f"{scene}: {cause}")

    def _idle(self, name: str) -> None:
        left = [f"{body.name} {body.pid}" for body in ours(self.world)]
        if left:
            self._broken(name, f"nothing is active, and these live: {', '.join(left)}")

    # how it is judged

    def _unproven(self, state: NodeState, scene: str) -> str | None:
        """Why `scene` was not verified after our last change; None when it was."""
        declared = self.world.registry.scenes.get(scene)
        for name in declared.models if declared is not None else ():
            record = state.processes.get(name)
            if not isinstance(record, Bound):
                return f"{name} has no record"
            if self._exact_at.get(record.identity, -1) < self._last_change:
                return f"{name} was not found exactly healthy after the last change"
            if not self._disturbed and not exact(self.world, state, name):
                return f"{name} is not exactly healthy"
        return None

    def _legacy_as_bound(self, state: NodeState) -> list[Bound]:
        """The processes that an adopt is about to bind."""
        found = []
        pids = {n: r.pid for n, r in state.processes.items() if not isinstance(r, Bound)}
        for name, pid in {**pids, **self.order.pids}.items():
            body, model = self.world.bodies.get(pid), self.world.registry.models.get(name)
            if body is not None and model is not None:
                found.append(Bound(self.world.identity(body), model))
        return found

    def _overlap(self, body: Body, other: Body) -> None:
        if other.model == body.model or other.port == body.port:
            self._broken("no-overlap", f"{other.name} {other.pid} lives as {body.name} starts")
        scenes = [set(scene.models) for scene in self.world.registry.scenes.values()]
        together = [*scenes, set(self.first.processes)]
        if not any({body.model, other.model} <= names for names in together):
            self._broken("no-overlap", f"{other.name} {other.pid} lives as {body.name} starts")

    def _no_orphans(self) -> None:
        state = state_of(self.world)
        for body in ours(self.world):
            if body.start in self._unrecorded or self.order.command is Command.FORGET:
                continue  # what an operator has let go is no longer ours to know
            if not recorded(state, leader_identity(self.world, body)):
                self._broken("no-orphan", f"{body.name} {body.pid} lives without a record")

    def _no_lost_record(self, old: NodeState, new: NodeState) -> None:
        for record in old.processes.values():
            if not isinstance(record, Bound) or recorded(new, record.identity):
                continue
            for body in self.world.ours():
                identity = leader_identity(self.world, body)
                if identity.matches(record.identity) and provable(self.world, body):
                    self._broken("proof-of-death", f"{body.name} {body.pid} lives")

    def _one_on_a_port(self) -> None:
        seen: dict[int, int] = {}
        for body in self.world.living():
            for port in body.listens if body.model is not None else ():
                if seen.setdefault(port, body.start) != body.start:
                    self._broken("one-on-a-port", f"port {port}")

    def _desired(self, old: NodeState, new: NodeState) -> None:
        wanted = new.desired_scene
        if wanted in (old.desired_scene, new.active_scene):
            return
        deactivates = wanted is None and self.order.command is Command.DEACTIVATE
        if not deactivates and wanted != self.first.desired_scene:
            self._broken("desired", f"it becomes {wanted} while {new.active_scene} is active")

    def _shared(self) -> set[int]:
        """The starts that an activation must leave alone: healthy, unchanged, in both Scenes."""
        if self.order.command is not Command.ACTIVATE or self.first.active_scene is None:
            return set()
        scene = self.world.registry.scenes.get(self.order.name or "")
        found = set()
        for name in scene.models if scene is not None else ():
            record = self.first.processes.get(name)
            model = self.world.registry.models[name]
            if isinstance(record, Bound) and record.definition.starts_like(model):
                body = self.world.body_of(record.identity)
                if body is not None and serves_exactly(self.world, body, record):
                    found.add(body.start)
        return found

    def _change(self, what: str) -> None:
        self._changes.append(what)
        self._last_change = self._now()

    def _now(self) -> int:
        return len(self.effects.calls) - 1

    def _broken(self, name: str, detail: str) -> None:
        found = Violation(name, self._now(), detail)
        if not any((each.name, each.detail) == (name, detail) for each in self.violations):
            self.violations.append(found)
