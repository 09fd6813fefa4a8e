"""A plan carried out: begin, steps, verify, commit, and the way back (DESIGN section 8)."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from lumbridge_compute.core import state as writes
from lumbridge_compute.core.events import Event, EventKind, Outcome
from lumbridge_compute.core.plan import Plan, Refusals, Snapshot
from lumbridge_compute.core.plan_scene import plan_restore, plan_stop_all
from lumbridge_compute.core.registry import Model, Registry
from lumbridge_compute.core.state import Bound, NodeState, ResumeFailures
from lumbridge_compute.core.world import World
from lumbridge_compute.effects import Effects
from lumbridge_compute.errors import Exit
from lumbridge_compute.interruption import Interrupted, Interruption
from lumbridge_compute.journal import Journal, NotWritten, cause_of
from lumbridge_compute.observe import Site, observe
from lumbridge_compute.steps import StepFailed, Steps, with_todays_definitions

_WAY_BACK_SPARE_S = 60.0
_LEAVING_S = 2.0


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
            return await self._snapshot(candidates)
        raise Interrupted

    def previous(self, now: Snapshot) -> Previous:
        """What a rollback of a transition that begins now would put back."""
        state = now.state
        records = [r for r in state.processes.values() if isinstance(r, Bound)]
        order = self._start_order(state.active_scene)
        ordered = sorted(
            records,
            key=lambda r: (
                order.get(r.definition.name, len(order)),
                r.identity.start_ticks,
            ),
        )
        definitions = tuple(record.definition for record in ordered) if state.active_scene else ()
        return Previous(state.active_scene, definitions, state.desired_scene, state.resume_failures)

    async def attempt(
        self, plan: Plan, previous: Previous, failures: ResumeFailures | None = None
    ) -> Failure | None:
        """Begin, carry out and commit `plan`; None when its Scene is active.

        `failures` is remembered from the begin on, so that a machine that goes down under a Scene
        counts it too.  Raises Refused when the disk takes no writes: nothing was changed.
        """
        scene = plan.scene
        assert scene is not None  # noqa: S101 - plans without a Scene go through `stop_all`
        await self.journal.prove_writable()

        def begin(state: NodeState) -> NodeState:
            begun = writes.begin(writes.without_records(state, plan.forget), scene)
            return writes.with_resume_failures(begun, failures or state.resume_failures)

        self.changed = True
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
        """Deactivate: nothing is wanted any more, and all that is ours stops."""
        await self.journal.prove_writable()

        def begin(state: NodeState) -> NodeState:
            return writes.deactivate_begin(writes.without_records(state, plan.forget))

        async def end() -> None:
            await self.journal.update(writes.deactivate_end)

        self.changed = True
        return await self._forward(plan, begin, end)

    async def roll_back(self, previous: Previous, failure: Failure) -> Outcome:
        """Put the previous Scene back, or stop the partial target where none was active.

        A whole target whose commit could not be written stays: resume commits it.
        """
        if failure.uncommitted:
            return await self._uncommitted(failure.cause)
        if self.interruption.leaving:
            return await self._leave(previous)
        self.emit(Event(EventKind.ROLLING_BACK, detail=failure.cause))
        with self.interruption.way_back(self._way_back_limit_s(previous.definitions)):
            return await self._way_back(previous, failure)
        return self._left_unfinished(failure.cause)

    async def give_up(self, cause: str) -> Outcome:
        """After a failure with nothing to go back to: stop what is ours, record that nothing is
        active."""
        with self.interruption.way_back(self._way_back_limit_s(())):
            return await self._give_up(cause)
        return self._left_unfinished(cause)

    async def stuck(self, failure: Failure) -> Outcome:
        """After a failure that nothing can be done about now."""
        with self.interruption.way_back(self._way_back_limit_s(())):
            if failure.uncommitted:
                return await self._uncommitted(failure.cause)
            return await self._degraded(failure.cause)
        return self._left_unfinished(failure.cause)

    def done(self, plan: Plan, world: World) -> Outcome:
        """The answer once the Scene of `plan` is committed, or nothing runs as wanted.

        `world` is what was seen where no step has verified anything.
        """
        return Outcome(Exit.DONE, plan.scene, world=self.steps.world or world)

    async def seen(self) -> World | None:
        """The world for the answer, None where it can't be looked at: that changes no answer."""
        with contextlib.suppress(OSError):
            return (await self._snapshot()).world
        return None

    async def begin_fallback(self, cause: str) -> Failure | None:
        """Record that the desired Scene has failed, and complete the stops that were begun."""
        if not await self._record(lambda state: writes.rollback_begins(state, cause)):
            return Failure(f"{cause}; the state could not be written", degraded=True)
        try:
            await self.steps.finish_stops()
        except StepFailed as error:
            return Failure(f"{cause}; {error}", degraded=True)
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

        self.changed = True
        return await self._forward(plan, begin, end)

    async def _snapshot(self, candidates: Mapping[str, int] | None = None) -> Snapshot:
        state = self.journal.state
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
                self._refuse_what_the_floor_stopped(plan)
                await self.journal.update(begin)
                await self.steps.carry_out(plan)
                if plan.scene is not None:
                    await self.steps.rest_above(self.floor_bytes)
            except StepFailed as error:
                failure = Failure(str(error), degraded=error.degraded)
            except OSError as error:
                failure = Failure(cause_of(error))
            else:
                return await self._end(plan, end)
        return failure

    async def _end(self, plan: Plan, end: Callable[[], Awaitable[None]]) -> Failure | None:
        try:
            await end()
        except OSError as error:
            return Failure(cause_of(error), uncommitted=plan.scene is not None)
        return None

    async def _way_back(self, previous: Previous, failure: Failure) -> Outcome:
        cause = failure.cause

        def begin(state: NodeState) -> NodeState:
            begun = writes.rollback_begins(state, cause)
            return writes.with_resume_failures(begun, previous.failures) if interrupted else begun

        interrupted = failure.interrupted
        if not await self._record(begin):
            return await self._degraded(cause, "the state could not be written")
        try:
            await self.steps.finish_stops()
            if failure.degraded:
                raise StepFailed("something outlived its stop, so nothing more is started")
            if previous.scene is None:
                return await self._give_up(cause, interrupted=failure.interrupted)
            now = await self._snapshot()
            plan = plan_restore(now, previous.scene, previous.definitions)
            if isinstance(plan, Refusals):
                raise StepFailed(render_reasons(plan))
            self._refuse_what_the_floor_stopped(plan)
            await self.steps.carry_out(plan)
            await self.journal.update(lambda state: _put_back(state, previous, plan, cause))
        except StepFailed as error:
            return await self._degraded(cause, str(error))
        except OSError as error:
            return await self._degraded(cause, cause_of(error))
        self.emit(Event(EventKind.RESTORED, detail=previous.scene))
        return Outcome(
            Exit.INTERRUPTED if failure.interrupted else Exit.FAILED_SAFELY,
            restored=True,
            error=f"{cause}; Scene {previous.scene!r} is restored and verified",
            hint="see `lumbridge-compute logs MODEL` for what the model said",
            world=self.steps.world,
        )

    def _refuse_what_the_floor_stopped(self, plan: Plan) -> None:
        stopped = self.steps.surroundings.stopped_by_floor()
        for step in plan.start:
            if step.model in stopped:
                raise StepFailed(f"it would start {step.model!r} again, and {stopped[step.model]}")

    async def _give_up(self, cause: str, *, interrupted: bool = False) -> Outcome:
        if not await self._record(lambda state: writes.rollback_begins(state, cause)):
            return await self._degraded(cause, "the state could not be written")
        try:
            await self.steps.finish_stops()
            plan = plan_stop_all(await self._snapshot(), "roll back")
            if isinstance(plan, Refusals):
                raise StepFailed(render_reasons(plan))
            await self.steps.carry_out(plan)
        except StepFailed as error:
            return await self._degraded(cause, str(error))
        except OSError as error:
            return await self._degraded(cause, cause_of(error))
        forget = plan.forget
        if not await self._record(
            # Nothing of ours runs: a deactivation that was interrupted has come to its end, too.
            lambda state: writes.deactivate_end(
                writes.failed(writes.without_records(state, forget), cause)
            )
        ):
            return await self._degraded(cause, "the state could not be written")
        return Outcome(
            Exit.INTERRUPTED if interrupted else Exit.FAILED_SAFELY,
            error=f"{cause}; nothing is running",
            hint="see `lumbridge-compute status` and the model's log",
            world=await self.seen(),
        )

    async def _uncommitted(self, cause: str) -> Outcome:
        # Where only the last sync has failed, the file says that it is committed.
        scene = self.journal.state.transition_scene or self.journal.state.active_scene
        return Outcome(
            Exit.DEGRADED,
            scene,
            restored=False,
            error=f"Scene {scene!r} runs exactly healthy, but it is not committed: {cause}",
            hint="make room on the disk, then run `lumbridge-compute scene resume`",
            world=await self.seen(),
        )

    async def _leave(self, previous: Previous) -> Outcome:
        """Stay as it is, recorded: the next resume waits for what is still loading.  An attempt
        that was not given its time is no failed one."""
        with self.interruption.way_back(_LEAVING_S, even_when_left=True):
            await self._record(lambda state: writes.with_resume_failures(state, previous.failures))
        return self._left_unfinished("left before it was finished")

    def _left_unfinished(self, cause: str) -> Outcome:
        return Outcome(
            Exit.DEGRADED,
            restored=False,
            error=f"{cause}; the way back was left unfinished",
            hint="run `lumbridge-compute scene resume` to finish it",
        )

    async def _degraded(self, cause: str, why: str | None = None) -> Outcome:
        """Not restored.  What runs stays recorded; a state that can't be written keeps the
        transition, which says as much."""
        both = f"{cause}; not restored: {why}" if why is not None else cause
        await self._record(lambda state: writes.failed(state, both))
        return Outcome(
            Exit.DEGRADED,
            restored=False,
            error=both,
            hint="mend the cause, then run `lumbridge-compute scene resume`",
            world=await self.seen(),
        )

    async def _record(self, change: Callable[[NodeState], NodeState]) -> bool:
        """Write on the way back; a write that fails is tried once more, then False."""
        for _ in range(2):
            try:
                await self.journal.update(change)
            except OSError:
                continue
            return True
        return False

    def _start_order(self, scene: str | None) -> dict[str, int]:
        known = self.registry.scenes.get(scene) if scene is not None else None
        return {name: i for i, name in enumerate(known.models)} if known is not None else {}

    def _way_back_limit_s(self, definitions: Iterable[Model]) -> float:
        records = self.journal.state.processes.values()
        running = [record.definition for record in records if isinstance(record, Bound)]
        stops = sum(model.stop.grace_s for model in running)
        starts = sum(model.health.timeout_s for model in definitions)
        return stops + starts + _WAY_BACK_SPARE_S


def _put_back(state: NodeState, previous: Previous, plan: Plan, cause: str) -> NodeState:
    assert previous.scene is not None  # noqa: S101 - there is nothing to put back without one
    # What the plan found gone and then started anew has a record that is worth something.
    worthless = set(plan.forget) - {model.name for model in plan.target}
    state = writes.restored(writes.without_records(state, worthless), previous.scene, cause)
    return writes.reactivated(state, previous.desired) if state.deactivating else state


def render_reasons(refusals: Refusals) -> str:
    """Every reason in one sentence."""
    return "; ".join(reason.message for reason in refusals.reasons)
