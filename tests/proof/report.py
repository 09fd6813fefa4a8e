"""A story told to a person: what broke, what led to it, and how to see it again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from lumbridge_compute.effects import STATE_FILE
from tests.fakes.running import Run
from tests.fakes.world import World
from tests.proof.enumerator import Told

BEFORE = 30
"""How many effects up to the fault are shown."""


def render_told(told: Told, *, every_effect: bool = False) -> str:
    """Seed, effects up to the fault, state and world, and the command that tells it again."""
    return "\n".join(_lines(told, every_effect=every_effect))


def _lines(told: Told, *, every_effect: bool) -> Iterator[str]:
    def numbers(where: str) -> Iterable[int]:
        yield from (violation.number for label, violation in told.violations if label == where)
        yield from (fault.number for fault in told.story.faults if where == "command")
        yield from (fault.number for fault in told.story.later if where == "disturbed resume")

    yield f"story: {told.story}"
    for label, violation in told.violations:
        yield f"broken, in the {label}: {violation}"
    yield from render_runs(told.runs, numbers, told.world, every_effect=every_effect)
    yield f"replay: scripts/prove --replay {told.story}"


def render_runs(
    runs: Iterable[tuple[str, Run]],
    numbers: Callable[[str], Iterable[int]],
    world: World,
    *,
    every_effect: bool = False,
) -> Iterator[str]:
    """Each run with its effects up to the last of its `numbers`, then state and world."""
    for label, run in runs:
        yield f"--- {label}: {render_ending(run)}"
        last = max(numbers(label), default=-1)
        shown = run.calls if every_effect else run.calls[max(0, last + 1 - BEFORE) : last + 1]
        yield from map(str, shown)
    yield "--- the state file at the end"
    yield (world.disk.read(STATE_FILE) or b"(none)").decode(errors="replace").rstrip()
    yield "--- the world at the end"
    yield from _world(world)


def render_ending(run: Run) -> str:
    """How it ended, in a few words."""
    if run.error is not None:
        return f"raised {run.error!r}"
    if run.outcome is None:
        return "killed"
    return f"exit {int(run.outcome.exit)}, {run.outcome.error or 'no error'}"


def _world(world: World) -> Iterator[str]:
    for body in sorted(world.bodies.values(), key=lambda each: each.pid):
        ports = f", listens on {sorted(body.listens)}" if body.listens else ""
        whose = f"start {body.start} of {body.model}" if body.model else "none of ours"
        yield f"pid {body.pid} {body.name}: {body.phase.value}, group {body.group}, {whose}{ports}"
