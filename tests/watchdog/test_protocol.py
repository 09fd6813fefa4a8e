from __future__ import annotations

import os
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumbridge_compute.core.floor import Action, Past
from lumbridge_compute.watchdog.loop import FloorLoop, Senses, Signaller, obey
from lumbridge_compute.watchdog.protocol import (
    FloorEvent,
    FloorEventKind,
    Message,
    parse_event,
    parse_message,
    parse_past,
    render_event,
    render_message,
    render_past,
)

EVENTS = [
    FloorEvent(FloorEventKind.READY, 1.5, detail="round-robin memory-locked"),
    FloorEvent(FloorEventKind.BLIND, 2.0, detail="MemAvailable is 0 bytes of 5"),
    FloorEvent(FloorEventKind.SAMPLE, 2.25, 5, 10, 3, 17.0),
    FloorEvent(FloorEventKind.TERM, 2.25, 2, 10, 3, 17.0, victim="qwen-3.b_1", grace_s=0.25),
    FloorEvent(FloorEventKind.STOPPED, 3.0, 9, 10, 3, victim="a", exit_s=0.75, back_bytes=-7),
]

WORDS = [
    *(b"floor", b"add", b"remove", b"order", b"past", b"sync", b"synced", b"term", b"sample"),
    *(b"bytes=5", b"name=a", b"pid=7", b"group=1", b"names=a,b", b"version=1", b"at=1.5"),
    *(b"bytes=", b"pid=x", b"at=nan", b"at=1e999", b"victim=a", b"stopped=,", b"left=-1"),
    *(b"=", b"", b"detail= a=b", b"bytes=" + b"9" * 5000, b"\xff"),
]

PASTS = [
    Past(),
    Past(stopped=frozenset({"a", "b"})),
    Past(action=Action("a", 1.5, 10, 7.0, 2.5), stopped=frozenset({"a"})),
    Past(action=Action("a", 1.5, 10, 7.0, 2.5, 2.0, 4, 2.25), stopped=frozenset({"a", "c"})),
]


@pytest.mark.parametrize("event", EVENTS)
def test_an_event_is_read_as_it_was_written(event: FloorEvent) -> None:
    line = render_event(event)
    assert b"\n" not in line
    assert parse_event(parse_message(line)) == event


@pytest.mark.parametrize("past", PASTS)
def test_a_past_is_read_as_it_was_written(past: Past) -> None:
    assert parse_past(parse_message(render_past(past))) == past


def test_none_is_left_out() -> None:
    assert render_message("order", names="a,b", other=None) == b"order names=a,b"


@given(st.binary(max_size=80) | st.lists(st.sampled_from(WORDS), max_size=6).map(b" ".join))
def test_any_line_is_a_message_or_a_value_error(line: bytes) -> None:
    """Also for who obeys: a key that is missing was a KeyError."""
    with suppress(ValueError):
        message = parse_message(line)
        for read in (parse_event, parse_past, _obeyed):
            with suppress(ValueError):
                read(message)


def _obeyed(message: Message) -> None:
    """By a loop that never looks."""
    senses = Senses(lambda: (None, None), lambda: 0.0, Signaller())
    loop = FloorLoop(senses, tell=lambda _event: None, keep=lambda _past: None)
    descriptor = os.open("/dev/null", os.O_RDONLY)
    try:
        obey(loop, message, descriptor)
    finally:
        if not loop._targets:
            os.close(descriptor)
        loop.close()


@pytest.mark.parametrize("line", [b"floor bytes", b"\xff", b"floor  bytes=1"])
def test_what_is_no_message_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"cannot read message|decode"):
        parse_message(line)
