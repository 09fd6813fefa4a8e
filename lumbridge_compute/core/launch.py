"""How a declared model becomes an argument list: placeholders and environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

TOKEN_VARIABLE = "LUMBRIDGE_COMPUTE_TOKEN"  # noqa: S105 - the name of a variable


@dataclass(frozen=True, slots=True)
class Launch:
    """Everything needed to start one model, expanded: may hold secrets, so never shown or stored.

    `cwd` is absolute; `env` is the whole environment of the process; `scope` is the systemd scope
    to run in, None to run plainly in a session of its own.
    """

    model: str
    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str] = field(repr=False)
    token: str | None = None
    scope: str | None = None
