"""Does this answer name exactly this model?  The named results (DESIGN section 7)."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field


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


class Outcome(enum.StrEnum):
    """How one HTTP exchange ended."""

    ANSWERED = "answered"
    REFUSED = "refused"
    SILENT = "silent"
    MALFORMED = "malformed"
    SELF = "self"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Request:
    """One question to one literal address; a GET where `body` is None, else a POST of JSON.

    `headers` are expanded: never shown, logged or stored.
    """

    host: str
    port: int
    path: str
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    body: bytes | None = field(default=None, repr=False)
    timeout_s: float = 5.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a request.

    `status` and `body` are set when `outcome` is ANSWERED.  SILENT: the connection was accepted,
    then nothing whole came in time.  SELF: we reached our own socket (an ephemeral port).
    `reason` is a fragment for the operator's sentence.
    """

    outcome: Outcome
    status: int = 0
    body: bytes = field(default=b"", repr=False)
    reason: str = ""
