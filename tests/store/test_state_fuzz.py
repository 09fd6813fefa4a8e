"""Damaged state files: refused with a sentence, and at once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lumbridge_compute.core.state import NodeState
from lumbridge_compute.errors import BadInput
from lumbridge_compute.store.state_file import parse_state, render_state
from tests.store.hostile import any_bytes, any_tokens, damaged
from tests.store.state_values import EVERYTHING, states

VALID = render_state(EVERYTHING)


def parse_or_refuse(data: bytes) -> None:
    """Read and write a state, or see it refused as it should be; every other error is a failure."""
    error = None
    try:
        state = parse_state(data)
    except BadInput as caught:
        error = caught
    if error is None:
        assert parse_state(render_state(state)) == state
        return
    assert error.message.startswith("cannot read the state: ")
    assert "\n" not in error.message
    assert len(error.message) < 1000
    assert error.hint


@given(any_bytes)
def test_any_bytes(data: bytes) -> None:
    parse_or_refuse(data)


@given(any_tokens)
def test_any_yaml(data: bytes) -> None:
    parse_or_refuse(data)
    parse_or_refuse(b"processes:\n" + data)


@given(damaged(VALID))
def test_any_damage_to_a_valid_file(data: bytes) -> None:
    parse_or_refuse(data)


@given(states, st.data())
def test_a_line_that_is_lost_or_doubled(state: NodeState, data: st.DataObject) -> None:
    lines = render_state(state).splitlines(keepends=True)
    at = data.draw(st.integers(0, len(lines) - 1))
    parse_or_refuse(b"".join(lines[:at] + lines[at + 1 :]))
    parse_or_refuse(b"".join(lines[:at] + lines[at:][:1] + lines[at:]))


@given(st.integers(0, len(VALID) - 1), st.integers(0, 7))
def test_a_flipped_bit(at: int, bit: int) -> None:
    damaged = bytearray(VALID)
    damaged[at] ^= 1 << bit
    parse_or_refuse(bytes(damaged))
