"""A model's definition goes to the state file and comes back as it was."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lumbridge_compute.core.registry import (
    DeepProbe,
    HealthCheck,
    Match,
    Model,
    PortOwner,
    StopPolicy,
)
from lumbridge_compute.store.registry_model import model_document, read_model
from lumbridge_compute.store.registry_scalars import (
    HEADER,
    MARKER,
    PATH,
    POINTER,
    PROBE_PATH,
    SIGNAL,
    VARIABLE,
)
from lumbridge_compute.store.registry_shapes import Text
from lumbridge_compute.store.registry_units import MAX_SIZE_BYTES, MAX_TIME_S
from lumbridge_compute.store.yaml_nodes import compose
from tests.store.registry_documents import to_yaml


def read(text: str) -> Model:
    root, faults = compose(text.encode())
    assert faults == ()
    assert root is not None
    model, faults = read_model("m", root, "processes.m.definition")
    assert faults == ()
    assert model is not None
    return model


def like(shape: Text[Any]) -> st.SearchStrategy[str]:
    return st.from_regex(shape.pattern.removesuffix("$") + r"\Z", fullmatch=True)


# Texts with placeholders: pieces of which each is good where it stands.
PIECES = [
    "${port}",
    "${env:A_1}",
    "$${x}",
    "a",
    "é",
    "{",
    "}",
    "\n",
    " ",
    "'",
    '"',
    "#",
    ": ",
    "0o1",
    "1",
]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=5).map("".join)
COMMANDS = st.lists(TEXTS, min_size=1, max_size=4).filter(lambda c: c[0] != "").map(tuple)
HEADER_TEXTS = st.sampled_from(["", "x", "Bearer ${env:KEY}", "a, b", "1", "true", "$${"])
MICROSECONDS = st.integers(1, MAX_TIME_S * 10**6)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | TEXTS
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
BODIES = (st.lists(JSON, max_size=3) | st.dictionaries(TEXTS, JSON, max_size=3)).map(
    lambda body: json.dumps(body, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
)


@st.composite
def healths(draw: st.DrawFn) -> HealthCheck:
    match = draw(st.sampled_from(Match))
    names = draw(st.lists(like(HEADER), max_size=2, unique_by=str.lower))
    return HealthCheck(
        path=draw(like(PATH)),
        match=match,
        pointer=draw(like(POINTER)) if match is Match.JSON else None,
        ready=draw(st.none() | like(PATH)),
        headers=tuple((name, draw(HEADER_TEXTS)) for name in sorted(names)),
        timeout_s=draw(MICROSECONDS) / 10**6,
        request_timeout_s=draw(MICROSECONDS) / 10**6,
        probe=draw(st.none() | st.builds(DeepProbe, like(PROBE_PATH), st.none() | BODIES)),
    )


MODELS = st.builds(
    Model,
    name=st.just("m"),
    command=COMMANDS,
    port=st.integers(1, 65535),
    marker=like(MARKER),
    host=st.ip_addresses().map(str),
    cwd=TEXTS.filter(bool),
    env=st.dictionaries(like(VARIABLE), TEXTS, max_size=3).map(lambda e: tuple(sorted(e.items()))),
    memory_bytes=st.none() | st.integers(0, MAX_SIZE_BYTES),
    health=healths(),
    stop=st.builds(
        StopPolicy,
        like(SIGNAL),
        (MICROSECONDS | st.just(0)).map(lambda value: value / 10**6),
        st.just(()) | COMMANDS,
    ),
    port_owner=st.sampled_from(PortOwner),
)


@given(MODELS)
def test_what_was_written_reads_as_the_same_model(model: Model) -> None:
    document = model_document(model)
    assert read(to_yaml(document)) == model
    assert {"command", "port", "marker"} <= set(document)


def test_defaults_are_left_out() -> None:
    model = Model("m", ("serve", "${port}"), 8001, "m")
    wanted = {"command": ["serve", "${port}"], "port": 8001, "marker": "m"}
    assert model_document(model) == wanted


def test_what_differs_is_written_in_short() -> None:
    model = Model(
        "m",
        ("serve",),
        8001,
        "m",
        memory_bytes=60 * 1024**3,
        health=HealthCheck(timeout_s=5400.0, probe=DeepProbe("/x", '{"a":[1,null]}')),
        stop=StopPolicy(grace_s=0.25, command=("docker", "stop", "m")),
        port_owner=PortOwner.ANY,
    )
    assert model_document(model) == {
        "command": ["serve"],
        "port": 8001,
        "marker": "m",
        "memory": "60GiB",
        "health": {"timeout": "90m", "probe": {"path": "/x", "body": {"a": [1, None]}}},
        "stop": {"grace": "250ms"},
        "port_owner": "any",
        "stop_command": ["docker", "stop", "m"],
    }


def test_faults_of_a_recorded_definition_have_their_path() -> None:
    root, _ = compose(b"command: [x]\nport: 0\nhelth: {}\n")
    assert root is not None
    model, faults = read_model("m", root, "processes.m.definition")
    assert model is None
    assert [(fault.line, fault.path) for fault in faults] == [
        (3, "processes.m.definition.helth"),
        (2, "processes.m.definition.port"),
    ]


def test_a_definition_is_no_list() -> None:
    root, _ = compose(b"[]")
    assert root is not None
    model, faults = read_model("m", root, "x")
    assert model is None
    assert len(faults) == 1
