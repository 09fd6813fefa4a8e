"""Plans, progress and outcomes as a person and a program see them."""

from __future__ import annotations

import pytest

from lumbridge_compute.core.events import Event, EventKind, Outcome
from lumbridge_compute.core.health import EXACT
from lumbridge_compute.core.identity import Claim, Identity, Ownership, Process
from lumbridge_compute.core.plan import (
    Keep,
    MemoryEstimate,
    Plan,
    Refusal,
    Refusals,
    Start,
    Stop,
)
from lumbridge_compute.core.registry import Model
from lumbridge_compute.core.report_outcome import (
    dry_run_document,
    outcome_document,
    render_failure,
    render_now_running,
    render_warnings,
)
from lumbridge_compute.core.report_plan import plan_document, render_estimate, render_plan
from lumbridge_compute.core.report_progress import Board, fold, render_board, render_event
from lumbridge_compute.core.state import Bound
from lumbridge_compute.core.values import replace
from lumbridge_compute.core.world import ModelView, World
from lumbridge_compute.errors import Exit

GIB = 1 << 30


def model(name: str, port: int, memory_bytes: int | None = None) -> Model:
    return Model(name, ("serve",), port, f"{name}-marker", memory_bytes=memory_bytes)


def identity(pid: int) -> Identity:
    return Identity("b00t", pid, 100)


VOICE, QWEN, LARGE, TTS = (
    model("voice", 8002, 4 * GIB),
    model("qwen", 8001, 60 * GIB),
    model("large", 8001),
    model("tts", 8003),
)
PLAN = Plan(
    "activate",
    "night",
    keep=(Keep("voice", identity(12), VOICE),),
    stop=(Stop("tts", Bound(identity(14), TTS)), Stop("qwen", Bound(identity(11), QWEN))),
    start=(Start(LARGE), Start(TTS)),
    forget=("old",),
    warnings=("'x' serves too",),
    memory=MemoryEstimate(40 * GIB, 60 * GIB, 80 * GIB, 3 * GIB),
    measured={"large": 80 * GIB},
)
REFUSAL = Refusal("port-conflict", "large", "cannot start 'large': port 8001 is held", "free it")


def test_a_plan_is_a_table_with_one_line_a_model() -> None:
    assert render_plan(PLAN) == [
        "plan: activate Scene 'night'",
        "ACTION   MODEL  PID  PORT  MARKER        MEMORY",
        "keep     voice  12   8002  voice-marker  4.0 GiB",
        "stop     qwen   11   8001  qwen-marker   60.0 GiB",
        "start    large  -    8001  large-marker  80.0 GiB measured",
        "restart  tts    14   8003  tts-marker    not known",
        "forget: the records of old, which have ended",
        (
            "memory: 40.0 GiB available + 60.0 GiB given back - 80.0 GiB needed = 20.0 GiB, "
            "floor 3.0 GiB"
        ),
    ]


def test_the_document_of_a_plan_lists_each_model_once() -> None:
    document = plan_document(PLAN)
    assert (document["scene"], document["allowed"], document["refusals"]) == ("night", True, [])
    assert document["keep"] == [{"model": "voice", "pid": 12}]
    assert document["stop"] == [{"model": "qwen", "pid": 11}]
    assert document["start"] == [{"model": "large", "port": 8001, "marker": "large-marker"}]
    assert document["restart"] == [
        {"model": "tts", "port": 8003, "marker": "tts-marker", "pid": 14}
    ]


def test_a_refused_plan_has_every_reason_and_no_step() -> None:
    document = plan_document(Refusals("night", (REFUSAL,), ("careful",)))
    assert document["allowed"] is False
    assert document["refusals"] == [
        {
            "code": "port-conflict",
            "model": "large",
            "message": "cannot start 'large': port 8001 is held",
            "hint": "free it",
        }
    ]
    assert document["keep"] == document["stop"] == document["start"] == document["restart"] == []


@pytest.mark.parametrize(
    ("memory", "text"),
    [
        (MemoryEstimate(4 * GIB, 0, 0, 0), "4.0 GiB available, no floor"),
        (MemoryEstimate(4 * GIB, 0, GIB, 0), "4.0 GiB available - 1.0 GiB needed = 3.0 GiB, "),
        (MemoryEstimate(4 * GIB, None, 0, 0), "4.0 GiB available + (not known) given back, no"),
        (MemoryEstimate(4 * GIB, GIB, None, GIB), " + 1.0 GiB given back - (not known) needed, "),
    ],
)
def test_an_estimate_says_what_it_does_not_know(memory: MemoryEstimate, text: str) -> None:
    assert text in render_estimate(memory)


def test_a_plan_that_changes_nothing_says_so() -> None:
    idle = replace(PLAN, stop=(), start=(), forget=())
    assert render_plan(idle)[0] == "plan: activate Scene 'night': nothing to start or stop"
    nothing = Plan("deactivate", None)
    assert render_plan(nothing) == ["plan: stop everything: nothing of ours runs"]


