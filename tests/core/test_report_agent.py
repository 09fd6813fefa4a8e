"""What an operator reads of the resident agent."""

from __future__ import annotations

from typing import Any, cast

from lumbridge_compute.core.documents import AgentDocument
from lumbridge_compute.core.registry import Address, GatewaySpec, Registry
from lumbridge_compute.core.report import AgentView, GatewayView, NodeStatus
from lumbridge_compute.core.report_status import render_status, status_document
from lumbridge_compute.core.state import NodeState
from lumbridge_compute.core.values import replace
from lumbridge_compute.core.world import World

TOLD: AgentDocument = {
    "pid": 311,
    "version": "0.1.0",
    "registry_fault": None,
    "resumed": True,
    "transaction": None,
    "waiting": 0,
    "floor": {"bytes": 2 << 30, "sampler_pid": 312, "cause": None, "blind": None},
    "gateways": [],
}
SPEC = GatewaySpec(Address("127.0.0.1", 8011), Address("127.0.0.1", 8001))
NODE = NodeStatus(
    root="/srv/node",
    version="0.1.0",
    world=World({}),
    registry=Registry({}, {}, memory_floor_bytes=1 << 30),
    state=NodeState(),
    gateways=(GatewayView(SPEC, connections=2, held=1),),
)


def lines(agent: AgentView) -> str:
    return "\n".join(render_status(replace(NODE, agent=agent)))


def resident(version: str = "0.1.0", **told: Any) -> AgentView:
    return AgentView(
        running=True, pid=311, version=version, told=cast("AgentDocument", {**TOLD, **told})
    )


def test_at_rest() -> None:
    text = lines(resident())
    assert "agent: pid 311, version 0.1.0; at rest" in text
    assert "gateway: 127.0.0.1:8011 -> 127.0.0.1:8001, 2 connections, 1 held" in text


def test_its_floor_is_the_one_in_force() -> None:
    document = status_document(replace(NODE, agent=resident()))
    assert document["memory"]["floor_bytes"] == 2 << 30
    assert status_document(NODE)["memory"]["floor_bytes"] == 1 << 30


def test_what_it_does_and_who_waits() -> None:
    doing = {"command": "activate", "name": "day", "client_pid": 7, "age_s": 42.0}
    text = lines(resident(transaction=doing, waiting=2))
    assert "scene activate day, for 42 s, 2 waiting" in text


def test_before_its_resume() -> None:
    assert "before its resume" in lines(resident(resumed=False))


def test_an_agent_of_another_version_is_named() -> None:
    assert "version 0.0.9, this command is 0.1.0" in lines(resident("0.0.9"))


def test_one_that_does_not_answer_is_stuck() -> None:
    agent = AgentView(running=True, pid=311)
    assert "agent: pid 311 holds its lock and does not answer: it is stuck" in lines(agent)
    told = status_document(replace(NODE, agent=agent))["agent_state"]
    assert told is not None
    assert told["stuck"] is True


def test_a_refused_registry_a_blind_floor_and_a_missing_sampler_are_told() -> None:
    floor = TOLD["floor"]
    text = lines(resident(registry_fault="no model 'x'", floor=floor | {"blind": "no such file"}))
    assert "compute.yaml as it is now is refused: no model 'x'" in text
    assert "BLIND, nothing is guarded: no such file" in text
    alone = lines(resident(floor=floor | {"sampler_pid": None, "cause": "it ended"}))
    assert "watched by the agent itself, not by its sampler: it ended" in alone


def test_without_one_nobody_serves_the_gateways() -> None:
    assert "(not served: no agent runs)" in lines(AgentView())
    assert status_document(NODE)["agent_state"] is None
