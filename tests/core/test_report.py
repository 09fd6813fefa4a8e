"""The one word for a node, and what a person and a program are told about it."""

from __future__ import annotations

from typing import Any

import pytest

from lumbridge_compute.core.health import EXACT, Health, HealthName
from lumbridge_compute.core.identity import Claim, Identity, Ownership, Process
from lumbridge_compute.core.registry import Address, GatewaySpec, Model, Registry, Scene
from lumbridge_compute.core.report import (
    AgentView,
    GatewayView,
    Holder,
    NodeStatus,
    Problem,
    Verdict,
    adoptable,
    judge,
    model_rows,
    passes_check,
)
from lumbridge_compute.core.report_status import render_status, status_document
from lumbridge_compute.core.state import Bound, Legacy, NodeState, Record, ResumeFailures
from lumbridge_compute.core.values import replace
from lumbridge_compute.core.world import Listener, Memory, ModelView, World

BOOT = "b00t"
QWEN = Model("qwen", ("serve",), 8001, "qwen3", memory_bytes=60 << 30)
VOICE = Model("voice", ("serve",), 8002, "voice")
LARGE = Model("large", ("serve",), 8001, "large")
REGISTRY = Registry(
    {model.name: model for model in (LARGE, VOICE, QWEN)},
    {"day": Scene("day", ("qwen", "voice")), "night": Scene("night", ("large", "voice"))},
    memory_floor_bytes=3 << 30,
)
STRANGER = Listener("127.0.0.1", 8001, 5, 0, frozenset({77}), "pid 77 (nginx)")


def owned(model: Model, pid: int, health: Health | None = EXACT) -> ModelView:
    leader = Process(pid, 1, pid, pid, "S", 100)
    claim = Claim(Ownership.OWNED, leader, frozenset({pid}))
    return ModelView(model.name, claim, Identity(BOOT, pid, 100), model, health=health, age_s=3.0)


def gone(model: Model) -> ModelView:
    health = Health(HealthName.DEAD, f"{model.name!r} has ended, cause not known")
    return ModelView(model.name, Claim(Ownership.GONE), Identity(BOOT, 9, 1), model, health)


def bound(model: Model, pid: int) -> Bound:
    return Bound(Identity(BOOT, pid, 100), model)


def status(*views: ModelView, records: dict[str, Record] | None = None, **keys: Any) -> NodeStatus:
    """A node by day, all of it exactly healthy, unless said otherwise."""
    known = {name: ModelView(name, checked=model) for name, model in REGISTRY.models.items()}
    seen = views or (owned(QWEN, 11), owned(VOICE, 12))
    recorded = {"qwen": bound(QWEN, 11), "voice": bound(VOICE, 12)} if records is None else records
    state: dict[str, Any] = {
        "desired_scene": "day",
        "active_scene": "day",
        "last_known_good_scene": "night",
        "processes": recorded,
    }
    state |= {name: keys.pop(name) for name in [*keys] if name in NodeState.__match_args__}
    world = World(
        known | {view.name: view for view in seen},
        keys.pop("listeners", ()),
        Memory(40 << 30, 128 << 30),
    )
    made = NodeStatus(
        root="/srv/node",
        version="0.1.0",
        world=world,
        registry=REGISTRY,
        state=NodeState(**state),
    )
    return replace(made, **keys)


BUSY = Holder(88, "activate", 12.0)
DEAD = status(owned(QWEN, 11), gone(VOICE))
IDLE = {"desired_scene": None, "active_scene": None}