def test_the_board_counts_the_time_of_each_model_against_what_it_took_before() -> None:
    board = Board()
    for at_s, event in (
        (0.0, Event(EventKind.PLANNED, detail="night", plan=PLAN)),
        (1.0, Event(EventKind.STOPPING, "qwen")),
        (3.0, Event(EventKind.STOPPED, "qwen", available_bytes=90 * GIB)),
        (3.0, Event(EventKind.SETTLING, available_bytes=99 * GIB)),
        (4.0, Event(EventKind.STARTING, "large", pid=77, expected_s=95.0)),
        (5.0, Event(EventKind.LOADING, "large", "nobody listens on port 8001 yet")),
    ):
        board = fold(board, event, at_s)
    assert render_board(board, 46.0) == [
        "activate Scene 'night'",
        "  voice  kept",
        "  tts    to be restarted",
        "  qwen   stopped after 2.0 s",
        "  large  loading 42 s of about 95 s, pid 77: nobody listens on port 8001 yet",
        "  memory: 99.0 GiB available",
    ]
    board = fold(board, Event(EventKind.HEALTHY, "large"), 64.0)
    assert "  large  exactly healthy after 60 s, pid 77" in render_board(board, 99.0)


def test_a_rollback_is_the_headline_until_the_end() -> None:
    board = fold(Board(), Event(EventKind.ROLLING_BACK, detail="it died"), 0.0)
    board = fold(board, Event(EventKind.VERIFYING), 1.0)
    assert render_board(board, 1.0) == ["checking everything once more"]
    board = fold(board, Event(EventKind.STARTING, "qwen"), 2.0)
    assert render_board(board, 2.0)[0] == "rolling back: it died"


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (Event(EventKind.STOPPING, "qwen"), "qwen: stopping"),
        (
            Event(EventKind.STARTING, "qwen", pid=7, expected_s=95),
            "qwen: starting (pid 7, took about 95 s before)",
        ),
        (
            Event(EventKind.HEALTHY, "qwen", available_bytes=GIB),
            "qwen: exactly healthy (1.0 GiB available)",
        ),
        (Event(EventKind.NOTE, "qwen", "a {brace}"), "qwen: a {brace}"),
        (Event(EventKind.NOTE, detail="waiting"), "waiting"),
        (Event(EventKind.COMMITTED, detail="day"), "Scene 'day' is active"),
        (Event(EventKind.ROLLING_BACK, detail="{x} died"), "rolling back: {x} died"),
    ],
)
def test_every_event_is_one_line(event: Event, line: str) -> None:
    assert render_event(event) == line


def running(definition: Model, pid: int) -> ModelView:
    leader = Process(pid, 1, pid, pid, "S", 100)
    claim = Claim(Ownership.OWNED, leader, frozenset({pid}))
    return ModelView(definition.name, claim, identity(pid), definition, EXACT)


WORLD = World({"qwen": running(QWEN, 11), "voice": running(VOICE, 12), "tts": ModelView("tts")})


@pytest.mark.parametrize(
    ("outcome", "line"),
    [
        (
            Outcome(Exit.DONE, "day", "day", world=WORLD),
            "now running: Scene 'day': qwen (pid 11, port 8001), voice (pid 12, port 8002)",
        ),
        (
            Outcome(Exit.FAILED_SAFELY, "night", "day", restored=True, world=WORLD),
            (
                "now running: Scene 'day' (restored): qwen (pid 11, port 8001), "
                "voice (pid 12, port 8002)"
            ),
        ),
        (
            Outcome(Exit.DEGRADED, "night", None, world=WORLD),
            "now running: no whole Scene, but qwen (pid 11, port 8001), voice (pid 12, port 8002)",
        ),
        (Outcome(Exit.DONE, world=World({})), "now running: nothing"),
        (Outcome(Exit.BUSY), None),
    ],
)
def test_the_last_line_says_what_runs_now(outcome: Outcome, line: str | None) -> None:
    assert render_now_running(outcome) == line


def test_the_document_of_an_outcome_has_every_field_of_the_contract() -> None:
    outcome = Outcome(
        Exit.FAILED_SAFELY, "night", "day", restored=True, error="it died", hint="look", world=WORLD
    )
    document = outcome_document(outcome)
    assert {name: document[name] for name in ("ok", "exit", "scene", "active_scene")} == {
        "ok": False,
        "exit": 1,
        "scene": "night",
        "active_scene": "day",
    }
    assert (document["restored"], document["error"], document["hint"]) == (True, "it died", "look")
    assert [row["name"] for row in document["models"]] == ["qwen", "voice", "tts"]


def test_each_reason_of_a_refusal_is_an_error_with_its_hint() -> None:
    refused = Outcome(
        Exit.REFUSED, "night", refusals=Refusals("night", (REFUSAL, REFUSAL), ("careful",))
    )
    assert (
        render_failure(refused)
        == [
            "error: cannot start 'large': port 8001 is held",
            "hint: free it",
        ]
        * 2
    )
    assert render_warnings(refused) == ["warning: careful"]
    assert dry_run_document(refused)["refusals"][0]["code"] == "port-conflict"


def test_a_dry_run_that_could_not_plan_is_a_refusal_too() -> None:
    document = dry_run_document(Outcome(Exit.BAD_INPUT, "night", error="bad", hint="mend it"))
    assert (document["scene"], document["allowed"]) == ("night", False)
    assert document["refusals"] == [
        {"code": "bad-input", "model": None, "message": "bad", "hint": "mend it"}
    ]
