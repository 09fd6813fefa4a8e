"""Does this answer name exactly this model?  The named results (DESIGN section 7)."""

from __future__ import annotations

import enum

from lumbridge_compute.core.markers import (
    TEXT_LIMIT,
    BodyError,
    parse_markers,
    printable,
    render_markers,
)
from lumbridge_compute.core.registry import Model
from lumbridge_compute.core.values import dataclass, field

REPORTED_LIMIT = 256
"""More names than this are not kept of one answer."""


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
    QUEUED = "queued"
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
    then nothing whole came in time.  QUEUED: it was neither taken nor refused in time, which is a
    full queue, or a machine so busy that we did not get to it.  SELF: we reached our own socket (an
    ephemeral port).  `reason` is a fragment for the operator's sentence.
    """

    outcome: Outcome
    status: int = 0
    body: bytes = field(default=b"", repr=False)
    reason: str = ""


def judge_ready(answer: Answer) -> Health | None:
    """None when the `ready` path answers 200, else why the model is not ready.

    Nothing here is settled: until `ready` has answered 200 the server may still be loading.
    """
    return _judge_exchange("the ready check", answer) or _judge_status(
        "the ready check answers", answer.status, range(200, 201), settles=False
    )


def judge_marker(model: Model, answer: Answer) -> Health:
    """Does `answer`, got from the health path of `model`, name exactly its marker?

    The marker is compared by equality alone; of several models listed, one must equal it.
    """
    port, wanted = f"port {model.port}", model.marker
    failure = _judge_exchange(port, answer) or _judge_status(
        f"{port} answers '{printable(model.health.path)}' with",
        answer.status,
        range(200, 201),
        settles=True,
    )
    if failure is not None:
        return failure
    try:
        markers = parse_markers(model.health, answer.body)
    except BodyError as error:
        detail = f"{port} answers with {error}, wanted '{wanted}'"
        return Health(HealthName.MALFORMED, detail)
    if wanted in markers:
        return EXACT
    if not markers:
        return Health(HealthName.NOT_READY, f"{port} lists no model yet, wanted '{wanted}'")
    detail = f"{port} answers as {render_markers(markers)}, wanted '{wanted}'"
    return Health(HealthName.WRONG_MARKER, detail, _faithful(markers), settled=True)


def judge_probe(answer: Answer) -> Health | None:
    """None when the deep probe answers 2xx, else why the model is not exactly healthy."""
    return _judge_exchange("the deep probe", answer) or _judge_status(
        "the deep probe answers", answer.status, range(200, 300), settles=True
    )


def _judge_exchange(subject: str, answer: Answer) -> Health | None:
    """Why no HTTP answer came at all; None when one did."""
    because = f" ({answer.reason})" if answer.reason else ""
    match answer.outcome:
        case Outcome.ANSWERED:
            return None
        case Outcome.SILENT:
            name, said = HealthName.BUSY, f"accepts connections but gives no whole answer{because}"
        case Outcome.QUEUED:
            # Who listens is known by now: this says nothing against it.
            name, said = HealthName.BUSY, f"takes no connection{because}"
        case Outcome.MALFORMED:
            name, said = HealthName.MALFORMED, f"gives no valid answer{because}"
        case Outcome.SELF:
            name, said = HealthName.UNREACHABLE, "reaches nobody: the connection met itself"
        case Outcome.REFUSED:
            name, said = HealthName.UNREACHABLE, "refuses connections"
        case Outcome.FAILED:
            name, said = HealthName.UNREACHABLE, f"can't be reached{because}"
    return Health(name, f"{subject} {said}")


def _judge_status(subject: str, status: int, wanted: range, *, settles: bool) -> Health | None:
    """Why `status` is none of `wanted`; `settles` says that loading is over."""
    if status in wanted:
        return None
    found = f"{subject} {status}"
    if status in (401, 403):
        detail = f"{found}: it wants a key, or another one"
        return Health(HealthName.UNAUTHORIZED, detail, settled=settles)
    if status == 404:
        return Health(HealthName.MALFORMED, f"{found}: no such path", settled=settles)
    if 300 <= status < 400:
        return Health(HealthName.MALFORMED, f"{found}, a redirect, which is not followed")
    return Health(HealthName.NOT_READY, f"{found}, wanted {'200' if len(wanted) == 1 else '2xx'}")


def _faithful(markers: tuple[str, ...]) -> tuple[str, ...]:
    """The `markers` that can be shown as they are: what is kept is compared for equality later,
    so a name is kept whole or not at all."""
    return tuple(name for name in markers if len(name) <= TEXT_LIMIT and name.isprintable())[
        :REPORTED_LIMIT
    ]
