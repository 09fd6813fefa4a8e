"""Answers judged: every named result, and that nothing but equality makes a model exact."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumbridge_compute.core.health import (
    EXACT,
    Answer,
    Health,
    HealthName,
    Outcome,
    Request,
    judge_marker,
    judge_probe,
    judge_ready,
)
from lumbridge_compute.core.registry import HealthCheck, Match, Model

VOICE = Model("kokoro", ("serve",), 8003, "kokoro-82m-zh")
BY_POINTER = replace(VOICE, health=HealthCheck(path="/info", match=Match.JSON, pointer="/a/0"))
BY_TEXT = replace(VOICE, health=HealthCheck(path="/name", match=Match.TEXT))


def answered(body: object, status: int = 200) -> Answer:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Answer(Outcome.ANSWERED, status, raw)


def models(*ids: object) -> Answer:
    return answered({"object": "list", "data": [{"id": name} for name in ids]})


def detail(health: Health | None) -> str:
    assert health is not None
    assert health.detail is not None
    return health.detail


def test_the_marker_alone_is_exact() -> None:
    assert judge_marker(VOICE, models("kokoro-82m-zh")) == EXACT


def test_one_of_several_models_may_be_the_marker() -> None:
    assert judge_marker(VOICE, models("a", "kokoro-82m-zh", "b")) == EXACT


def test_a_prefix_is_a_wrong_marker_and_both_names_are_told() -> None:
    health = judge_marker(VOICE, models("kokoro-82m"))
    assert health.name is HealthName.WRONG_MARKER
    assert health.detail == "port 8003 answers as 'kokoro-82m', wanted 'kokoro-82m-zh'"
    assert health.reported == ("kokoro-82m",)
    assert health.settled


@pytest.mark.parametrize(
    "near",
    [
        "Kokoro-82m-zh",
        "kokoro-82m-zh ",
        "/kokoro-82m-zh",
        "kokoro-82m-zh\u200b",
        "\uff4bokoro-82m-zh",
    ],
)
def test_a_name_that_is_nearly_the_marker_is_wrong(near: str) -> None:
    assert judge_marker(VOICE, models(near)).name is HealthName.WRONG_MARKER


def test_many_long_and_unprintable_names_make_one_short_sentence() -> None:
    names = ["x" * 5000, "\x1b[2J\r\nroot", *(f"m{number}" for number in range(3000))]
    health = judge_marker(VOICE, models(*names))
    assert health.name is HealthName.WRONG_MARKER
    assert len(detail(health)) < 500
    assert detail(health).isprintable()
    assert "and 2997 more" in detail(health)
    assert health.reported[0] == "m0"
    assert len(health.reported) == 256


def test_an_empty_list_means_not_ready_yet() -> None:
    health = judge_marker(VOICE, models())
    assert (health.name, health.settled) == (HealthName.NOT_READY, False)
    assert health.detail == "port 8003 lists no model yet, wanted 'kokoro-82m-zh'"


DEEP = b'{"data":' * 100_000
MALFORMED = {
    "html": (b"<!doctype html><title>ok</title>", "HTML"),
    "empty": (b"", "an empty body"),
    "words": (b"Loading model", "not JSON (line 1, column 1)"),
    "cut off": (b'{"data": [{"id": "kokoro-82m-zh"}', "not JSON"),
    "two documents": (b'{"data": [{"id": "kokoro-82m-zh"}]}{}', "not JSON"),
    "list": (b'[{"id": "kokoro-82m-zh"}]', "without a list 'data'"),
    "scalar": (b"3", "without a list 'data'"),
    "data is an object": (b'{"data": {"id": "kokoro-82m-zh"}}', "without a list 'data'"),
    "ids are numbers": (b'{"data": [{"id": 7}, 3, null]}', "no entry with a text 'id'"),
    "doubled key": (
        b'{"data": [{"id": "x"}], "data": [{"id": "kokoro-82m-zh"}]}',
        "one key occurs twice",
    ),
    "doubled id": (b'{"data": [{"id": "x", "id": "kokoro-82m-zh"}]}', "one key occurs twice"),
    "deep lists": (b"[" * 500_000, "nested too deeply"),
    "deep objects": (DEEP, "nested too deeply"),
    "huge number": (b'{"n": ' + b"9" * 5000 + b', "data": []}', "too long"),
    "not a number": (b'{"n": NaN, "data": [{"id": "kokoro-82m-zh"}]}', "NaN"),
    "infinity": (b'{"n": -Infinity, "data": []}', "Infinity"),
    "half a pair": (b'{"data": [{"id": "kokoro-82m-zh\\ud800"}]}', "surrogate"),
    "NUL in a name": (b'{"data": [{"id": "kokoro-82m-zh\\u0000"}]}', "NUL"),
    "NUL bytes": (b"\0" * 64, "not JSON"),
    "not UTF-8": (b'{"data": [{"id": "\xff\xfe"}]}', "not UTF-8"),
    "UTF-16": ('{"data": []}'.encode("utf-16"), "not UTF-8"),
}


@pytest.mark.parametrize(("body", "fragment"), MALFORMED.values(), ids=MALFORMED)
def test_a_body_that_is_no_list_of_models_is_malformed(body: bytes, fragment: str) -> None:
    health = judge_marker(VOICE, answered(body))
    assert (health.name, health.settled) == (HealthName.MALFORMED, False)
    assert fragment in detail(health)
    assert detail(health).startswith("port 8003 answers with ")
    assert detail(health).endswith(", wanted 'kokoro-82m-zh'")


def test_a_byte_order_mark_is_no_fault() -> None:
    body = b'\xef\xbb\xbf{"data": [{"id": "kokoro-82m-zh"}]}'
    assert judge_marker(VOICE, answered(body)) == EXACT


STATUSES = [
    (401, HealthName.UNAUTHORIZED, True, "401: it wants a key"),
    (403, HealthName.UNAUTHORIZED, True, "403: it wants a key"),
    (404, HealthName.MALFORMED, True, "answers '/v1/models' with 404: no such path"),
    (301, HealthName.MALFORMED, False, "301, a redirect, which is not followed"),
    (307, HealthName.MALFORMED, False, "a redirect"),
    (503, HealthName.NOT_READY, False, "503, wanted 200"),
    (500, HealthName.NOT_READY, False, "500, wanted 200"),
    (429, HealthName.NOT_READY, False, "429, wanted 200"),
    (204, HealthName.NOT_READY, False, "204, wanted 200"),
    (0, HealthName.NOT_READY, False, "0, wanted 200"),
]


@pytest.mark.parametrize(("status", "name", "settled", "fragment"), STATUSES)
def test_a_status_decides_before_the_body(
    *, status: int, name: HealthName, settled: bool, fragment: str
) -> None:
    body = models("kokoro-82m-zh").body
    health = judge_marker(VOICE, answered(body, status))
    assert (health.name, health.settled) == (name, settled)
    assert fragment in detail(health)


EXCHANGES = [
    (Outcome.REFUSED, HealthName.UNREACHABLE, "port 8003 refuses connections"),
    (Outcome.SELF, HealthName.UNREACHABLE, "port 8003 reaches nobody: the connection met itself"),
    (Outcome.FAILED, HealthName.UNREACHABLE, "port 8003 can't be reached (why)"),
    (Outcome.QUEUED, HealthName.BUSY, "port 8003 takes no connection (why)"),
    (
        Outcome.SILENT,
        HealthName.BUSY,
        "port 8003 accepts connections but gives no whole answer (why)",
    ),
    (Outcome.MALFORMED, HealthName.MALFORMED, "port 8003 gives no valid answer (why)"),
]


@pytest.mark.parametrize(("outcome", "name", "sentence"), EXCHANGES)
def test_an_exchange_without_an_answer_has_a_name(
    outcome: Outcome, name: HealthName, sentence: str
) -> None:
    health = judge_marker(VOICE, Answer(outcome, reason="why"))
    assert (health.name, health.detail, health.settled) == (name, sentence, False)
    for judged in (
        judge_ready(Answer(outcome, reason="why")),
        judge_probe(Answer(outcome, reason="why")),
    ):
        assert judged is not None
        assert judged.name is name


def test_ready_is_200_and_nothing_else() -> None:
    assert judge_ready(answered(b"<html>", 200)) is None
    for status in (201, 204, 302, 400, 401, 404, 500, 503):
        health = judge_ready(answered(b"", status))
        assert health is not None, status
        assert not health.settled
    assert detail(judge_ready(answered(b"", 503))) == "the ready check answers 503, wanted 200"


def test_a_deep_probe_is_any_2xx() -> None:
    assert judge_probe(answered(b"", 200)) is None
    assert judge_probe(answered(b"", 204)) is None
    assert detail(judge_probe(answered(b"", 500))) == "the deep probe answers 500, wanted 2xx"
    unauthorized = judge_probe(answered(b"", 401))
    assert unauthorized is not None
    assert unauthorized.name is HealthName.UNAUTHORIZED
    assert unauthorized.settled


def test_a_pointer_finds_the_marker() -> None:
    assert judge_marker(BY_POINTER, answered({"a": ["kokoro-82m-zh"]})) == EXACT


@pytest.mark.parametrize(
    ("document", "fragment"),
    [
        ({}, "without a value at '/a/0'"),
        ({"a": []}, "without a value at '/a/0'"),
        ({"a": {"1": "kokoro-82m-zh"}}, "without a value"),
        ({"a": "kokoro-82m-zh"}, "without a value"),
        ({"a": [["kokoro-82m-zh"]]}, "a list at '/a/0', wanted text"),
        ({"a": [{}]}, "an object at"),
        ({"a": [1.5]}, "a number at"),
        ({"a": [True]}, "a truth value at"),
        ({"a": [None]}, "null at"),
    ],
)
def test_a_pointer_to_anything_else_is_malformed(document: object, fragment: str) -> None:
    health = judge_marker(BY_POINTER, answered(document))
    assert health.name is HealthName.MALFORMED
    assert fragment in detail(health)


def test_a_pointer_to_another_text_is_a_wrong_marker() -> None:
    health = judge_marker(BY_POINTER, answered({"a": ["kokoro"]}))
    assert (health.name, health.reported) == (HealthName.WRONG_MARKER, ("kokoro",))


def test_without_a_pointer_the_whole_document_is_the_name() -> None:
    model = replace(VOICE, health=HealthCheck(match=Match.JSON))
    assert judge_marker(model, answered("kokoro-82m-zh")) == EXACT


def test_a_pointer_that_is_no_pointer_is_told_not_raised() -> None:
    model = replace(VOICE, health=HealthCheck(match=Match.JSON, pointer="a"))
    assert "health.pointer is wrong" in detail(judge_marker(model, answered({})))


def test_a_text_body_is_compared_stripped() -> None:
    assert judge_marker(BY_TEXT, answered(b"\r\n kokoro-82m-zh\n")) == EXACT
    wrong = judge_marker(BY_TEXT, answered(b"kokoro"))
    assert wrong.name is HealthName.WRONG_MARKER


@pytest.mark.parametrize(
    "body",
    [b"", b" \n", b"<html>kokoro-82m-zh", b"kokoro-82m-zh\nsecond", b"x" * 2000, b"\xff", b"a\0b"],
)
def test_a_text_body_that_can_be_no_name_is_malformed(body: bytes) -> None:
    health = judge_marker(BY_TEXT, answered(body))
    assert health.name is HealthName.MALFORMED
    assert "xxx" not in detail(health)


def test_keys_and_bodies_are_in_no_repr() -> None:
    request = Request("127.0.0.1", 1, "/", (("Authorization", "sesame"),), b"sesame")
    answer = Answer(Outcome.ANSWERED, 200, b"sesame")
    assert "sesame" not in repr(request) + repr(answer)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["data", "id", "a", "0"]) | st.text(max_size=3), inner)
    ),
    max_leaves=8,
)
bodies = st.binary(max_size=40) | values.map(lambda value: json.dumps(value).encode())
ids = st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))


@given(bodies, st.sampled_from([VOICE, BY_POINTER, BY_TEXT]), st.integers(0, 999))
def test_no_answer_makes_a_judge_raise(body: bytes, model: Model, status: int) -> None:
    answer = answered(body, status)
    for health in (judge_marker(model, answer), judge_ready(answer), judge_probe(answer)):
        if health is None or health.exact:
            continue
        assert detail(health).isprintable()


@given(ids, st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1))
def test_exact_means_that_one_id_equals_the_marker(names: list[str], marker: str) -> None:
    health = judge_marker(replace(VOICE, marker=marker), models(*names))
    assert health.exact == (marker in names)
    assert marker not in health.reported


@given(st.text(), st.text(min_size=1))
def test_exact_at_a_pointer_means_equality(found: str, marker: str) -> None:
    model = replace(BY_POINTER, marker=marker)
    body = json.dumps({"a": [found]}).encode()
    if judge_marker(model, answered(body)).exact:
        assert found == marker
