"""What a command would do, as a value: the dry run renders it, the transaction carries it out."""

from __future__ import annotations

from collections.abc import Mapping

from lumbridge_compute.core.identity import Identity
from lumbridge_compute.core.registry import Model, Registry
from lumbridge_compute.core.state import Bound, NodeState
from lumbridge_compute.core.values import dataclass, field
from lumbridge_compute.core.world import World


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Registry, state and world as they were at one moment: the whole input of a plan."""

    registry: Registry
    state: NodeState
    world: World


@dataclass(frozen=True, slots=True)
class Refusal:
    """One reason why nothing may be changed.  `code` is stable, for programs."""

    code: str
    model: str | None
    message: str
    hint: str


@dataclass(frozen=True, slots=True)
class Refusals:
    """Every reason at once; nothing was changed."""

    scene: str | None
    reasons: tuple[Refusal, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Keep:
    """A process of ours that stays as it is; `loading` ones are waited for, `age_s` old by now."""

    model: str
    identity: Identity
    definition: Model
    loading: bool = False
    age_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Stop:
    """A process of ours, or what survives of it, to be stopped by the definition it runs with.

    It takes a `Bound` record: a legacy one has no identity and so can't be written down here.
    """

    model: str
    record: Bound


@dataclass(frozen=True, slots=True)
class Start:
    """A model to be started anew from `definition`."""

    definition: Model

    @property
    def model(self) -> str:
        return self.definition.name


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Bytes before the first stop; `gives` and `needs` are None where a model's cost is unknown."""

    available_bytes: int
    gives_bytes: int | None
    needs_bytes: int | None
    floor_bytes: int

    @property
    def after_bytes(self) -> int | None:
        """What would be available once the plan is carried out; None where not known."""
        if self.gives_bytes is None or self.needs_bytes is None:
            return None
        return self.available_bytes + self.gives_bytes - self.needs_bytes


@dataclass(frozen=True, slots=True)
class Plan:
    """What will be done.  `stop` is in the order of the signals, `start` in start order; a model
    in both is restarted.  `scene` is None when the plan leaves nothing running.  `measured` is
    what models were measured to cost, in bytes.
    """

    command: str
    scene: str | None
    keep: tuple[Keep, ...] = ()
    stop: tuple[Stop, ...] = ()
    start: tuple[Start, ...] = ()
    forget: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    memory: MemoryEstimate | None = None
    measured: Mapping[str, int] = field(default_factory=dict)

    @property
    def changes_processes(self) -> bool:
        return bool(self.stop or self.start)

    @property
    def settled(self) -> bool:
        """True when every process that the plan wants serves already."""
        return not self.changes_processes and not any(kept.loading for kept in self.keep)

    @property
    def restarted(self) -> frozenset[str]:
        return frozenset(s.model for s in self.stop) & frozenset(s.model for s in self.start)

    @property
    def target(self) -> tuple[Model, ...]:
        """The definitions that run once the plan is carried out, kept ones first."""
        return tuple(k.definition for k in self.keep) + tuple(s.definition for s in self.start)


@dataclass(frozen=True, slots=True)
class AdoptPlan:
    """Processes that already run `scene`, each proved, with today's definition.  `forget` are the
    records of others that have ended."""

    scene: str
    records: dict[str, Bound] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    forget: tuple[str, ...] = ()