@pytest.mark.parametrize(
    ("node", "verdict"),
    [
        (status(), Verdict.EXACT),
        (status(desired_scene="night"), Verdict.EXACT),
        (status(holder=BUSY), Verdict.EXACT),
        (DEAD, Verdict.DEGRADED),
        (status(owned(QWEN, 11, None), owned(VOICE, 12)), Verdict.DEGRADED),
        (status(active_scene="unknown"), Verdict.DEGRADED),
        (status(active_scene=None), Verdict.DEGRADED),
        (status(transition_scene="night", active_scene=None), Verdict.DEGRADED),
        (status(transition_scene="night", active_scene=None, holder=BUSY), Verdict.TRANSITION),
        (status(**IDLE, deactivating=True, holder=BUSY), Verdict.TRANSITION),
        (status(gone(QWEN), **IDLE, deactivating=True, records={}), Verdict.DEGRADED),
        (status(gone(QWEN), **IDLE, records={"qwen": bound(QWEN, 9)}), Verdict.IDLE),
        (status(ModelView("qwen"), **IDLE, records={}), Verdict.IDLE),
        (status(**IDLE), Verdict.DEGRADED),
        (replace(status(), state=None, problems=(Problem("bad"),)), Verdict.UNKNOWN),
        (replace(status(), registry=None, problems=(Problem("bad"),)), Verdict.UNKNOWN),
    ],
)
def test_the_verdict_says_what_the_node_is_like(node: NodeStatus, verdict: Verdict) -> None:
    assert judge(node) is verdict
    assert status_document(node)["verdict"] == verdict.value
    assert render_status(node)[0].startswith(f"{verdict}: ")


@pytest.mark.parametrize(
    ("node", "passes"),
    [
        (status(), True),
        (status(desired_scene="night"), False),
        (status(ModelView("qwen"), **IDLE, records={}), True),
        (DEAD, False),
        (replace(status(), state=None), False),
    ],
)
def test_the_check_wants_what_is_desired_or_nothing_at_all(
    node: NodeStatus,
    passes: bool,  # noqa: FBT001 - a column of the table above
) -> None:
    assert passes_check(node) is passes


def test_the_document_has_every_field_of_the_contract_with_its_type() -> None:
    document = status_document(
        status(
            gateways=(GatewayView(GatewaySpec(Address("127.0.0.1", 8011), Address("::1", 8001))),),
            agent=AgentView(running=True, pid=311, version="0.1.0"),
        )
    )
    assert document["agent"] == {"running": True, "pid": 311, "version": "0.1.0"}
    assert document["state"] == {
        "desired_scene": "day",
        "active_scene": "day",
        "last_known_good_scene": "night",
        "transition_scene": None,
        "last_error": None,
    }
    assert {
        key: document["models"][0][key]
        for key in (
            "name",
            "port",
            "marker",
            "pid",
            "ownership",
            "health",
            "detail",
            "in_active_scene",
            "definition_changed",
        )
    } == {
        "name": "qwen",
        "port": 8001,
        "marker": "qwen3",
        "pid": 11,
        "ownership": "owned",
        "health": "exact",
        "detail": None,
        "in_active_scene": True,
        "definition_changed": False,
    }
    assert document["memory"] == {
        "available_bytes": 40 << 30,
        "total_bytes": 128 << 30,
        "floor_bytes": 3 << 30,
    }
    assert document["gateways"] == [
        {"listen": "127.0.0.1:8011", "upstream": "[::1]:8001", "connections": 0, "held": 0}
    ]


def test_models_come_in_start_order_then_what_lives_then_the_rest() -> None:
    extra = Model("old", ("serve",), 8009, "old")
    node = status(owned(QWEN, 11), owned(VOICE, 12), owned(extra, 13))
    rows = model_rows(node.world, REGISTRY, "day")
    assert [row.name for row in rows] == ["qwen", "voice", "old", "large"]
    assert [row.in_active_scene for row in rows] == [True, True, False, False]


def test_a_pid_that_may_be_someone_elses_by_now_is_not_shown() -> None:
    (row,) = (row for row in model_rows(DEAD.world, REGISTRY, "day") if row.name == "voice")
    assert (row.pid, row.ownership, row.health) == (None, Ownership.GONE, HealthName.DEAD)


def test_a_definition_that_a_switch_would_restart_is_told() -> None:
    older = replace(QWEN, command=("serve", "--old"))
    node = status(owned(older, 11), owned(VOICE, 12))
    changed = {r.name: r.definition_changed for r in model_rows(node.world, REGISTRY, "day")}
    assert changed == {"qwen": True, "voice": False, "large": False}
    assert "  qwen: compute.yaml has changed since it was started" in render_status(node)


