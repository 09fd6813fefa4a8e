"""state.yaml: what is kept, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import given

from lumbridge_compute.core.identity import Identity
from lumbridge_compute.core.registry import Model
from lumbridge_compute.core.state import Bound, Legacy, NodeState
from lumbridge_compute.errors import BadInput, Exit
from lumbridge_compute.store.state_file import parse_state, render_state
from tests.store.state_values import EVERYTHING, QWEN, states

Document = dict[str, Any]


def document() -> Document:
    """EVERYTHING as plain values, to be changed and written as a person would."""
    loaded: Document = yaml.safe_load(render_state(EVERYTHING))
    return loaded


def written(changed: Document) -> bytes:
    return yaml.safe_dump(changed, sort_keys=False).encode()


def refusal(data: bytes) -> BadInput:
    with pytest.raises(BadInput, match=r"^cannot read the state: ") as caught:
        parse_state(data)
    assert "\n" not in caught.value.message
    assert caught.value.message.isprintable()
    assert caught.value.hint
    assert caught.value.exit is Exit.BAD_INPUT
    return caught.value


# What is kept


def test_a_missing_file_is_a_fresh_node() -> None:
    assert parse_state(None) == NodeState()


@given(states)
def test_every_state_is_read_back_as_it_was_written(state: NodeState) -> None:
    data = render_state(state)
    found = parse_state(data)
    assert found == state
    assert render_state(found) == data


def test_the_inode_of_a_pidfd_is_kept() -> None:
    record = parse_state(render_state(EVERYTHING)).processes["qwen"]
    assert isinstance(record, Bound)
    assert record.identity.pidfd_inode == 77


def test_another_yaml_reader_reads_the_same_texts() -> None:
    record = Bound(Identity("b", 2, 3), QWEN, token="on", scope="12:30", started_at="0x10")
    state = NodeState("no", "~", "1_0", "010", "2001-01-01", {"qwen": record})
    loaded = yaml.safe_load(render_state(state))
    assert [loaded["desired_scene"], loaded["active_scene"]] == ["no", "~"]
    assert [loaded["last_known_good_scene"], loaded["transition_scene"]] == ["1_0", "010"]
    assert loaded["last_error"] == "2001-01-01"
    assert loaded["processes"]["qwen"]["token"] == "on"
    assert loaded["processes"]["qwen"]["scope"] == "12:30"


def test_a_deactivation_is_mentioned_only_while_it_lasts() -> None:
    assert b"deactivating" not in render_state(NodeState())
    assert b"deactivating: true" in render_state(NodeState(deactivating=True))


def test_unknown_keys_are_kept_everywhere() -> None:
    changed = document()
    changed["a"] = 1
    changed["processes"]["qwen"]["b"] = {"c": [1]}
    changed["processes"]["qwen"]["definition"]["d"] = "e"
    changed["processes"]["qwen"]["definition"]["health"]["f"] = None
    changed["processes"]["qwen"]["definition"]["health"]["probe"]["g"] = [2]
    changed["processes"]["whisper"]["h"] = "i"
    changed["resume_failures"]["j"] = True
    changed["floor_latch"]["k"] = 1.5
    changed["floor_latch"]["figures"]["l"] = "m"
    assert yaml.safe_load(render_state(parse_state(written(changed)))) == changed


def test_unknown_keys_of_a_definition_change_nothing_else_of_it() -> None:
    changed = document()
    changed["processes"]["qwen"]["definition"]["health"]["of_a_newer_version"] = 1
    record = parse_state(written(changed)).processes["qwen"]
    assert isinstance(record, Bound)
    assert record.definition == QWEN


def test_a_definition_keeps_what_the_registry_would_fill_in_later() -> None:
    """Port and marker are in the record even where they are defaults."""
    model = Model("m", ("run",), 1, "m")
    state = NodeState(processes={"m": Bound(Identity("b", 2, 3), model)})
    found = yaml.safe_load(render_state(state))["processes"]["m"]["definition"]
    assert found == {"command": ["run"], "port": 1, "marker": "m"}


def test_no_secret_is_in_the_file() -> None:
    assert b"${env:KEY}" in render_state(EVERYTHING)


def test_a_bare_pid_in_version_1_is_a_legacy_record() -> None:
    changed = document()
    changed["processes"] = {"a": 5, "b": {"pid": 6}}
    assert parse_state(written(changed)).processes == {"a": Legacy(5), "b": Legacy(6)}


# The predecessor's form


def test_the_predecessors_file_is_read_and_written_as_version_1() -> None:
    data = b"""
desired_scene: on
active_scene: voice
colour: blue
processes:
  qwen: 4242
  whisper: {pid: 17, log: /tmp/x, boot_id: b, process_start_ticks: 1, definition: {}}
  Kokoro TTS: {pid: 18}
