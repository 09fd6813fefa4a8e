"""A plan carried out: begin, steps, verify, commit (DESIGN section 8)."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace

from lumbridge_compute.core import state as writes
from lumbridge_compute.core.events import Event, EventKind, Outcome
from lumbridge_compute.core.plan import Plan, Refusals, Snapshot
from lumbridge_compute.core.registry import Model, Registry
from lumbridge_compute.core.site import Site
from lumbridge_compute.core.state import Bound, NodeState, ResumeFailures
from lumbridge_compute.core.withheld import with_literals
from lumbridge_compute.core.world import World
from lumbridge_compute.effects import Effects
from lumbridge_compute.errors import Exit
from lumbridge_compute.interruption import Interrupted, Interruption
from lumbridge_compute.journal import Journal, NotWritten, cause_of
from lumbridge_compute.observe import observe
from lumbridge_compute.steps import StepFailed, Steps, with_todays_definitions


@dataclass(frozen=True, slots=True)
class Previous:
    """What a rollback puts back: the Scene active before, with the definitions that its models ran
    with, in start order.  `desired` and `failures` are what the state said then."""

    scene: str | None
    definitions: tuple[Model, ...]
    desired: str | None
    failures: ResumeFailures | None


@dataclass(frozen=True, slots=True)
class Failure:
    """Why the forward part ended.  `degraded`: something outlived its stop, so nothing more may be
    started.  `uncommitted`: the target is whole but the commit could not be written."""

    cause: str
    interrupted: bool = False
    degraded: bool = False
    uncommitted: bool = False


@dataclass
class Transaction:
    """One mutation under way on a node whose lock the caller holds."""

    effects: Effects
    site: Site
    registry: Registry
    journal: Journal
    steps: Steps
    interruption: Interruption
    emit: Callable[[Event], None]
    floor_bytes: int = 0
    footprints: dict[str, int] = field(default_factory=dict)
    changed: bool = False
    warnings: tuple[str, ...] = ()

    def announce(self, plan: Plan) -> None:
        """Tell what will be done; the warnings of the plan belong to the answer."""
        self.warnings += plan.warnings
        self.emit(Event(EventKind.PLANNED, detail=plan.scene, plan=plan))

    async def snapshot(self, candidates: Mapping[str, int] | None = None) -> Snapshot:
        """Registry, state and world at one moment.  `candidates` are pids that stand in for
        records.  Raises Interrupted."""
        with self.interruption.forward():
            return await self.gather(candidates)
        raise Interrupted

    def previous(self, now: Snapshot) -> Previous:
        """What a rollback of a transition that begins now would put back.

        A model of the active Scene that has no record, because it was forgotten or has joined the
        Scene since, comes back as it is declared today: the Scene is not restored without it.
        """
        state = now.state
        scene = state.active_scene
        if scene is None:
            return Previous(None, (), state.desired_scene, state.resume_failures)
        records = [r for r in state.processes.values() if isinstance(r, Bound)]
        started = {r.definition.name: r.identity.start_ticks for r in records}
        declared = self.registry.models_of(scene) if scene in self.registry.scenes else ()
        rank = {model.name: i for i, model in enumerate(declared)}
        definitions = [record.definition for record in records]
        definitions += [model for model in declared if model.name not in started]
        definitions.sort(key=lambda m: (rank.get(m.name, len(rank)), started.get(m.name, 0)))
        return Previous(scene, tuple(definitions), state.desired_scene, state.resume_failures)

    async def attempt(
        self, plan: Plan, previous: Previous, failures: ResumeFailures | None = None
    ) -> Failure | None:
        """Begin, carry out and commit `plan`; None when its Scene is active.

        `failures` is remembered from the begin on, so that a machine that goes down under a Scene
        counts it too.  Raises Refused or NotWritten when the disk takes no writes: nothing was
        changed.
        """
        scene = plan.scene
        assert scene is not None  # noqa: S101 - plans without a Scene go through `stop_all`
        await self.journal.prove_writable()

        def begin(state: NodeState) -> NodeState:
            begun = writes.begin(writes.without_records(state, plan.forget), scene)
            return writes.with_resume_failures(begun, failures or state.resume_failures)

        return await self._forward(plan, begin, lambda: self.commit(plan, previous))

    async def commit(self, plan: Plan, previous: Previous) -> None:
        """Record that the Scene of `plan` is exactly healthy.  Raises NotWritten."""
        scene = plan.scene
        assert scene is not None  # noqa: S101 - as above
        worthless = set(plan.forget) - {model.name for model in plan.target}

        def change(state: NodeState) -> NodeState:
            state = writes.without_records(state, worthless)
            records = {n: r for n, r in state.processes.items() if isinstance(r, Bound)}
            kept = with_todays_definitions(plan, records)
            state = replace(state, processes={**state.processes, **kept})
            return writes.commit(state, scene, previous.scene)

        before = self.journal.state
        await self.journal.update(change)
        if self.journal.state != before:
            self.changed = True
            self.emit(Event(EventKind.COMMITTED, detail=scene))

    async def commit_settled(self, plan: Plan, previous: Previous) -> Failure | None:
        """Commit where no step is needed; None when that is done.

        Raises NotWritten where the file is as it was: nothing was changed.
        """
        try:
            await self.commit(plan, previous)
        except NotWritten as error:
            if error.kept:
                raise
            self.changed = True
            return Failure(cause_of(error), uncommitted=True)
        return None

    async def stop_all(self, plan: Plan) -> Failure | None:
        """Deactivate: nothing is wanted any more, and all that is ours stops.  Raises as `attempt`
        where nothing was changed."""
        await self.journal.prove_writable()

        def begin(state: NodeState) -> NodeState:
            return writes.deactivate_begin(writes.without_records(state, plan.forget))

        async def end() -> None:
            await self.journal.update(writes.deactivate_end)

        return await self._forward(plan, begin, end)

    def done(self, plan: Plan, world: World) -> Outcome:
        """The answer once the Scene of `plan` is committed, or nothing runs as wanted.

        `world` is what was seen where no step has verified anything.
        """
        return Outcome(Exit.DONE, plan.scene, world=self.steps.world or world)

    async def seen(self) -> World | None:
        """The world for the answer, None where it can't be looked at: that changes no answer."""
        with contextlib.suppress(OSError):
            return (await self.gather()).world
        return None

    async def fall_back(self, plan: Plan, cause: str) -> Failure | None:
        """Carry out `plan` for the last known good Scene after the desired one has failed."""

        def begin(state: NodeState) -> NodeState:
            begun = state
            if state.transition_scene is None:
                begun = writes.begin(state, state.desired_scene or "")
            return writes.rollback_begins(writes.without_records(begun, plan.forget), cause)

        async def end() -> None:
            def change(state: NodeState) -> NodeState:
                failures = state.resume_failures
                good = replace(failures, count=0) if failures is not None else None
                state = writes.resumed_on_last_known_good(state, cause)
                return writes.with_resume_failures(state, good)

            await self.journal.update(change)
            self.emit(Event(EventKind.RESTORED, detail=plan.scene))

        return await self._forward(plan, begin, end)

    def latched(self, state: NodeState) -> NodeState:
        """`state` with the floor's latch, where the floor has stopped what the next resume would
        start by itself."""
        wanted = state.desired_scene
        scene = self.registry.scenes.get(wanted or "")
        for name in scene.models if scene is not None else ():
            if (latch := self.steps.surroundings.floor_latch(name)) is not None:
                return writes.with_latch(state, replace(latch, scene=wanted))
        return state

    async def gather(self, candidates: Mapping[str, int] | None = None) -> Snapshot:
        """As `snapshot`, also on the way back.  Raises OSError where we can't look."""
        state = with_literals(self.journal.state, self.registry)
        world = await observe(self.effects, self.registry, state, self.site, candidates)
        return Snapshot(self.registry, state, replace(world, footprints=self.footprints))

    async def _forward(
        self,
        plan: Plan,
        begin: Callable[[NodeState], NodeState],
        end: Callable[[], Awaitable[None]],
    ) -> Failure | None:
        failure = Failure("interrupted", interrupted=True)
        with self.interruption.forward():
            try:
                self.steps.refuse_what_the_floor_stopped(plan)
                await self._begin(begin)
                await self.steps.carry_out(plan)
                if plan.scene is not None:
                    await self.steps.rest_above(self.floor_bytes)
            except StepFailed as error:
                self.changed = True
                failure = Failure(str(error), degraded=error.degraded)
            except OSError as error:
                if not self.changed:
                    raise
                failure = Failure(cause_of(error))
            else:
                return await self._end(plan, end)
        if not self.changed:
            raise Interrupted
        return failure

    async def _begin(self, change: Callable[[NodeState], NodeState]) -> None:
        """The first write.  Raises NotWritten; `changed` then tells whether anything has: it has
        not, either, where an interrupt came before the write."""
        try:
            await self.journal.update(change)
        except NotWritten as error:
            self.changed = self.changed or not error.kept
            raise
        self.changed = True

    async def _end(self, plan: Plan, end: Callable[[], Awaitable[None]]) -> Failure | None:
        try:
            await end()
        except OSError as error:
            return Failure(cause_of(error), uncommitted=plan.scene is not None)
        return None


def render_reasons(refusals: Refusals) -> str:
    """Every reason in one sentence."""
    return "; ".join(reason.message for reason in refusals.reasons)
