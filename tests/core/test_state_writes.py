"""Nothing but the rows of the table of writes (DESIGN section 5) changes its five fields.

What each row writes is in `test_state`.
"""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

import lumbridge_compute
from lumbridge_compute.core import state as writes
from lumbridge_compute.core.state import NodeState

FIELDS = frozenset(
    {
        "desired_scene",
        "active_scene",
        "last_known_good_scene",
        "transition_scene",
        "last_error",
    }
)
ROWS = frozenset(
    {
        "begin",
        "rollback_begins",
        "commit",
        "restored",
        "failed",
        "resumed_on_last_known_good",
        "adopt",
        "deactivate_begin",
        "deactivate_end",
        "record_loss",
    }
)
UNDO = "reactivated"
"""The undo of "deactivate, begin": the one write that the table does not name."""

PACKAGE = Path(lumbridge_compute.__file__).parent
STATE_MODULE = PACKAGE / "core" / "state.py"


def callers_that_set_fields(file: Path) -> set[str]:
    """What is called in `file` with one of the five fields as a keyword; an answer to the operator
    (`outcome`) has an `active_scene` of its own."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {
        ast.unparse(node.func).rpartition(".")[2]
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and any(word.arg in FIELDS for word in node.keywords)
        and [ast.unparse(argument) for argument in node.args] != ["outcome"]
    }


@pytest.mark.parametrize(
    ("caller", "modules"), [("replace", set()), ("NodeState", {"store/state_file.py"})]
)
def test_no_other_module_writes_the_fields(caller: str, modules: set[str]) -> None:
    """Only the reader of the file makes a state of its own."""
    found = {
        str(file.relative_to(PACKAGE))
        for file in PACKAGE.rglob("*.py")
        if file != STATE_MODULE and caller in callers_that_set_fields(file)
    }
    assert found == modules


def test_in_the_state_module_the_rows_alone_set_the_fields() -> None:
    tree = ast.parse(STATE_MODULE.read_text(encoding="utf-8"))
    setters = {
        function.name
        for function in tree.body
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and any(word.arg in FIELDS for word in node.keywords)
    }
    assert setters == ROWS | {UNDO}


def test_every_row_is_a_function_from_state_to_state() -> None:
    for name in ROWS | {UNDO}:
        signature = inspect.signature(getattr(writes, name))
        assert next(iter(signature.parameters)) == "state"
        assert signature.return_annotation == "NodeState"


def test_an_interrupted_deactivation_gives_back_what_was_desired_and_no_more() -> None:
    before = NodeState("D", "P", "L", None, "old")
    begun = writes.deactivate_begin(before)
    back = writes.reactivated(begun, "D")
    assert (back.desired_scene, back.active_scene, back.last_known_good_scene) == ("D", None, "L")
    assert (back.transition_scene, back.last_error) == (None, "old")
    assert not back.deactivating


def test_what_was_active_becomes_last_known_good_once_another_scene_has_proved_itself() -> None:
    first = writes.commit(NodeState(), "one", None)
    second = writes.commit(writes.begin(first, "two"), "two", "one")
    again = writes.commit(writes.begin(second, "two"), "two", "two")
    failed = writes.failed(writes.begin(again, "three"), "it came too late")
    after_failure = writes.commit(writes.begin(failed, "three"), "three", None)
    good = [s.last_known_good_scene for s in (first, second, again, failed, after_failure)]
    assert good == ["one", "one", "one", "one", "one"]
    assert [failed.desired_scene, failed.active_scene] == ["two", None]
