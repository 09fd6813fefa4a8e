"""Plain values written as YAML."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from lumbridge_compute.store.yaml_nodes import compose
from lumbridge_compute.store.yaml_text import render_yaml
from lumbridge_compute.store.yaml_values import plain

NASTY = [
    *("", " ", "on", "no", "~", "null", "12:30", "010", "0x1F", "1_0", ".inf", "<<", "=", "- a"),
    *("a: b", "#", "'", '"', "\\", "\r\n", "\x85", "\u2028", "\ufeff", "\x00", "x" * 1200),
    *("&a", "*a", "!t", "%YAML", "---", "...", "2001-01-01", "{", "[", "| x", "🙂" * 400),
]
texts = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
    st.sampled_from(NASTY),
)
scalars = (
    texts
    | st.none()
    | st.booleans()
    | st.integers(-(10**39) + 1, 2**150)
    | st.floats(allow_nan=False)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)
documents = st.dictionaries(texts, values, max_size=6)


@given(documents)
def test_what_is_written_is_read_back(document: dict[str, object]) -> None:
    node, faults = compose(render_yaml({"first": 1, **document}).encode())
    assert not faults
    assert node is not None
    found = plain(node)
    assert found == {"first": 1, **document}
    assert repr(found) == repr({"first": 1, **document})


@given(st.dictionaries(texts, texts | st.lists(texts), max_size=6))
def test_another_reader_reads_the_same_texts(document: dict[str, object]) -> None:
    """PyYAML's own loader follows YAML 1.1."""
    assert yaml.safe_load(render_yaml({"first": "1", **document})) == {"first": "1", **document}


def test_it_reads_like_a_file_made_by_a_person() -> None:
    document = {"scene": "a", "qwen": {"pid": 1, "command": ["a", "b"], "health": {}}}
    assert render_yaml(document) == (
        'scene: "a"\nqwen:\n  pid: 1\n  command: ["a", "b"]\n  health: {}\n'
    )


def test_deep_mappings_grow_little() -> None:
    value: dict[str, object] = {}
    for _ in range(60):
        value = {"a": value}
    assert len(render_yaml(value)) < 500


def test_a_surrogate_is_spelled_out() -> None:
    assert render_yaml({"a": "caf\udce9"}) == 'a: "caf\\\\udce9"\n'


def test_an_object_is_never_written_by_its_repr() -> None:
    with pytest.raises(TypeError, match="cannot write a object"):
        render_yaml({"a": object()})
