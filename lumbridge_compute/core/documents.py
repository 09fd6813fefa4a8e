"""The JSON documents that a node tells of itself, field by field (DESIGN section 12)."""

from __future__ import annotations

from typing import TypedDict


class GatewayDocument(TypedDict):
    """One gateway at one moment.

    `mode` is `relaying`, `expecting` (what the upstream refuses is held) or `holding`;
    `connections` are those with an upstream, `held` those that wait for one; `refused` counts
    clients turned away without one, `reset` relayed connections that ended with a RST; `up` is
    what clients sent.
    """

    listen: str
    upstream: str
    mode: str
    connections: int
    held: int
    total: int
    refused: int
    reset: int
    up_bytes: int
    down_bytes: int


class TransactionDocument(TypedDict):
    """The order under way; `client_pid` is whom the agent carries it out for."""

    command: str
    name: str | None
    client_pid: int | None
    age_s: float


class FloorDocument(TypedDict):
    """The memory floor: `cause` says why the sampler runs inside the agent, `blind` why nothing
    is guarded at the moment."""

    bytes: int | None
    sampler_pid: int | None
    cause: str | None
    blind: str | None


class AgentDocument(TypedDict):
    """What the agent tells of itself.

    `registry_fault` says why compute.yaml, as it is now, is not in force; `resumed` is False until
    the agent's own resume has ended; `waiting` counts the orders that wait for the one under way.
    """

    pid: int
    version: str
    registry_fault: str | None
    resumed: bool
    transaction: TransactionDocument | None
    waiting: int
    floor: FloorDocument
    gateways: list[GatewayDocument]


class ModelDocument(TypedDict):
    """One model; `health` and `ownership` are the names of DESIGN sections 6 and 7."""

    name: str
    port: int | None
    marker: str | None
    pid: int | None
    ownership: str
    health: str | None
    detail: str | None
    in_active_scene: bool
    definition_changed: bool


class MeasuredModelDocument(ModelDocument):
    """The same with what it needs, as declared and as measured at its last start."""

    declared_memory_bytes: int | None
    measured_memory_bytes: int | None
    measured_load_s: float | None


class ResidentDocument(TypedDict):
    """Who is the node's agent; pid and version are None where it does not tell."""

    running: bool
    pid: int | None
    version: str | None


class AgentStateDocument(TypedDict):
    """What the agent does; all but `stuck` is None where it does not answer."""

    stuck: bool
    transaction: TransactionDocument | None
    waiting: int | None
    floor: FloorDocument | None
    registry_fault: str | None


class StateDocument(TypedDict):
    """What the state file says; all None where it can't be read."""

    desired_scene: str | None
    active_scene: str | None
    last_known_good_scene: str | None
    transition_scene: str | None
    last_error: str | None


class MemoryDocument(TypedDict):
    """The machine's memory, None where it can't be read; `floor_bytes` is the floor in force."""

    available_bytes: int | None
    total_bytes: int | None
    floor_bytes: int | None


class DoorDocument(TypedDict):
    """What `status` shows of a gateway."""

    listen: str
    upstream: str
    connections: int
    held: int


class ProblemDocument(TypedDict):
    """What could not be read, and the next step."""

    message: str
    hint: str | None


class StatusDocument(TypedDict):
    """The document of `status --json`; `verdict` is exact, transition, degraded, idle or unknown.

    `agent_state` is None without an agent; `problems` says what could not be read.
    """

    root: str
    version: str
    agent: ResidentDocument
    state: StateDocument
    verdict: str
    models: list[MeasuredModelDocument]
    memory: MemoryDocument
    gateways: list[DoorDocument]
    agent_state: AgentStateDocument | None
    problems: list[ProblemDocument]
