"""What the operator declared: models, Scenes, gateways, and the rules between them."""

from __future__ import annotations

import enum
from collections.abc import Mapping

from lumbridge_compute.core.values import dataclass, field, replace

DEFAULT_HOST = "127.0.0.1"


class Match(enum.StrEnum):
    """How the marker is read from an answer (DESIGN section 4, `health.match`)."""

    MODELS = "models"
    JSON = "json"
    TEXT = "text"


class PortOwner(enum.StrEnum):
    """Whose the listening socket must be (DESIGN section 4, `port_owner`)."""

    PROCESS = "process"
    ANY = "any"


@dataclass(frozen=True, slots=True)
class DeepProbe:
    """A request that must answer 2xx; `body` is JSON text with placeholders, None for a GET."""

    path: str
    body: str | None = None


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """How one asks a model for its marker; times in seconds, `headers` unexpanded."""

    path: str = "/v1/models"
    match: Match = Match.MODELS
    pointer: str | None = None
    ready: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    timeout_s: float = 900.0
    request_timeout_s: float = 5.0
    probe: DeepProbe | None = None


@dataclass(frozen=True, slots=True)
class StopPolicy:
    """`signal` is a name such as SIGTERM; SIGKILL follows `grace_s` seconds later."""

    signal: str = "SIGTERM"
    grace_s: float = 30.0
    command: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Model:
    """One model server as declared, placeholders unexpanded (so no secret is in it)."""

    name: str
    command: tuple[str, ...]
    port: int
    marker: str
    host: str = DEFAULT_HOST
    cwd: str = "."
    env: tuple[tuple[str, str], ...] = ()
    memory_bytes: int | None = None
    health: HealthCheck = field(default_factory=HealthCheck)
    stop: StopPolicy = field(default_factory=StopPolicy)
    port_owner: PortOwner = PortOwner.PROCESS

    def starts_like(self, other: Model) -> bool:
        """True when a process started from either could not tell which it was.

        Health, stop policy and declared memory are how we treat a process, not what it is: a
        longer timeout must not restart a model that took minutes to load.
        """
        return (
            replace(
                self,
                memory_bytes=other.memory_bytes,
                health=other.health,
                stop=other.stop,
                port_owner=other.port_owner,
            )
            == other
        )


@dataclass(frozen=True, slots=True)
class Scene:
    """Models that run together, in start order; `sacrifice` is what the floor stops first."""

    name: str
    models: tuple[str, ...]
    sacrifice: tuple[str, ...] = ()
    description: str = ""


@dataclass(frozen=True, slots=True)
class Address:
    """A literal IP address and a TCP port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class GatewaySpec:
    """A listening address, the upstream behind it, and who may connect; times in seconds."""

    listen: Address
    upstream: Address
    allow: tuple[str, ...] = ()
    hold_s: float = 600.0
    drain_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Registry:
    """The whole of compute.yaml."""

    models: Mapping[str, Model]
    scenes: Mapping[str, Scene]
    memory_floor_bytes: int | None = None
    gateways: tuple[GatewaySpec, ...] = ()

    def models_of(self, scene: str) -> tuple[Model, ...]:
        """The models of `scene` in start order.  Raises KeyError for an unknown Scene."""
        return tuple(self.models[name] for name in self.scenes[scene].models)
