"""Arbitrary states, and one that an operator would know."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from lumbridge_compute.core.identity import Identity
from lumbridge_compute.core.registry import (
    DeepProbe,
    HealthCheck,
    Match,
    Model,
    PortOwner,
    StopPolicy,
)
from lumbridge_compute.core.state import Bound, FloorLatch, Legacy, NodeState, ResumeFailures

QWEN = Model(
    "qwen",
    ("vllm", "serve", "--port", "${port}"),
    8001,
    "qwen3-30b",
    env=(("HF_HOME", "/data/hf"),),
    memory_bytes=60 * 2**30,
    health=HealthCheck(
        ready="/health",
        headers=(("Authorization", "Bearer ${env:KEY}"),),
        probe=DeepProbe("/v1/completions", '{"max_tokens":1,"model":"${marker}"}'),
    ),
    stop=StopPolicy(grace_s=12.5, command=("docker", "stop", "qwen")),
    port_owner=PortOwner.ANY,
)
EVERYTHING = NodeState(
    desired_scene="voice",
    active_scene="voice",
    last_known_good_scene="draw",
    transition_scene=None,
    last_error="cannot start 'tts': port 8003 is \"taken\"",
    processes={
        "qwen": Bound(
            Identity("4b1c", 4242, 123456, 77),
            QWEN,
            token="t0k",
            scope="lumbridge-qwen.scope",
            started_at="2026-01-02T12:00:00Z",
            extra={"of_a_newer_version": [1, None, "x"], "definition": {"gpu": 1}},
        ),
        "whisper": Legacy(17, {"note": "kept"}),
    },
    resume_failures=ResumeFailures("voice", "0123456789abcdef", 2, {"since": "noon"}),
    floor_latch=FloorLatch("voice", "4b1c", "2026-01-02T12:00:00Z", {"rate": 1.5}, {"by": "us"}),
    deactivating=True,
    extra={"colour": {"of": ["the", "node"]}},
)

NASTY = [
    *(" ", "on", "no", "~", "null", "12:30", "010", "0x1F", "1_0", ".inf", "<<", "=", "- a", "'"),
    *("a: b", "#", '"', "\\", "\r\n", "\x85", "\u2028", "\ufeff", "\x00", "&a", "*a", "!t", "---"),
]
texts = st.sampled_from(NASTY) | st.text(
    st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12
)
names = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,8}", fullmatch=True)
plain_values: st.SearchStrategy[Any] = st.recursive(
    texts | st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)


def extras(*known: str) -> st.SearchStrategy[dict[str, Any]]:
    """Keys that a file may have besides the `known` ones."""
    keys = texts.filter(lambda key: key not in known)
    return st.dictionaries(keys, plain_values, max_size=2)


arguments = st.sampled_from(["${port}", "$${literal}", "no", "", "--x=1"]) | st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x00$"), max_size=8
)
variables = st.from_regex(r"[A-Z_][A-Z0-9_]{0,6}", fullmatch=True)
visible = st.from_regex(r"[!#%-~]([ -#%-~]{0,6}[!#%-~])?", fullmatch=True)
seconds = st.integers(1, 10**6).map(lambda ms: ms / 1000)
paths = st.sampled_from(["/", "/v1/models", "/health?full=1", "/a%20b"])
healths = st.one_of(
    st.builds(
        HealthCheck,
        path=paths,
        match=st.sampled_from([Match.MODELS, Match.TEXT]),
        ready=st.none() | paths,
        headers=st.dictionaries(variables, visible, max_size=2).map(
            lambda d: (*sorted(d.items()),)
        ),
        timeout_s=seconds,
        request_timeout_s=seconds,
        probe=st.none()
        | st.builds(DeepProbe, paths, st.sampled_from([None, "[]", '{"a":[1,"no"]}'])),
    ),
    st.builds(HealthCheck, match=st.just(Match.JSON), pointer=st.sampled_from(["", "/a~1b/0"])),
)
models = st.builds(
    Model,
    name=names,
    command=st.lists(arguments, max_size=3).map(lambda rest: ("run", *rest)),
    port=st.integers(1, 65535),
    marker=visible,
    host=st.sampled_from(["127.0.0.1", "0.0.0.0", "::1"]),
    cwd=st.sampled_from([".", "/srv", "${root}/x"]),
    env=st.dictionaries(variables, arguments, max_size=2).map(lambda d: (*sorted(d.items()),)),
    memory_bytes=st.none() | st.integers(0, 2**40),
    health=healths,
    stop=st.builds(
        StopPolicy,
        signal=st.sampled_from(["SIGTERM", "SIGINT"]),
        grace_s=seconds,
        command=st.sampled_from([(), ("docker", "stop", "x")]),
    ),
    port_owner=st.sampled_from(PortOwner),
)
_KNOWN = ("boot_id", "pid", "process_start_ticks", "pidfd_inode", "token", "scope", "started_at")
bound = st.builds(
    Bound,
    identity=st.builds(
        Identity,
        texts,
        st.integers(2, 2**22),
        st.integers(0, 2**63),
        st.none() | st.integers(0, 2**64 - 1),
    ),
    definition=models,
    token=st.none() | texts,
    scope=st.none() | texts,
    started_at=st.none() | texts,
    extra=extras(*_KNOWN, "definition"),
)
legacy = st.builds(
    Legacy,
    st.integers(1, 2**22),
    extras()
    | st.just({"boot_id": "x", "process_start_ticks": 1, "definition": {}, "pid": 9})
    | st.just({"legacy": {"legacy": {}}}),
)
processes = st.dictionaries(texts, legacy, max_size=2).flatmap(
    lambda old: st.lists(bound, max_size=2).map(
        lambda new: {**old, **{record.definition.name: record for record in new}}
    )
)
states = st.builds(
    NodeState,
    desired_scene=st.none() | texts,
    active_scene=st.none() | texts,
    last_known_good_scene=st.none() | texts,
    transition_scene=st.none() | texts,
    last_error=st.none() | texts | st.just(""),
    processes=processes,
    resume_failures=st.none()
    | st.builds(
        ResumeFailures,
        texts,
        texts,
        st.integers(0, 2**64 - 1),
        extras("scene", "definition", "count"),
    ),
    floor_latch=st.none()
    | st.builds(
        FloorLatch,
        st.none() | texts,
        texts,
        texts,
        extras(),
        extras("scene", "boot_id", "at", "figures"),
    ),
    deactivating=st.booleans(),
    extra=extras(
        "version",
        "desired_scene",
        "active_scene",
        "last_known_good_scene",
        "transition_scene",
        "last_error",
        "processes",
        "resume_failures",
        "floor_latch",
        "deactivating",
    ),
)