def test_an_unrecorded_server_is_named_and_the_scene_it_makes_can_be_adopted() -> None:
    views = [ModelView(model.name, checked=model, stranger=EXACT) for model in (QWEN, VOICE)]
    voice = replace(STRANGER, port=8002, who="pid 78 (python)")
    node = status(*views, **IDLE, records={}, listeners=(STRANGER, voice))
    (row, *_) = (r for r in model_rows(node.world, REGISTRY, None) if r.name == "qwen")
    assert row.health is HealthName.FOREIGN_LISTENER
    assert row.detail == (
        "port 8001 is held by pid 77 (nginx), which is in no record, and answers as 'qwen3'"
    )
    assert adoptable(node) == "day"
    assert any("scene adopt day" in line for line in render_status(node))


def test_a_port_that_another_model_of_ours_holds_is_no_news() -> None:
    ours = replace(STRANGER, pids=frozenset({11}))
    (row,) = (
        r for r in model_rows(status(listeners=(ours,)).world, REGISTRY, "day") if r.name == "large"
    )
    assert (row.health, row.detail) == (None, None)


@pytest.mark.parametrize(
    ("node", "first", "hint"),
    [
        (
            status(desired_scene="night"),
            "exact: Scene 'day' runs, every model exactly healthy, but Scene 'night' is desired",
            "hint: lumbridge-compute scene resume",
        ),
        (
            DEAD,
            "degraded: Scene 'day' is recorded as active but 'voice' is gone",
            "hint: lumbridge-compute scene resume",
        ),
        (
            status(transition_scene="night", active_scene=None),
            "degraded: the switch to Scene 'night' was interrupted and nobody goes on with it",
            "hint: lumbridge-compute scene resume",
        ),
        (
            status(active_scene=None, resume_failures=ResumeFailures("day", "d", 3)),
            "degraded: Scene 'day' is desired but no Scene is active",
            "hint: lumbridge-compute scene resume --force",
        ),
        (
            status(**IDLE),
            "degraded: nothing is desired, but still alive: 'qwen' (pid 11), 'voice' (pid 12)",
            "hint: lumbridge-compute scene deactivate",
        ),
        (
            status(transition_scene="night", active_scene=None, holder=BUSY),
            "transition: pid 88 (activate) has been switching to Scene 'night' for 12 s",
            None,
        ),
    ],
)
def test_the_first_lines_say_what_is_the_matter_and_what_to_do(
    node: NodeStatus, first: str, hint: str | None
) -> None:
    lines = render_status(node)
    assert lines[0] == first
    assert ([*lines, ""][1] or None) == hint


def test_a_legacy_record_is_told_with_the_two_ways_out() -> None:
    leader = Process(11, 1, 11, 11, "S", 100)
    legacy = ModelView(
        "qwen",
        Claim(Ownership.LEGACY, leader, frozenset({11})),
        checked=QWEN,
        health=EXACT,
        legacy_pid=11,
    )
    lines = render_status(status(legacy, gone(VOICE), records={"qwen": Legacy(11)}))
    assert "scene adopt day" in lines[1]
    assert "scene forget qwen" in lines[1]


def test_everything_that_can_not_be_read_is_said() -> None:
    problems = (Problem("the state is empty", "look at it"), Problem("no compute.yaml"))
    lines = render_status(replace(status(), state=None, registry=None, problems=problems))
    assert lines[:3] == [
        "unknown: the state is empty",
        "problem: no compute.yaml",
        "hint: look at it",
    ]
    assert any("qwen" in line for line in lines[3:])


def test_a_narrow_terminal_gets_no_line_that_wraps_and_keeps_the_names() -> None:
    table = [line for line in render_status(status(), 40) if line.startswith(("MODEL", "qwen"))]
    assert all(len(line) <= 40 for line in table)
    assert table[0].split() == ["MODEL", "OWNERSHIP", "PID", "PORT", "HEALTH"]


def test_what_was_measured_stands_beside_what_was_declared() -> None:
    node = replace(status(), load_s={"qwen": 95.2}, measured={"qwen": 57 << 30})
    (line,) = (line for line in render_status(node) if line.startswith("qwen"))
    assert "60.0 GiB  57.0 GiB  95 s" in line
    document = status_document(node)["models"][0]
    assert document["measured_load_s"] == 95.2
    assert document["measured_memory_bytes"] == 57 << 30