"""
    state = parse_state(data)
    assert state == NodeState(
        desired_scene="on",
        active_scene="voice",
        processes={
            "qwen": Legacy(4242),
            "whisper": Legacy(
                17,
                {"log": "/tmp/x", "boot_id": "b", "process_start_ticks": 1, "definition": {}},
            ),
            "Kokoro TTS": Legacy(18),
        },
        extra={"colour": "blue"},
    )
    rewritten = render_state(state)
    assert b"version: 1\n" in rewritten
    assert parse_state(rewritten) == state


def test_a_predecessors_record_never_gains_an_identity() -> None:
    """Not even where somebody has cut `version` out of a file of ours."""
    changed = document()
    del changed["version"]
    state = parse_state(render_state(parse_state(written(changed))))
    assert {type(record) for record in state.processes.values()} == {Legacy}


@pytest.mark.parametrize(
    "data",
    [
        b"processes: {}",
        b"processes: {}\ndesired_scene: null\nlast_error: ''\n",
        b"\xef\xbb\xbfprocesses: {}",
    ],
)
def test_the_predecessors_empty_node_is_read(data: bytes) -> None:
    assert parse_state(data).processes == {}


# What is refused


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "the file is empty"),
        (b" \n\t\n", "the file is empty"),
        (b"\x00" * 4096, "the file is 4096 NUL bytes"),
        (b"# nothing but a comment\n", "wants a mapping, found no value"),
        (b"---\n...\n", "wants a mapping, found nothing"),
        (b"just text", "wants a mapping, found a text"),
        (b"[1, 2]", "wants a mapping, found a list"),
        (b"4242", "wants a mapping, found a whole number"),
        (b"a: 1", "the keys 'version' and 'processes' are missing"),
        (b"{}", "the keys 'version' and 'processes' are missing"),
        (b"processes:\n", "processes: wants a mapping, found nothing"),
        (b"processes: {a: 1", ""),
        (b"processes: {a: 1}\nprocesses: {}", "doubled key 'processes'"),
        (b"processes: {a: 1, a: 2}", "doubled key 'a'"),
        (b"processes: {}\n---\nprocesses: {}", "a second document begins here"),
        (b"processes: {}\nx: \xff", "0xff is not UTF-8"),
        (b"processes: {}\n" + b"\x00" * 100, "U+0000"),
        (b"\xff\xfep\x00", "UTF-16"),
        (b"processes: {}\nx: !!python/object/apply:os.system [id]", "the tag"),
        (b"processes: {}\nx: *nowhere", "no anchor"),
        (b"processes: {}\nx: " + b"[" * 70 + b"]" * 70, "nested more than 64 deep"),
        (b"processes: {}\nx: '" + b"x" * 2**20 + b"'", "1 MiB"),
        (b"\x7fELF\x02\x01\x01" + b"\x00" * 9, "control character"),
    ],
)
def test_what_is_no_state_is_refused(data: bytes, sentence: str) -> None:
    assert sentence in refusal(data).message


def alias_bomb() -> bytes:
    lines = ["processes: {}", "a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    return "\n".join(lines).encode()


def text_bomb() -> bytes:
    return b"processes: {}\na: &a '" + b"x" * 500_000 + b"'\nb: [" + b"*a, " * 40_000 + b"]"


def growing() -> bytes:
    """Smaller than 1 MiB as it is, larger when written anew."""
    return b"processes: {}\na: [" + "\u200b,".encode() * 24_000 + b"]\nb: '" + b"x" * 880_000 + b"'"


@pytest.mark.parametrize("make", [alias_bomb, text_bomb, growing])
def test_a_file_that_grows_when_it_is_read_is_refused(make: Callable[[], bytes]) -> None:
    refusal(make())


@pytest.mark.parametrize(
    ("version", "sentence"),
    [
        (2, "version: the file has version 2, this program reads version 1"),
        (0, "version: wants the number 1, found 0"),
        (-1, "version: wants the number 1, found -1"),
        ("1", "version: wants the number 1, found a text"),
        (1.0, "version: wants the number 1, found a number"),
        (True, "version: wants the number 1, found a boolean"),
        (None, "version: wants the number 1, found nothing"),
        ([1], "version: wants the number 1, found a list"),
    ],
)
def test_another_version_is_refused(version: object, sentence: str) -> None:
    assert sentence in refusal(written({**document(), "version": version})).message


def test_a_newer_version_is_left_to_the_newer_program() -> None:
    hint = refusal(written({**document(), "version": 2})).hint
    assert hint == "use the newer lumbridge-compute that wrote it"


PIDS: list[tuple[object, str]] = [
    (0, "found 0"),
    (-1, "found -1"),
    (2**22 + 1, "found 4194305"),
    (10**30, f"found {10**30}"),
    (True, "found a boolean"),
    (None, "found nothing"),
    ("4242", "found the text '4242'"),
    (4242.0, "found a number"),
    ([4242], "found a list"),
]


@pytest.mark.parametrize(("pid", "found"), [*PIDS, (1, "found 1")])
def test_an_absurd_pid_with_an_identity_is_refused(pid: object, found: str) -> None:
    changed = document()
    changed["processes"]["qwen"]["pid"] = pid
    message = refusal(written(changed)).message
    assert "processes.qwen.pid: wants a model's PID from 2 to 4194304" in message
    assert found in message


@pytest.mark.parametrize(("pid", "found"), PIDS)
@pytest.mark.parametrize("form", ["processes: {m: {pid: %s}}", "processes: {m: %s}"])
def test_an_absurd_pid_of_the_predecessor_is_refused(form: str, pid: object, found: str) -> None:
    shown = yaml.safe_dump(pid, default_flow_style=True).removesuffix("...\n").strip()
    message = refusal((form % shown).encode()).message
    assert found in message
    assert "line 1, column " in message


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        ("desired_scene", 8, "desired_scene: wants a text, found a whole number"),
        ("desired_scene", "", "desired_scene: wants a text, found an empty one"),
        ("active_scene", ["a"], "active_scene: wants a text, found a list"),
        ("last_error", 1, "last_error: wants a text"),
        ("deactivating", "yes", "deactivating: wants true or false, found a text"),
        ("processes", None, "processes: wants a mapping, found nothing"),
        ("processes", [], "processes: wants a mapping, found a list"),
        ("processes.qwen", None, "processes.qwen: wants a PID"),
        ("processes.qwen", "4242", "found the text '4242'"),
        ("processes.qwen.boot_id", None, "processes.qwen.boot_id: wants a text"),
        ("processes.qwen.process_start_ticks", -1, "process_start_ticks: wants a whole number"),
        ("processes.qwen.process_start_ticks", True, "found a boolean"),
        ("processes.qwen.pidfd_inode", "7", "processes.qwen.pidfd_inode: wants a whole number"),
        ("processes.qwen.token", 7, "processes.qwen.token: wants a text"),
        ("processes.qwen.definition", None, "processes.qwen.definition: wants a mapping"),
        ("processes.qwen.definition", {}, "the key 'command' is missing"),
        ("processes.qwen.definition.port", 0, "processes.qwen.definition.port: wants a port"),
        ("processes.qwen.definition.health.match", "x", "processes.qwen.definition.health.match"),
        ("resume_failures", 3, "resume_failures: wants a mapping"),
        ("resume_failures.count", -1, "resume_failures.count: wants a whole number"),
        ("floor_latch", "on", "floor_latch: wants a mapping, found a text"),
        ("floor_latch.boot_id", None, "floor_latch.boot_id: wants a text"),
        ("floor_latch.figures", None, "floor_latch.figures: wants a mapping"),
    ],
)
def test_a_wrong_type_is_refused_with_its_place(path: str, value: object, sentence: str) -> None:
    changed = document()
    inner = changed
    *parents, key = path.split(".")
    for parent in parents:
        inner = inner[parent]
    inner[key] = value
    message = refusal(written(changed)).message
    assert sentence in message
    assert "line " in message


@pytest.mark.parametrize(
    "key", [key for key in document() if key not in ("version", "deactivating", "colour")]
)
def test_a_missing_key_is_refused(key: str) -> None:
    changed = document()
    del changed[key]
    assert f"the key '{key}' is missing" in refusal(written(changed)).message


@pytest.mark.parametrize("key", ["boot_id", "pid", "process_start_ticks", "definition"])
def test_half_an_identity_is_refused(key: str) -> None:
    changed = document()
    del changed["processes"]["qwen"][key]
    assert f"the key '{key}' is missing" in refusal(written(changed)).message


@pytest.mark.parametrize("name", ["../../etc/x", "Qwen", "a b", "x" * 65, "."])
def test_a_name_that_is_no_models_is_refused_for_a_record_with_an_identity(name: str) -> None:
    changed = document()
    changed["processes"] = {name: changed["processes"]["qwen"]}
    assert "wants a name as key" in refusal(written(changed)).message


def test_a_file_cut_off_at_any_byte_is_refused_or_whole() -> None:
    for state in (EVERYTHING, NodeState(), replace(EVERYTHING, floor_latch=None)):
        data = render_state(state)
        for length in range(len(data)):
            try:
                assert parse_state(data[:length]) == state
            except BadInput:
                continue
            assert length >= len(data.rstrip()) - len(" null")


def test_a_file_filled_up_with_nul_bytes_at_any_byte_is_refused() -> None:
    data = render_state(EVERYTHING)
    for length in range(0, len(data) - 1, 7):
        refusal(data[:length] + b"\x00" * (len(data) - length))


def test_what_could_not_be_read_again_is_not_written() -> None:
    body: object = 1
    for _ in range(70):
        body = [body]
    for extra in ({"x": body}, {"x": "y" * 2**20}, {"x": [1] * 60_000}):
        with pytest.raises(BadInput, match="cannot write the state"):
            render_state(NodeState(extra=extra))
