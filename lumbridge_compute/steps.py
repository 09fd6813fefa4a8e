"""The steps of a transaction: stop, settle, start, verify.  Each records what it does first."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import trio

from lumbridge_compute.checking import check
from lumbridge_compute.core.events import Event, EventKind
from lumbridge_compute.core.health import Health, HealthName
from lumbridge_compute.core.launch import UnsetVariable, launch_of
from lumbridge_compute.core.patience import Patience
from lumbridge_compute.core.plan import Keep, Plan, Start, Stop
from lumbridge_compute.core.registry import Model, Registry
from lumbridge_compute.core.settle import PAUSE_S, REST_S, Settling, rests_above
from lumbridge_compute.core.site import Site
from lumbridge_compute.core.state import Bound, with_record, without_processes
from lumbridge_compute.core.units import render_bytes
from lumbridge_compute.core.world import World
from lumbridge_compute.effects import Effects, ProcessHandle
from lumbridge_compute.journal import Journal, NotWritten
from lumbridge_compute.observe import observe
from lumbridge_compute.stopping import StopFailed, Stopper
from lumbridge_compute.surroundings import Nothing, Surroundings

_LOG_TAIL_LINES = 5


class StepFailed(Exception):
    """A step did not do what the plan says; the text is the cause, for the operator.

    `degraded` means that something outlived its stop: nothing more may be started.
    """

    def __init__(self, message: str, *, degraded: bool = False) -> None:
        super().__init__(message)
        self.degraded = degraded


@dataclass(frozen=True, slots=True)
class Measured:
    """What one start took: seconds from its go-ahead to exactly healthy, bytes of memory."""

    load_s: float
    memory_bytes: int | None


@dataclass
class Steps:
    """Carries out plans for one transaction.  `close` gives back what it holds open.

    `may_start` are models that the floor had stopped before: an operator asks for them again.
    """

    effects: Effects
    site: Site
    registry: Registry
    journal: Journal
    emit: Callable[[Event], None]
    surroundings: Surroundings = field(default_factory=Nothing)
    may_start: set[str] = field(default_factory=set)
    expected_s: dict[str, float] = field(default_factory=dict)
    measured: dict[str, Measured] = field(default_factory=dict)
    world: World | None = None
    notes: list[str] = field(default_factory=list)
    _handles: dict[str, ProcessHandle] = field(default_factory=dict)
    _stoppers: list[Stopper] = field(default_factory=list)

    async def carry_out(self, plan: Plan) -> None:
        """Stops, then starts, then one last check of everything the plan leaves running.

        Raises StepFailed, and OSError when the state could not be written or the machine not be
        looked at.
        """
        if plan.changes_processes:
            await self.surroundings.hold(plan.ports)
            if clients := self.surroundings.clients(plan.ports):
                said = f"waiting for {clients} running client(s) of the gateway to finish"
                self.emit(Event(EventKind.NOTE, detail=said))
            await self.surroundings.drain(plan.ports)
        before = self._available()
        await self.stop(plan.stop)
        if plan.stop and plan.start and before is not None:
            await self._settle(before, plan.memory.gives_bytes if plan.memory else None)
        for keep in plan.keep:
            if keep.loading:
                await self._await_kept(keep)
        for start in plan.start:
            await self._start(start)
        await self.verify(plan.target)

    async def stop(self, steps: Iterable[Stop]) -> None:
        """Signal in order, wait for all together; their records leave once they are gone.

        Raises StepFailed.
        """
        stoppers = [Stopper(self.effects, self.site, step) for step in steps]
        self._stoppers += stoppers
        for stopper in stoppers:
            await self.surroundings.unguard(stopper.model)
        for stopper in stoppers:
            self.emit(Event(EventKind.STOPPING, stopper.model))
            if not stopper.has_command:
                stopper.ask_to_end()
        await self.finish_stops()

    async def finish_stops(self) -> None:
        """Complete every stop that was begun and has not failed.  Raises StepFailed."""
        failures: list[StepFailed] = []
        async with trio.open_nursery() as nursery:
            for stopper in self._stoppers:
                if not stopper.finished and not stopper.failed:
                    nursery.start_soon(self._finish_stop, stopper, failures)
        if failures:
            degraded = any(failure.degraded for failure in failures)
            raise StepFailed("; ".join(map(str, failures)), degraded=degraded)

    async def verify(self, target: Iterable[Model]) -> None:
        """All of `target` in one look, exactly healthy at this moment.  Raises StepFailed.

        What was seen stays in `world`.
        """
        names = [model.name for model in target]
        if names:
            self.emit(Event(EventKind.VERIFYING))
        state = self.journal.state
        self.world = await observe(self.effects, self.registry, state, self.site)
        for name in names:
            view = self.world.view(name)
            if not view.exact:
                detail = self.surroundings.stopped_by_floor().get(name) or (
                    view.health.detail if view.health is not None else view.ownership
                )
                raise StepFailed(f"{name!r} did not pass the last check: {detail}")

    async def rest_above(self, floor_bytes: int) -> None:
        """Refuse a Scene that would rest too near the floor.  Raises StepFailed."""
        until = self.effects.now() + REST_S
        while (available := self._available()) is not None:
            verdict = rests_above(available, floor_bytes)
            if verdict is False:
                raise StepFailed(
                    f"the Scene leaves {render_bytes(available)} of memory available, less than "
                    f"the floor of {render_bytes(floor_bytes)} + 0.5 GiB"
                )
            if verdict or self.effects.now() >= until:
                return
            await self.effects.sleep(0.1)

    def refuse_what_the_floor_stopped(self, plan: Plan) -> None:
        """What the floor stopped in this transaction is not started by it.  Raises StepFailed."""
        stopped = self.surroundings.stopped_by_floor()
        for step in plan.start:
            if step.model in stopped and step.model not in self.may_start:
                raise StepFailed(f"it would start {step.model!r} again, and {stopped[step.model]}")

    def close(self) -> None:
        for handle in self._handles.values():
            handle.close()
        for stopper in self._stoppers:
            stopper.close()

    async def _finish_stop(self, stopper: Stopper, failures: list[StepFailed]) -> None:
        try:
            await self._end(stopper)
        except StopFailed as error:
            stopper.failed = True
            failures.append(StepFailed(str(error), degraded=True))
        except OSError as error:
            verb = "record" if isinstance(error, NotWritten) else "see"
            cause = f"cannot {verb} that {stopper.model!r} has stopped: {error.strerror or error}"
            failures.append(StepFailed(cause))
        else:
            available = self._available()
            self.emit(Event(EventKind.STOPPED, stopper.model, available_bytes=available))
            if stopper.note is not None:
                self.notes.append(f"{stopper.model!r} has stopped; {stopper.note}")
                self.emit(Event(EventKind.NOTE, stopper.model, stopper.note))

    async def _end(self, stopper: Stopper) -> None:
        if stopper.has_command and not stopper.asked:
            if (note := await stopper.run_command()) is not None:
                self.emit(Event(EventKind.NOTE, stopper.model, note))
            stopper.ask_to_end()
        await stopper.finish()
        # Those that ended meanwhile leave in the same write.
        ended = [each.identity for each in self._stoppers if each.finished]
        await self.journal.update(lambda state: without_processes(state, ended))

    async def _settle(self, before_bytes: int, expected_bytes: int | None) -> None:
        settling = Settling(self.effects.now(), before_bytes, expected_bytes)
        self.emit(Event(EventKind.SETTLING, available_bytes=before_bytes))
        pause_s: float | None = PAUSE_S
        while pause_s is not None and (available := self._available()) is not None:
            settling = settling.see(available)
            pause_s = settling.pause_s(self.effects.now())
            if pause_s is not None:
                await self.effects.sleep(pause_s)

    async def _start(self, start: Start) -> None:
        model = start.definition
        before, began = self._available(), self.effects.now()
        record = await self._spawn(model)
        expected_s = self.expected_s.get(model.name)
        pid = record.identity.pid
        self.emit(Event(EventKind.STARTING, model.name, pid=pid, expected_s=expected_s))
        await self._await_healthy(model, model.health.timeout_s, "start")
        after = self._available()
        cost = max(0, before - after) if before is not None and after is not None else None
        self.measured[model.name] = Measured(self.effects.now() - began, cost)

    async def _spawn(self, model: Model) -> Bound:
        """Durable record first, then the go-ahead: a crash between leaves no orphan."""
        token = self.effects.new_token()
        scope = self.effects.new_scope(model.name)
        try:
            launch = launch_of(model, self.site.root, self.site.environ, token=token, scope=scope)
            gated = await self.effects.spawn(launch)
        except (OSError, UnsetVariable) as error:
            raise StepFailed(f"cannot start {model.name!r}: {_said(error)}") from error
        self._handles[model.name] = gated.handle
        record = Bound(gated.handle.identity, model, token, scope, self.effects.timestamp())
        self.may_start.discard(model.name)
        try:
            await self.journal.update(lambda state: with_record(state, model.name, record))
            await self.surroundings.guard(model.name, gated.handle)
            gated.release()
        except OSError as error:
            gated.abandon()
            raise StepFailed(f"cannot start {model.name!r}: {error.strerror or error}") from error
        except BaseException:
            gated.abandon()
            raise
        return record

    async def _await_kept(self, keep: Keep) -> None:
        handle = self.effects.open_process(keep.identity)
        if handle is None:
            by_floor = self.surroundings.stopped_by_floor().get(keep.model)
            raise StepFailed(by_floor or f"{keep.model!r} has ended, cause not known")
        self._handles[keep.model] = handle
        timeout_s = keep.definition.health.timeout_s
        await self._await_healthy(keep.definition, max(1.0, timeout_s - keep.age_s), "keep")

    async def _await_healthy(self, model: Model, timeout_s: float, verb: str) -> None:
        """Return when `model` is exactly healthy; raise StepFailed when waiting has no more use."""
        patience = Patience(self.effects.now(), timeout_s)
        while True:
            health = await self._check_or_death(model)
            now_s = self.effects.now()
            if health.exact:
                self.emit(Event(EventKind.HEALTHY, model.name, available_bytes=self._available()))
                return
            if health != patience.last:
                self.emit(
                    Event(
                        EventKind.LOADING,
                        model.name,
                        health.detail,
                        expected_s=self.expected_s.get(model.name),
                    )
                )
            patience = patience.hear(health, now_s)
            if (given_up := patience.verdict(now_s)) is not None:
                raise StepFailed(f"cannot {verb} {model.name!r}: {given_up}")
            with trio.move_on_after(patience.pause_s(now_s)):
                await self._handles[model.name].wait()

    async def _check_or_death(self, model: Model) -> Health:
        """One check, given up at the moment at which the process dies.  Raises OSError."""
        health: Health | None = None
        blind: OSError | None = None
        handle = self._handles[model.name]
        async with trio.open_nursery() as nursery:

            async def watch() -> None:
                with contextlib.suppress(OSError):  # the next check sees a death too
                    await handle.wait()
                    nursery.cancel_scope.cancel()

            nursery.start_soon(watch)
            try:
                health = await self._check(model)
            except OSError as error:
                blind = error
            nursery.cancel_scope.cancel()
        if blind is not None:
            raise blind
        if health is None or health.name is HealthName.DEAD:
            return await self._death(model, handle)
        return health

    async def _death(self, model: Model, handle: ProcessHandle) -> Health:
        self.effects.keep(handle)
        cause = handle.exit_cause() or "ended, cause not known"
        if (by_floor := self.surroundings.stopped_by_floor().get(model.name)) is not None:
            return Health(HealthName.DEAD, by_floor)
        tail = await self.effects.log_tail(model.name, _LOG_TAIL_LINES)
        said = f"; its log ends: {' | '.join(tail)}" if tail else "; its log is empty"
        return Health(HealthName.DEAD, f"its process has ended ({cause}){said}")

    async def _check(self, model: Model) -> Health:
        record = self.journal.state.processes.get(model.name)
        if not isinstance(record, Bound):
            return Health(HealthName.DEAD, f"{model.name!r} has no record")
        return await check(self.effects, model, record, self.site, record.identity, thorough=False)

    def _available(self) -> int | None:
        memory = self.effects.memory()
        return memory.available_bytes if memory is not None else None


def _said(error: OSError | UnsetVariable) -> str:
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    return error.strerror if error.filename is None else f"{error.strerror}: {error.filename!r}"


def with_todays_definitions(plan: Plan, records: dict[str, Bound]) -> dict[str, Bound]:
    """Records of kept models take the definition they were verified by: a process started from
    either would be the same."""
    return {
        keep.model: replace(records[keep.model], definition=keep.definition)
        for keep in plan.keep
        if keep.model in records
    }
