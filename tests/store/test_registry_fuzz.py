"""Registries that nobody meant: read, or refused with every fault on a line of its own."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lumbridge_compute.store.registry_file import MAX_SHOWN_FAULTS, parse_registry, render_faults
from tests.store.hostile import any_bytes, any_tokens, damaged
from tests.store.registry_documents import FULL, to_yaml

VALID = to_yaml(FULL).encode()
LONGEST_LINE = 2000


def parse_or_refuse(data: bytes) -> None:
    """Every other error is a failure."""
    registry, faults = parse_registry(data)
    assert (registry is None) == bool(faults)
    for line in render_faults("compute.yaml", faults).splitlines()[1:] if faults else ():
        assert line.startswith(("compute.yaml", "... and "))
        assert len(line) < LONGEST_LINE
    assert len(render_faults("f", faults).split("\n")) <= MAX_SHOWN_FAULTS + 2
    assert parse_registry(data) == (registry, faults)


@given(any_bytes)
def test_any_bytes(data: bytes) -> None:
    parse_or_refuse(data)


@given(any_tokens)
def test_any_yaml(data: bytes) -> None:
    parse_or_refuse(data)
    for begin in (b"models:\n  a:\n    command: ", b"scenes: ", b"node: {gateways: "):
        parse_or_refuse(b"version: 1\n" + begin + data)


@given(damaged(VALID))
def test_any_damage_to_a_valid_file(data: bytes) -> None:
    parse_or_refuse(data)


@given(st.integers(0, len(VALID) - 1), st.integers(0, 7))
def test_a_flipped_bit(at: int, bit: int) -> None:
    data = bytearray(VALID)
    data[at] ^= 1 << bit
    parse_or_refuse(bytes(data))


# What the fuzzers found.


def test_the_name_of_an_alias_is_told_in_part() -> None:
    for data in (b"*" + b"a9" * 5000, b"&" + b"b" * 9000 + b" [*" + b"b" * 9000 + b"]"):
        parse_or_refuse(data)
