"""What the agent says to the memory floor, whoever watches it at the moment."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Self

from trio_util import AsyncValue

from lumbridge_compute.core.floor import Past
from lumbridge_compute.core.values import dataclass, replace
from lumbridge_compute.host.pidfd import refuse_target
from lumbridge_compute.watchdog.loop import Target
from lumbridge_compute.watchdog.protocol import (
    FloorEvent,
    FloorEventKind,
    render_message,
    render_past,
)


@dataclass(frozen=True, slots=True)
class GuardStatus:
    """How the floor is watched now.

    `sampler_pid` is None while a task of the agent does it, and `cause` says why.  `gained` is
    what the sampler was allowed: "round-robin memory-locked oom-exempt" at best.  `blind` is why
    the memory can't be read, None where it can; `latest` the last event with numbers.
    """

    sampler_pid: int | None = None
    cause: str | None = "the sampler is starting"
    gained: str = ""
    blind: str | None = None
    latest: FloorEvent | None = None


class Guard:
    """The models that the floor may stop, and how it is watched.  Made by `open_guard`.

    The agent calls `add`, `remove`, `set_order` and `set_floor`, from any number of tasks; each
    returns when all who watch go by it.  The rest is for those who watch.
    """

    def __init__(self, floor_bytes: int, on_event: Callable[[FloorEvent], None]) -> None:
        self.status = AsyncValue(GuardStatus())
        self.past = Past()
        self._on_event = on_event
        self._version, self._in_force = AsyncValue(1), AsyncValue(0)
        self._floor_bytes = floor_bytes
        self._watchers: dict[object, int] = {}
        self._targets: dict[str, Target] = {}
        self._order: tuple[str, ...] = ()

    async def add(self, name: str, pidfd: int, pid: int, *, group: bool = True) -> None:
        """Hand over a model, in place of an earlier one of its name.

        `pidfd` is that of `pid`, the model's leader, and stays the caller's.  `group`: the process
        group of that number is the model's own, and is signalled as a whole.  A model is chosen
        only when `set_order` names it.  Raises ValueError for a PID that must never be signalled.
        After a cancellation the model may be guarded or not: call `remove`.
        """
        refuse_target(pid)
        target = Target(name, os.dup(pidfd), pid, group)
        self._drop(name)
        self._targets[name] = target
        await self._enforce()

    async def remove(self, name: str) -> None:
        """Let go of a model: nobody will signal it any more.  An unknown name is no error.

        A model that was being stopped counts as gone then, and its STOPPED still comes.
        """
        self._drop(name)
        await self._enforce()

    async def set_order(self, names: Iterable[str]) -> None:
        """Who is stopped first, as `core.victims.plan_victims` says."""
        self._order = tuple(names)
        await self._enforce()

    async def set_floor(self, floor_bytes: int) -> None:
        """Another floor from now on; 0 means none."""
        self._floor_bytes = floor_bytes
        await self._enforce()

    async def _enforce(self) -> None:
        self._version.value += 1
        version = self._version.value
        await self._in_force.wait_value(lambda value: value >= version)

    @property
    def version(self) -> int:
        """Counts what was said; what a watcher goes by is compared with it."""
        return int(self._version.value)

    async def wait_newer(self, version: int) -> None:
        """Return when something was said after `version`."""
        await self._version.wait_value(lambda value: value > version)

    def put_in_force(self, watcher: object, version: int) -> None:
        """`watcher` goes by `version`; 0 when it begins, and what is said from then on waits."""
        self._watchers[watcher] = version
        self._in_force.value = min(self._watchers.values())

    def leave(self, watcher: object) -> None:
        """`watcher` signals nobody any more."""
        self._watchers.pop(watcher, None)
        if self._watchers:
            self._in_force.value = min(self._watchers.values())

    def catch_up(self, known: Mapping[str, Target] | None) -> Changes:
        """What a watcher that knows `known` must be told; None: it has just begun."""
        # Adding a model clears what was done to an earlier one of its name: the past comes later.
        past = [(render_past(self.past), -1)] if known is None else []
        lines: list[tuple[bytes, int]] = []
        known = known or {}
        for name, target in known.items():
            if self._targets.get(name) is not target:
                lines.append((render_message("remove", name=name), -1))
        for name, target in self._targets.items():
            if known.get(name) is not target:
                line = render_message("add", name=name, pid=target.pid, group=int(target.group))
                lines.append((line, os.dup(target.pidfd)))
        lines += past
        lines.append((render_message("order", names=",".join(self._order)), -1))
        # The floor last: it acts from then on, and must know whom it may stop.
        lines.append((render_message("floor", bytes=self._floor_bytes), -1))
        return Changes(self._version.value, lines, dict(self._targets))

    def tell(self, event: FloorEvent) -> None:
        """Take an event from who watches."""
        status = self.status.value
        if event.kind is FloorEventKind.READY:
            status = replace(status, gained=event.detail or "")
        if event.kind in (FloorEventKind.BLIND, FloorEventKind.SEES):
            status = replace(status, blind=event.detail)
        if event.available_bytes is not None:
            status = replace(status, latest=event)
        self.status.value = status
        self._on_event(event)

    def watched_by(self, sampler_pid: int | None, cause: str | None = None) -> None:
        """Take note of who watches from now on."""
        gained = self.status.value.gained if sampler_pid else ""
        self.status.value = replace(
            self.status.value, sampler_pid=sampler_pid, cause=cause, gained=gained
        )

    def close(self) -> None:
        """Let go of all models."""
        for name in list(self._targets):
            self._drop(name)

    def _drop(self, name: str) -> None:
        target = self._targets.pop(name, None)
        if target is not None:
            os.close(target.pidfd)


class Changes:
    """Messages that lead from what a watcher knew to `version`, and what is `known` then.

    Each message comes with a descriptor of its own, or -1.  Take them, or use `with`, which closes
    them at its end.
    """

    def __init__(
        self, version: int, lines: list[tuple[bytes, int]], known: Mapping[str, Target]
    ) -> None:
        self.version, self.lines, self.known = version, lines, known

    def take(self) -> list[tuple[bytes, int]]:
        """The messages, with descriptors that are the caller's now."""
        lines, self.lines = self.lines, []
        return lines

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for _line, descriptor in self.take():
            if descriptor >= 0:
                os.close(descriptor)
