"""The processes of a simulated machine: what a program does, and one process that runs it."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from lumbridge_compute.core.identity import Process

GIB = 1 << 30


class Engine(enum.Enum):
    """Where a program's second process lives."""

    NONE = "none"
    IN_GROUP = "in its group"
    ESCAPED = "in a session of its own"


@dataclass(frozen=True, slots=True)
class Program:
    """How a model server behaves; times in seconds.

    It listens `load_s` after its start and answers 503 for `warm_s` more.  `marker` is what it
    says it is, None for what it should say.  TERM ends it after `term_s`; `ignores_term` and
    `loses_terms` (so many of the first ones have no effect) are worse.  `engine` is a second
    process, which `outlives` the first, or ends shortly after it; it may have lost its token and
    may hold the port too.  `dies_after_s`: it ends by itself with exit code 1.  `silent`: it
    accepts and says nothing.
    """

    load_s: float = 0.8
    warm_s: float = 0.0
    marker: str | None = None
    term_s: float = 0.3
    ignores_term: bool = False
    loses_terms: int = 0
    engine: Engine = Engine.NONE
    outlives: bool = False
    keeps_token: bool = True
    engine_listens: bool = False
    shares_port: bool = False
    dies_after_s: float | None = None
    silent: bool = False
    memory_bytes: int = 2 * GIB


class Phase(enum.Enum):
    GATED = "gated"
    RUNNING = "running"
    ZOMBIE = "zombie"
    GONE = "gone"


@dataclass(eq=False)
class Body:
    """One process.  `model` is the model of ours whose process it is, None for a stranger;
    `start` names the start that it came from: every process of one start has the same number.
    """

    pid: int
    parent: int
    group: int
    session: int
    ticks: int
    inode: int
    name: str
    group_inode: int
    phase: Phase = Phase.RUNNING
    model: str | None = None
    start: int = 0
    leads: bool = False
    token: str | None = None
    scope: str | None = None
    program: Program | None = None
    port: int = 0
    marker: str = ""
    listens: set[int] = field(default_factory=set)
    shares_port: bool = False
    serves: bool = False
    terms: int = 0
    ending: bool = False
    cause: str | None = None

    @property
    def alive(self) -> bool:
        return self.phase in (Phase.GATED, Phase.RUNNING)

    @property
    def row(self) -> Process:
        state = "Z" if self.phase is Phase.ZOMBIE else "S"
        return Process(self.pid, self.parent, self.group, self.session, state, self.ticks)
