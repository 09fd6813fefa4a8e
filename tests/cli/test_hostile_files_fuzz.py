"""Commands on files that nobody meant: a known exit code, no traceback, and nothing has changed."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lumbridge_compute.cli.run import run
from lumbridge_compute.store.history import HistoryEntry, Started, render_entry
from lumbridge_compute.store.state_file import render_state
from tests.store.hostile import any_bytes, any_tokens, damaged
from tests.store.registry_documents import FULL, to_yaml
from tests.store.state_values import EVERYTHING

REGISTRY = to_yaml(FULL).encode()
IDLE = b"version: 1\nmodels: {m: {command: ['true'], port: 1}}\nscenes: {s: {models: [m]}}\n"
STATE = render_state(EVERYTHING)
HISTORY = render_entry(
    HistoryEntry("t", "activate", "committed", "s", 0, 1.5, started={"m": Started("d", 1.0, 2**30)})
)
KNOWN = {0, 2, 3, 4}
"""Done, bad input, refused, and degraded for `status --check`."""

READ_REGISTRY = ("check", "scene list", "scene show day")
READ_NODE = ("status", "status --check", "scene resume --dry-run", "scene deactivate --dry-run")


def hostile(valid: bytes) -> st.SearchStrategy[bytes]:
    return st.one_of(damaged(valid), damaged(valid), any_bytes, any_tokens)


@pytest.mark.parametrize("file", ["compute.yaml", ".kuda/state.yaml", ".kuda/history.jsonl"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data(), as_json=st.booleans())
def test_no_file_makes_a_command_fail_otherwise_than_it_says(
    file: str, data: st.DataObject, *, as_json: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    contents = {"compute.yaml": IDLE, ".kuda/state.yaml": STATE, ".kuda/history.jsonl": HISTORY * 2}
    valid = REGISTRY if file == "compute.yaml" else contents[file]
    contents[file] = data.draw(hostile(valid))
    commands = {"compute.yaml": READ_REGISTRY, ".kuda/history.jsonl": ("history", "status")}
    command = data.draw(st.sampled_from(commands.get(file, READ_NODE)))
    with tempfile.TemporaryDirectory() as root:
        (Path(root) / ".kuda").mkdir(mode=0o700)
        for name, content in contents.items():
            (Path(root) / name).write_bytes(content)
        code = run(["--root", root, *command.split(), *(["--json"] if as_json else [])], {})
        left = {
            str(path.relative_to(root)): path.read_bytes()
            for path in Path(root).rglob("*")
            if path.is_file()
        }
    said = capfd.readouterr()
    assert code in KNOWN, said.err
    assert left == contents
    assert "Traceback" not in said.err
    if as_json:
        json.loads(said.out)
