"""The schema for editors and the reader accept and refuse the same documents."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator, ValidationError, validators

from lumbridge_compute.store.registry_addresses import ADDRESS, HOST, NETWORK
from lumbridge_compute.store.registry_file import parse_registry
from lumbridge_compute.store.registry_schema import schema
from lumbridge_compute.store.registry_shapes import Text
from lumbridge_compute.store.registry_units import PAUSE, SIZE, TIMEOUT, up_to
from lumbridge_compute.store.yaml_nodes import compose
from lumbridge_compute.store.yaml_values import plain
from tests.store.registry_documents import FULL, at, changed, paths, to_yaml, without

# What a schema can't say: only for these may the reader refuse what the schema accepts.  Each is a
# pattern of the fault's message.
NOT_IN_A_SCHEMA = {
    "a Scene names declared models": r"unknown model ",
    "a port occurs in a Scene once": r".* can't run together: both have port ",
    "sacrifice names models of the Scene": r".* is not a model of this Scene",
    "a gateway listens on no model's port": r".* is on the port of the model ",
    "a gateway is not its own upstream": r".* would relay to itself: ",
    "two gateways do not listen in one place": r".* is taken by gateways\[",
    "a gateway does not relay to another": r".* is the upstream of gateways\[",
    "a network has no bits beyond its prefix": r".* names one address with a prefix: ",
    "headers do not differ by capitals alone": r"names the same header as ",
    "a line can be split by shell rules": r"can't be split by shell rules: ",
    "a line does not begin with empty quotes": r"the program to run is an empty text",
    "what quoting puts together is no new placeholder": r"'\$\{.*' (is not a|has no)",
    "a number has no sign, exponent or leading zero": (
        r"wants .* found a (?:whole )?number "
        r"\((?!(?:0|[1-9][0-9]*)(?:\.[0-9]{1,6})?\))[^)]*\)"
    ),
    "a whole number has no point": r"wants (?:a port|version 1).* found a number \([0-9]+\.0\)",
    "a number in a body is finite": r".* has no form in JSON",
}


def ecma_pattern(_: Any, pattern: str, instance: Any, __: Any) -> Iterator[ValidationError]:
    """As in ECMA-262, where `$` is the end and never the place before a last line feed."""
    if isinstance(instance, str) and not re.fullmatch(pattern, instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


Validator = validators.extend(Draft202012Validator, {"pattern": ecma_pattern})
VALIDATOR = Validator(schema())


def disagreement(document: Any) -> str | None:
    """Where schema and reader differ beyond what a schema can't say, None where they agree."""
    text = to_yaml(document)
    root, _ = compose(text.encode())
    assert root is not None
    accepted = VALIDATOR.is_valid(plain(root))
    _, faults = parse_registry(text.encode())
    if accepted is not bool(faults):
        return None
    if not accepted:
        return f"the schema alone refuses {text}"
    unexplained = [
        fault
        for fault in faults
        if not any(re.match(pattern, fault.message) for pattern in NOT_IN_A_SCHEMA.values())
    ]
    return f"the reader alone refuses {text}: {unexplained}" if unexplained else None


VALUES: list[Any] = [
    *(None, True, False, 0, 1, 2, -1, 65535, 65536, 70000, 8001, 8001.0, 0.5, 1e-07, 1e300, 10**30),
    *(float("inf"), 604800, 604801, 604800.5, 1048576, 1048577, 1.0, 0.0, 8011),
    *("", " ", "a", "a b", "a\n", "\n", "a\0b", "a\x1bb", "a\x85", "é", "\U0001f600", "x" * 64),
    *("x" * 65, "Aa", "a.b-c_d", "-a", "_a", "1", "qwen", "whisper", "qwem", "voice"),
    *("3GiB", "3 GiB", "3G", "1.5GB", "1024TiB", "1025TiB", "0", "010", "5B", "1.5B", "1e3", "-1"),
    *("500ms", "0ms", "0.0s", "168h", "169h", "168.0h", "168.1h", "1d", "30", "30 s", "30  s"),
    *(
        "127.0.0.1",
        "256.0.0.1",
        "127.0.0.01",
        "::1",
        "::",
        "1::2::3",
        "::ffff:1.2.3.4",
        "fe80::1%a",
    ),
    *("127.0.0.1:1", "127.0.0.1:0", "127.0.0.1:65536", "[::1]:80", "::1:80", "localhost:80"),
    *("0.0.0.0:8011", "0.0.0.0:9", "10.0.0.1/8", "10.0.0.0/33", "fd00::/8", "fd00::1/8", "::/129"),
    *(
        "/",
        "/v1/models?x=y",
        "v1",
        "/a b",
        "/a%20b",
        "/a%2",
        "/#",
        "/é",
        "/${name}",
        "/$${x}",
        "/$",
    ),
    *("/data/0/id", "/~0~1", "/~2", "/~", "x/y", "json", "models", "text", "jsn", "process", "any"),
    *("SIGTERM", "SIGKILL", "SIGSTOP", "TERM", "SIGUSR1", "sigterm", "${port}", "$${port}"),
    *("${prot}", "${", "${env:A}", "${env:1}", "a '", "'' a", "'$'{port}", "'$'{prot}", "\\${a}"),
    *("${p'ort'}", "1.2.3.4/32", "1.2.3.4", "1.2.3.4/0", "0.0.0.0/0"),
    *([], {}, [1], ["a"], [""], ["a", ""], ["a", None], ["a", True], ["a", 1.5], [["a"]]),
    *(["qwen", "qwen"], ["qwen", "whisper"], ["whisper", "nobody"], [{"a": 1}], ["a", "${x}"]),
    *({"a": "b"}, {"A": 1}, {"A": None}, {"1A": "x"}, {"A B": "x"}, {"A\n": "x"}, {"": ""}),
    *({"a": "1", "A": "2"}, {"Content-Length": "1"}, {"connection": "x"}, {"X": "a\r\nb"}),
    *({"LUMBRIDGE_COMPUTE_TOKEN": "x"}, {"${port}": {"${prot}": 1}}, {"x": [float("inf")]}),
    *(
        {"models": ["qwen"]},
        {"path": "/"},
        {"match": "json"},
        {"pointer": "/a"},
        {"signal": "SIGINT"},
    ),
    *({"match": "json", "pointer": "/a"}, {"match": "text", "pointer": "/a"}, {"body": {}}),
    *({"command": ["a"], "port": 1}, {"command": "a", "port": 1, "x": 1}, {"command": "a"}),
    *({"listen": "127.0.0.1:9", "upstream": "127.0.0.1:8001"}, {"version": 1}, {"version": 2}),
]
PATHS = paths(FULL)
TEXTS = [(path, at(FULL, path)) for path in PATHS]
MISSPELT = ["prot", "model", "", "x", "command", "port", "health", "hold", "<<"]


