"""From bytes to nodes: typing, places, merge keys, and everything that is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from lumbridge_compute.store.yaml_nodes import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_DIRECTIVES,
    MAX_NODES,
    compose,
)
from lumbridge_compute.store.yaml_values import (
    Fault,
    MappingNode,
    Scalar,
    Sequence,
    join_path,
    plain,
)


def value(text: str) -> Any:
    root, faults = compose(text.encode())
    assert faults == ()
    assert root is not None
    return plain(root)


def only_fault(data: bytes | str) -> Fault:
    root, faults = compose(data.encode() if isinstance(data, str) else data)
    assert root is None
    (fault,) = faults
    return fault


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("on", "on"),
        ("no", "no"),
        ("12:30", "12:30"),
        ("1_0", "1_0"),
        ("2024-01-01", "2024-01-01"),
        ("010", 10),
        ("0x1f", 31),
        ("0o17", 15),
        ("-7", -7),
        ("+7", 7),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("-.INF", -math.inf),
        ("true", True),
        ("False", False),
        ("~", None),
        ("", None),
        ("'5'", "5"),
        ('"true"', "true"),
        ("!!str 5", "5"),
        ("! 5", "5"),
        ("!!int 5", 5),
        ("<<", "<<"),
        ("9" * 41, "9" * 41),
    ],
)
def test_scalars_are_typed_by_the_core_schema(text: str, wanted: object) -> None:
    found = value(f"- {text}\n")
    assert found == [wanted]
    assert [type(item) for item in found] == [type(wanted)]


def test_not_a_number_is_a_number() -> None:
    (found,) = value("[.nan]")
    assert isinstance(found, float)
    assert math.isnan(found)


@pytest.mark.parametrize("text", ["", "# a comment\n", "---\n...\n", "\ufeff"])
def test_an_empty_document_has_no_node_and_no_fault(text: str) -> None:
    root, faults = compose(text.encode())
    assert faults == ()
    assert root is None or plain(root) is None


def test_nodes_know_their_place() -> None:
    root, _ = compose(b"a: 1\nlonger:\n  - x\n  -  y\n")
    assert isinstance(root, MappingNode)
    entry = root.entries["longer"]
    assert (entry.key.line, entry.key.column) == (2, 1)
    assert isinstance(entry.value, Sequence)
    assert [(item.line, item.column) for item in entry.value.items] == [(3, 5), (4, 6)]


def test_aliases_are_followed() -> None:
    assert value("a: &x [1, 2]\nb: *x\n") == {"a": [1, 2], "b": [1, 2]}


def test_a_key_beside_a_merge_key_wins_wherever_it_stands() -> None:
    text = "base: &b {p: 1, q: 1}\none: {q: 2, <<: *b}\ntwo: {<<: *b, q: 2}\n"
    wanted = {"p": 1, "q": 2}
    assert value(text) == {"base": {"p": 1, "q": 1}, "one": wanted, "two": wanted}


def test_the_first_of_several_merged_mappings_wins() -> None:
    text = "a: &a {p: 1}\nb: &b {p: 2, q: 2}\nc: {<<: [*a, *b]}\n"
    assert value(text)["c"] == {"p": 1, "q": 2}


def test_merges_can_be_merged() -> None:
    text = "a: &a {p: 1, q: 1}\nb: &b {<<: *a, q: 2}\nc: {<<: *b, r: 3}\n"
    assert value(text)["c"] == {"p": 1, "q": 2, "r": 3}


def test_a_merge_key_in_quotes_is_a_key() -> None:
    assert value('{"<<": {a: 1}}') == {"<<": {"a": 1}}


def test_every_doubled_key_is_found_and_the_first_kept() -> None:
    root, faults = compose(b"a: 1\nb: {c: 1, c: 2}\na: 3\n")
    assert root is not None
    assert plain(root) == {"a": 1, "b": {"c": 1}}
    assert [(f.line, f.column, f.path) for f in faults] == [(2, 11, "b.c"), (3, 1, "a")]
    assert faults[0].message == "doubled key 'c', first on line 2"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: &a [*a]", "the alias '*a' stands inside what it names"),
        ("a: *b", "no anchor '&b' comes before the alias '*b'"),
        ("a: 1\n---\nb: 1\n", "a second document begins here"),
        ("a: !!python/name:os.system", "does not fit here"),
        ("a: !!int x", "does not fit here"),
        ("a: !!timestamp 2024-01-01", "does not fit here"),
        ("a: !mine {}", "does not fit here"),
        ("a: 'x", "unexpected end of stream"),
        ('"\\ud800"', "character"),
        ("a\0: 1", "U+0000"),
        ("a: \x1b[31m", "U+001B"),
    ],
)
def test_what_is_not_a_document_of_ours_is_refused_at_its_place(text: str, message: str) -> None:
    fault = only_fault(text)
    assert message in fault.message
    assert fault.line > 0


@pytest.mark.parametrize("text", ["? [1]\n: 2\n", "<<: 1\n", "<<: [{}, 1]\n"])
def test_keys_are_scalars_and_merges_are_mappings(text: str) -> None:
    _, faults = compose(text.encode())
    assert len(faults) == 1


def test_bytes_that_are_not_utf8_are_named_with_their_place() -> None:
    fault = only_fault(b"a: 1\nb: \xff\n")
    assert (fault.line, fault.column) == (2, 4)
    assert fault.message == "the byte 0xff is not UTF-8"


def test_utf16_is_named() -> None:
    assert "UTF-16" in only_fault("a: 1".encode("utf-16")).message


def test_a_mark_at_the_beginning_is_skipped() -> None:
    assert value("\ufeffa: 1") == {"a": 1}


@pytest.mark.parametrize(
    ("text", "hint"),
    [("a:\n\tb: 1\n", "not with tabs"), ("a: [x, ${port}]\n", "in quotes")],
)
def test_mistakes_that_are_made_most_get_a_hint(text: str, hint: str) -> None:
    assert hint in (only_fault(text).hint or "")


def test_a_file_over_a_mebibyte_is_refused() -> None:
    assert compose(b"#" * MAX_BYTES) == (None, ())
    assert "1 MiB" in only_fault(b"#" * (MAX_BYTES + 1)).message


@pytest.mark.parametrize("bracket", ["[", "{a: ", "- "])
def test_deep_nesting_is_refused(bracket: str) -> None:
    assert only_fault(bracket * (MAX_BYTES // len(bracket))).line > 0


def test_as_deep_as_allowed_is_read() -> None:
    assert compose(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)[1] == ()
    assert f"more than {MAX_DEPTH}" in only_fault("[" * (MAX_DEPTH + 1)).message


@pytest.mark.parametrize("step", ["a{i}: &a{i} [{aliases}]\n", "a{i}: &a{i} {{<<: [{aliases}]}}\n"])
def test_an_alias_bomb_is_refused(step: str) -> None:
    steps = [step.format(i=i, aliases=", ".join([f"*a{i - 1}"] * 9)) for i in range(1, 40)]
    bomb = "".join(["a0: &a0 {x: 1}\n", *steps])
    assert f"more than {MAX_NODES} values" in only_fault(bomb).message


def test_a_long_text_repeated_by_aliases_is_refused() -> None:
    data = "a: &a " + "x" * 100_000 + "\nb: [" + ", ".join(["*a"] * 11) + "]\n"
    fault = only_fault(data)
    assert "1048576 characters when aliases are followed" in fault.message
    assert (fault.line, fault.path) == (2, "b[10]")


def test_a_flood_of_directives_is_refused() -> None:
    flood = "".join(f"%TAG !a{i}! x\n" for i in range(MAX_DIRECTIVES + 2))
    assert "begin with '%'" in only_fault(f"{flood}---\na\n").message
    assert value("%YAML 1.2\n---\na: 1\n") == {"a": 1}


def test_too_many_values_are_refused() -> None:
    assert f"more than {MAX_NODES} values" in only_fault("- a\n" * (MAX_NODES + 1)).message


@pytest.mark.parametrize(
    ("path", "key", "wanted"),
    [
        ("", "models", "models"),
        ("models", "qwen2.5", "models.qwen2.5"),
        ("a", 3, "a[3]"),
        ("a", "b c\n", "a.'b c\\n'"),
        ("a", "x" * 100, "a.'" + "x" * 61 + "...'"),
    ],
)
def test_paths_are_readable(path: str, key: str | int, wanted: str) -> None:
    assert join_path(path, key) == wanted


@given(st.binary(max_size=200))
def test_any_bytes_give_a_node_or_faults(data: bytes) -> None:
    root, faults = compose(data)
    if root is not None:
        plain(root)
    assert all(isinstance(fault, Fault) for fault in faults)


YAML_LIKE = st.text(alphabet="ab01:-?&*[]{},#'\"\\!<>|%@ \n\t~", max_size=60)


@given(YAML_LIKE)
def test_any_text_gives_a_node_or_faults(text: str) -> None:
    root, faults = compose(text.encode())
    if root is not None:
        plain(root)
    assert all(fault.line >= 0 for fault in faults)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text("abc- :#\n'", max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc", min_size=1), inner),
    max_leaves=12,
)


@given(PLAIN)
def test_what_a_dumper_writes_is_read_as_it_was(document: object) -> None:
    root, faults = compose(yaml.safe_dump(document, default_flow_style=None).encode())
    assert faults == ()
    assert root is not None
    assert plain(root) == document


def test_a_scalar_keeps_its_text() -> None:
    root, _ = compose(b"- 0010\n")
    assert isinstance(root, Sequence)
    (item,) = root.items
    assert isinstance(item, Scalar)
    assert item.text == "0010"
