"""What was observed at one moment: the third argument of every plan."""

from __future__ import annotations

from collections.abc import Mapping

from lumbridge_compute.core.health import Health
from lumbridge_compute.core.identity import Claim, Identity, Ownership
from lumbridge_compute.core.registry import Model
from lumbridge_compute.core.values import dataclass, field

NOT_RECORDED = Claim(Ownership.NONE)


@dataclass(frozen=True, slots=True)
class Memory:
    """MemAvailable and MemTotal of /proc/meminfo, in bytes."""

    available_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class Listener:
    """One TCP socket in state LISTEN.

    `pids` are the processes seen to hold it, empty where the kernel hides them from us; `uid` is
    the socket's user; `who` names the holder for a person ("pid 7 (nginx)", "user 33").
    """

    address: str
    port: int
    inode: int
    uid: int
    pids: frozenset[int] = frozenset()
    who: str = ""


@dataclass(frozen=True, slots=True)
class ModelView:
    """One model as seen now: recorded, declared, or both.

    `checked` is the definition that `health` was judged by: the recorded one, with today's health
    section where a process started from either would be the same.  `health` is None where no
    process of ours could have any; `stranger` is what answers on the port of a model that has no
    living record.  `replaced` is what the record of another process is worth for which a candidate
    (adopt --pid) stands in.  `restarting_unit` names a service or container that may start it
    again.  `age_s` is the leader's age in seconds.  `permitted` is False when the kernel would not
    let us signal it.  `hosts_us` is True when this very command runs inside it.
    """

    name: str
    claim: Claim = NOT_RECORDED
    identity: Identity | None = None
    checked: Model | None = None
    health: Health | None = None
    stranger: Health | None = None
    age_s: float | None = None
    permitted: bool = True
    hosts_us: bool = False
    legacy_pid: int | None = None
    replaced: Claim | None = None
    restarting_unit: str | None = None

    @property
    def ownership(self) -> Ownership:
        return self.claim.ownership

    @property
    def exact(self) -> bool:
        return self.ownership is Ownership.OWNED and self.health is not None and self.health.exact


@dataclass(frozen=True, slots=True)
class World:
    """One snapshot.  `startable` maps a model to why its command can't be run (missing program
    or folder); models that can be are absent.  `footprints` are measured memory costs, bytes."""

    models: Mapping[str, ModelView]
    listeners: tuple[Listener, ...] = ()
    memory: Memory | None = None
    unstartable: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    footprints: Mapping[str, int] = field(default_factory=dict)

    def view(self, name: str) -> ModelView:
        return self.models.get(name) or ModelView(name)
