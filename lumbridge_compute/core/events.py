"""What a running transaction tells, and how it ended."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from lumbridge_compute.core.plan import AdoptPlan, Plan, Refusals
from lumbridge_compute.core.world import World
from lumbridge_compute.errors import Exit


class EventKind(enum.StrEnum):
    """The steps that a person can watch."""

    PLANNED = "planned"
    STOPPING = "stopping"
    STOPPED = "stopped"
    SETTLING = "settling"
    STARTING = "starting"
    LOADING = "loading"
    HEALTHY = "healthy"
    VERIFYING = "verifying"
    COMMITTED = "committed"
    FAILED = "failed"
    ROLLING_BACK = "rolling-back"
    RESTORED = "restored"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Event:
    """One step.  `detail` is a fragment or sentence; `pid` and `expected_s` (how long a start took
    before) where known; `available_bytes` is the memory at that moment; `plan` with PLANNED alone.
    """

    kind: EventKind
    model: str | None = None
    detail: str | None = None
    pid: int | None = None
    expected_s: float | None = None
    available_bytes: int | None = None
    plan: Plan | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ended.

    `error` is one sentence and `hint` the next step; `restored` is None where nothing had to be
    put back.  `active_scene` is what the state file says afterwards; `world` is what was seen last,
    None where nothing was looked at.  `refusals` carries every reason of a refusal, `plan` what a
    dry run would do, `notes` are warnings.
    """

    exit: Exit
    scene: str | None = None
    active_scene: str | None = None
    restored: bool | None = None
    error: str | None = None
    hint: str | None = None
    world: World | None = None
    plan: Plan | AdoptPlan | None = None
    refusals: Refusals | None = None
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return self.exit is Exit.DONE
