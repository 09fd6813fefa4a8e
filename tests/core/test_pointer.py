"""JSON Pointer, by the examples of RFC 6901 section 5 and against a slow reading of its rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumbridge_compute.core.pointer import parse_pointer, resolve

EXAMPLE = {
    "foo": ["bar", "baz"],
    "": 0,
    "a/b": 1,
    "c%d": 2,
    "e^f": 3,
    "g|h": 4,
    "i\\j": 5,
    'k"l': 6,
    " ": 7,
    "m~n": 8,
}


@pytest.mark.parametrize(
    ("pointer", "value"),
    [
        ("", EXAMPLE),
        ("/foo", ["bar", "baz"]),
        ("/foo/0", "bar"),
        ("/", 0),
        ("/a~1b", 1),
        ("/c%d", 2),
        ("/e^f", 3),
        ("/g|h", 4),
        ("/i\\j", 5),
        ('/k"l', 6),
        ("/ ", 7),
        ("/m~0n", 8),
    ],
)
def test_the_examples_of_the_rfc(pointer: str, value: object) -> None:
    assert resolve(EXAMPLE, parse_pointer(pointer)) == value


def test_escapes_are_undone_once_and_in_order() -> None:
    assert parse_pointer("/~01") == ("~1",)
    assert parse_pointer("/~10") == ("/0",)


@pytest.mark.parametrize("pointer", ["foo", "#/foo", "/~", "/~2", "/a~", " /a"])
def test_what_is_no_pointer_is_refused(pointer: str) -> None:
    with pytest.raises(ValueError, match="JSON pointer"):
        parse_pointer(pointer)


@pytest.mark.parametrize(
    "pointer",
    [
        "/foo/2",
        "/foo/-",
        "/foo/-1",
        "/foo/00",
        "/foo/+1",
        "/foo/1.0",
        "/foo/",
        "/foo/\u0661",
        "/foo/0/0",
        "/bar",
        "/foo/bar",
        "/foo/" + "9" * 5000,
    ],
)
def test_what_is_not_there_is_not_there(pointer: str) -> None:
    with pytest.raises(LookupError):
        resolve(EXAMPLE, parse_pointer(pointer))


@given(st.lists(st.text()))
def test_every_path_has_a_pointer(tokens: list[str]) -> None:
    escaped = [token.replace("~", "~0").replace("/", "~1") for token in tokens]
    assert parse_pointer("".join(f"/{token}" for token in escaped)) == tuple(tokens)
