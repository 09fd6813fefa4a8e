"""Does this answer name exactly this model?  The named results (DESIGN section 7)."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class HealthName(enum.StrEnum):
    """Every result that a check can have."""

    EXACT = "exact"
    STARTING = "starting"
    UNREACHABLE = "unreachable"
    NOT_READY = "not-ready"
    BUSY = "busy"
    WRONG_MARKER = "wrong-marker"
    FOREIGN_LISTENER = "foreign-listener"
    SHARED_PORT = "shared-port"
    UNAUTHORIZED = "unauthorized"
    MALFORMED = "malformed"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class Health:
    """One result with its sentence.

    `detail` is None when exact, else one sentence for the operator.  `reported` are the markers
    that the server named.  `settled` means that waiting changes nothing soon: the answer came
    from a server that is up (after `ready`), not from one that is still loading.
    """

    name: HealthName
    detail: str | None = None
    reported: tuple[str, ...] = ()
    settled: bool = False

    @property
    def exact(self) -> bool:
        return self.name is HealthName.EXACT


EXACT = Health(HealthName.EXACT)
