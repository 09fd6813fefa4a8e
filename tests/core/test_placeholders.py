"""What `${}` may hold, and what comes of it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumbridge_compute.core.placeholders import PATTERN, BadPlaceholder, expand, placeholders

VALUES = {"port": "8001", "marker": "qwen3-30b", "name": "qwen", "root": "/srv/node"}

PIECES = st.sampled_from(
    ["$", "$$", "{", "}", "${", "$${", "${port}", "${env:A_1}", "${env:}", "${prot}", "x", "\n"]
)
TEXTS = st.lists(PIECES, max_size=8).map("".join)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", ""),
        ("--port=${port}", "--port=8001"),
        ("${name}:${marker}@${root}", "qwen:qwen3-30b@/srv/node"),
        ("Bearer ${env:KEY}", "Bearer s3cret"),
        ("$${port}", "${port}"),
        ("$$${port}", "$${port}"),
        ("$HOME $$ $", "$HOME $$ $"),
        ("{port}", "{port}"),
        ("${env:NESTED}", "${port}"),
    ],
)
def test_placeholders_are_replaced_once(text: str, wanted: str) -> None:
    assert expand(text, VALUES, {"KEY": "s3cret", "NESTED": "${port}"}) == wanted


@pytest.mark.parametrize(
    "text",
    ["${prot}", "${}", "${port", "${PORT}", "${ port}", "${env:}", "${env:1A}", "${env:A-B}"],
)
def test_anything_else_in_the_braces_is_an_error(text: str) -> None:
    with pytest.raises(BadPlaceholder):
        placeholders(f"before {text}")
    with pytest.raises(BadPlaceholder):
        expand(text, VALUES, {})


def test_an_unset_variable_is_named() -> None:
    with pytest.raises(BadPlaceholder) as caught:
        expand("x${env:HF_TOKEN}", VALUES, {"OTHER": "1"})
    assert caught.value.variable == "HF_TOKEN"
    assert str(caught.value) == "${env:HF_TOKEN} is not set in the environment"


def test_an_empty_variable_is_set() -> None:
    assert expand("[${env:EMPTY}]", VALUES, {"EMPTY": ""}) == "[]"


def test_what_is_put_in_is_encoded_and_the_rest_is_not() -> None:
    assert expand("/a b/${marker}", VALUES, {}, str.upper) == "/a b/QWEN3-30B"


def test_names_are_found_in_order() -> None:
    assert placeholders("${port} $${marker} ${env:A} ${port}") == ("port", "env:A", "port")


@given(TEXTS)
def test_the_pattern_for_schemas_says_what_the_reader_says(text: str) -> None:
    try:
        placeholders(text)
    except BadPlaceholder:
        good = False
    else:
        good = True
    # re.fullmatch, because `$` of Python also matches before a last line feed.
    assert bool(re.fullmatch(PATTERN.removesuffix("$"), text)) is good


@given(TEXTS)
def test_a_known_text_expands_when_its_variables_are_set(text: str) -> None:
    try:
        names = placeholders(text)
    except BadPlaceholder:
        return
    variables = {name.removeprefix("env:"): "v" for name in names if name.startswith("env:")}
    assert isinstance(expand(text, VALUES, variables), str)


@given(st.text())
def test_a_text_without_placeholders_stays_as_it_is(text: str) -> None:
    plain = text.replace("${", "")
    assert expand(plain, VALUES, {}) == plain
