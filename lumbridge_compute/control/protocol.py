"""What both sides of the control socket agree on."""

from __future__ import annotations

from typing import TypedDict

PROTOCOL = 1
"""Rises with every change that an older side would misread."""

SOCKET_NAME = "agent.sock"
VERSION_HEADER = "Lumbridge-Compute-Version"
PROTOCOL_HEADER = "Lumbridge-Compute-Protocol"
ORDER_HEADER = "Lumbridge-Compute-Order"
"""The number by which POST /cancel names an order that is under way or waits."""

ANSWER_S = 2.0
"""An agent that has not begun its answer by then is stuck, and its client has left."""

FRESH_S = 1.5
"""An order that was asked for longer ago is not taken: nothing happens behind a client that was
told that its agent is stuck."""

MAX_BODY_BYTES = 64 * 1024
PULSE_S = 5.0
"""A stream that has nothing to tell sends an empty line this often."""


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


class GatewayDocument(TypedDict):
    """One gateway, as in core.gateways.GatewayStatus."""

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


class AgentDocument(TypedDict):
    """The answer to GET /agent.

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