def test_every_value_in_every_place_is_judged_alike() -> None:
    """A slice of the product: the whole, 12,000 documents, takes a minute."""
    for index, path in enumerate(PATHS):
        for value in VALUES[index % 16 :: 16]:
            assert disagreement(changed(FULL, path, value)) is None


@pytest.mark.parametrize("path", [path for path, value in TEXTS if isinstance(value, str)])
def test_long_texts_are_judged_alike(path: tuple[str | int, ...]) -> None:
    for text in ("/" + "a" * 4094, "/" + "a" * 4096, "a" * 8193):
        assert disagreement(changed(FULL, path, text)) is None


@pytest.mark.parametrize("length", [131071, 131072])
@pytest.mark.parametrize(
    "path", [("models", "qwen", "command", 1), ("models", "qwen", "env", "HF_HOME")]
)
def test_arguments_as_long_as_the_kernel_takes_them_are_judged_alike(
    path: tuple[str | int, ...], length: int
) -> None:
    assert disagreement(changed(FULL, path, "a" * length)) is None


@st.composite
def documents(draw: st.DrawFn) -> Any:
    document: Any = FULL
    for _ in range(draw(st.integers(1, 4))):
        path = draw(st.sampled_from(paths(document)))
        action = draw(st.sampled_from(["set", "remove", "add"]))
        if action == "set" or not path:
            document = changed(document, path, draw(st.sampled_from(VALUES)))
        elif action == "remove":
            document = without(document, path)
        elif isinstance(path[-1], str):
            key = draw(st.sampled_from(MISSPELT))
            document = changed(document, (*path[:-1], key), draw(st.sampled_from(VALUES)))
    return document


@given(documents())
def test_mutated_documents_are_judged_alike(document: Any) -> None:
    assert disagreement(document) is None


@pytest.mark.parametrize("path", [path for path in PATHS if path and isinstance(path[-1], str)])
def test_a_missing_key_is_judged_alike(path: tuple[str | int, ...]) -> None:
    assert disagreement(without(FULL, path)) is None


def test_the_document_with_every_key_is_accepted_by_both() -> None:
    assert list(VALIDATOR.iter_errors(FULL)) == []
    assert parse_registry(to_yaml(FULL).encode())[1] == ()


def test_every_key_of_the_schema_is_in_the_document_with_every_key() -> None:
    seen = {key for path in PATHS for key in path if isinstance(key, str)}
    text = str(schema())
    assert {key for key in seen if f"'{key}'" not in text} <= {
        *("qwen", "whisper", "voice", "HF_HOME", "THREADS", "Authorization"),
        *("model", "max_tokens"),
    }


def test_the_schema_is_a_good_schema() -> None:
    Draft202012Validator.check_schema(schema())


def test_every_key_has_a_description_and_the_defaults_are_those_of_the_reader() -> None:
    model = schema()["properties"]["models"]["additionalProperties"]  # type: ignore[index]
    properties = model["properties"]
    assert all(value["description"] for value in properties.values())
    assert properties["host"]["default"] == "127.0.0.1"
    assert properties["port_owner"]["default"] == "process"
    assert properties["stop"]["properties"]["grace"]["default"] == "30s"
    assert properties["health"]["properties"]["timeout"]["default"] == "15m"


@pytest.mark.parametrize("shape", [SIZE, TIMEOUT, PAUSE, HOST, ADDRESS, NETWORK])
@given(st.data())
def test_what_is_written_most_is_a_part_of_what_is_allowed(
    shape: Text[Any], data: st.DataObject
) -> None:
    assert shape.common is not None
    text = data.draw(st.from_regex(shape.common, fullmatch=True))
    assert re.fullmatch(shape.pattern, text)


@given(st.integers(0, 10**7), st.integers(0, 10**7), st.sampled_from([0, 1]))
def test_bounded_numbers_have_a_pattern(limit: int, number: int, least: int) -> None:
    limit = max(limit, 1)
    fits = re.fullmatch(up_to(limit, least=least), str(number)) is not None
    assert fits is (least <= number <= limit)
    assert not re.fullmatch(up_to(limit), f"0{number}")
