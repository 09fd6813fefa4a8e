"""Damaged state files: refused with a sentence, and at once."""

from __future__ import annotations

import contextlib
import time

from hypothesis import given, settings
from hypothesis import strategies as st

from lumbridge_compute.core.state import NodeState
from lumbridge_compute.errors import BadInput
from lumbridge_compute.store.state_file import parse_state, render_state
from lumbridge_compute.store.yaml_nodes import MAX_BYTES
from tests.store.state_values import EVERYTHING, states

# 0.6 s for the slowest of them on an idle machine; what grows with the square needs minutes.
LONGEST_S = 3.0
VALID = render_state(EVERYTHING)
TOKENS = [
    *(b"\n", b"  ", b"\t", b": ", b"- ", b"&a ", b"*a", b"<<: ", b"!!int ", b"? ", b"| ", b"> "),
    *(b"{", b"}", b"[", b"]", b'"', b"'", b"#", b"%", b"---\n", b"...\n", b"\x00", b"\xff", b"-1"),
    *(
        b"null",
        b"true",
        b"0",
        b"1e999",
        b"0x" + b"f" * 36,
        b"9" * 5000,
        b"\xc2\x85",
        b"\xef\xbb\xbf",
    ),
]


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


@given(st.binary(max_size=400))
def test_any_bytes(data: bytes) -> None:
    parse_or_refuse(data)


@given(st.lists(st.sampled_from(TOKENS), max_size=40))
def test_any_yaml(tokens: list[bytes]) -> None:
    parse_or_refuse(b"".join(tokens))
    parse_or_refuse(b"processes:\n" + b"".join(tokens))


@given(st.data())
@settings(max_examples=150)
def test_any_damage_to_a_valid_file(data: st.DataObject) -> None:
    damaged = bytearray(VALID)
    for _ in range(data.draw(st.integers(1, 4))):
        begin = data.draw(st.integers(0, len(damaged)))
        end = begin + data.draw(st.integers(0, 30))
        damaged[begin:end] = data.draw(st.binary(max_size=8) | st.sampled_from(TOKENS))
    parse_or_refuse(bytes(damaged))


@given(states, st.data())
@settings(max_examples=50)
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


def test_the_largest_files_are_read_or_refused_at_once() -> None:
    room = MAX_BYTES - 100
    largest = [
        b"processes: {" + b",".join(b"m%d: %d" % (n, n + 1) for n in range(24_000)) + b"}",
        b"processes: {}\nx: [" + b"1," * 49_000 + b"]",
        b"processes: {}\nx: '" + b"y" * room + b"'",
        b'processes: {}\nx: "' + b"\\0" * (room // 2) + b'"',
        b"processes: {}\nx: " + b"[" * room,
        b"processes: {}\n" + b"? " * (room // 2),
        b"processes: {}\n" + b"- " * (room // 2),
        b"processes: {}\nx: |\n" + b" y\n" * (room // 3),
        b"processes: {}\n" + b"#" * room,
        b"\x00" * room,
        b"\n" * room,
        b"&a " * (room // 3),
        b"a: &a\n" * (room // 6),
    ]
    for data in largest:
        assert any(_computing_s(data) < LONGEST_S for _ in range(3))


def _computing_s(data: bytes) -> float:
    begin = time.process_time()
    with contextlib.suppress(BadInput):
        parse_state(data)
    return time.process_time() - begin
