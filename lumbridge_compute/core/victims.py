"""Which model the memory floor stops first."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from lumbridge_compute.core.values import dataclass


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model that runs and is proved ours.

    `started` orders the starts (start ticks, or a count); `memory_bytes` is what was declared.
    """

    name: str
    started: float
    memory_bytes: int | None = None


def plan_victims(
    owned: Collection[Candidate],
    sacrifice: Iterable[str] = (),
    target: Collection[str] = (),
) -> tuple[str, ...]:
    """The names of `owned`, first victim first.

    `target` is what a running transition starts (empty outside one): its newest model goes first.
    Then `sacrifice` in its order, then the largest declared memory, of equal ones the latest
    start; what declared nothing goes last.
    """
    rank = {name: place for place, name in reversed(list(enumerate(sacrifice)))}

    def key(model: Candidate) -> tuple[float, ...]:
        if model.name in target:
            return (0, -model.started)
        if model.name in rank:
            return (1, rank[model.name])
        return (2, -(model.memory_bytes or 0), -model.started)

    return tuple(model.name for model in sorted(owned, key=key))
