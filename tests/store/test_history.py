"""The bounded history."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumbridge_compute.core.units import render_bytes
from lumbridge_compute.store.history import (
    MAX_BYTES,
    Cost,
    HistoryEntry,
    Started,
    append_history,
    history_document,
    measured,
    parse_history,
    read_history,
    render_entry,
)

NOON = "2026-01-02T12:00:00Z"
SWITCH = HistoryEntry(
    NOON,
    "activate",
    "committed",
    scene="voice",
    exit=0,
    duration_s=42.5,
    started={"qwen": Started("d1", 40.25, 60 * 2**30), "tts": Started("d2", 1.5)},
)

PIECES = [
    *(b"1", b"-1", b"1e308", b"1e999", b"NaN", b"9" * 400, b"9" * 5000, b"true", b"null", b'"x"'),
    *(b'"memory_bytes":', b'"load_s":', b'"\\ud800"', b",", b"}", b"{", b"[", b"]", b":", b"\xff"),
]
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
durations = st.integers(0, 10**9).map(lambda ms: ms / 1000)
entries = st.builds(
    HistoryEntry,
    time=texts,
    command=texts,
    outcome=texts,
    scene=st.none() | texts,
    exit=st.none() | st.integers(0, 255),
    duration_s=st.none() | durations,
    error=st.none() | texts,
    started=st.dictionaries(
        texts, st.builds(Started, texts, durations, st.none() | st.integers(-(2**60), 2**60))
    ),
    figures=st.dictionaries(texts, st.none() | st.integers() | texts, max_size=3),
)


@given(st.lists(entries, max_size=4))
def test_entries_come_back_as_they_were_written(written: list[HistoryEntry]) -> None:
    assert parse_history(b"".join(map(render_entry, written))) == tuple(written)


@given(entries)
def test_an_entry_is_one_line_of_json(entry: HistoryEntry) -> None:
    line = render_entry(entry)
    assert line.count(b"\n") == 1
    assert isinstance(json.loads(line), dict)


def test_a_number_that_no_machine_has_is_passed_over() -> None:
    """Two starts that took 10**400 bytes each made every command fail over their mean."""
    huge = replace(SWITCH, started={"qwen": Started("d1", 1.0, 10**400)}, exit=10**400)
    (entry, again) = parse_history(render_entry(huge) * 2)
    assert (entry.exit, entry.started) == (None, {"qwen": Started("d1", 1.0)})
    assert measured([entry, again]) == {("qwen", "d1"): Cost(1.0, None)}


@given(st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join))
def test_no_line_is_fatal_to_who_reads_or_shows_it(middle: bytes) -> None:
    line = b'{"time":"t","command":"c","outcome":"o","models":{"a":{"definition":"d","load_s":'
    data = b"".join(
        line + each + b"\n" for each in (middle, middle + b"}}}", b"1," + middle + b"}}}")
    )
    entries = parse_history(data * 2)
    for cost in measured(entries).values():
        assert render_bytes(cost.memory_bytes or 0)
    for entry in entries:
        assert json.dumps(history_document(entry), allow_nan=False)


@given(st.binary(max_size=300))
def test_no_junk_is_fatal(junk: bytes) -> None:
    parse_history(junk)


@pytest.mark.parametrize(
    "junk",
    [
        b"not json",
        b"null",
        b"[]",
        b"{}",
        b'"activate"',
        b"\x00" * 50,
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"time":1,"command":"a","outcome":"b"}',
        b'{"time":"t","command":"a","outcome":"b","duration_s":NaN}',
        b'{"time":"t","command":"a","outcome":"b","figures":{"rate":1e999}}',
        b'{"time":"t","command":"a","outcome":"b","exit":' + b"9" * 5000 + b"}",
        render_entry(SWITCH)[:-20],
    ],
)
def test_a_line_that_is_no_entry_takes_no_other_with_it(junk: bytes) -> None:
    line = render_entry(SWITCH)
    assert parse_history(line + junk + b"\n" + line) == (SWITCH, SWITCH)


@pytest.mark.parametrize(
    "field",
    [
        '"scene":1',
        '"exit":true',
        '"exit":"0"',
        '"duration_s":-1',
        '"duration_s":' + "9" * 400,
        '"duration_s":true',
        '"error":[]',
        '"models":[]',
        '"models":{"qwen":1}',
        '"models":{"qwen":{}}',
        '"models":{"qwen":{"definition":"d","load_s":"1"}}',
        '"figures":7',
        '"of_a_newer_version":{}',
    ],
)
def test_a_field_of_another_type_is_passed_over(field: str) -> None:
    line = f'{{"time":"t","command":"c","outcome":"o",{field}}}\n'.encode()
    assert parse_history(line) == (HistoryEntry("t", "c", "o"),)


def test_a_very_long_error_is_cut() -> None:
    line = render_entry(HistoryEntry(NOON, "activate", "failed", error="x" * 10**6))
    assert len(line) < 3000


def start(load_s: float, memory_bytes: int | None = None, definition: str = "d") -> HistoryEntry:
    return HistoryEntry(
        NOON, "activate", "committed", started={"m": Started(definition, load_s, memory_bytes)}
    )


def test_the_cost_is_the_median_of_the_newest_starts() -> None:
    past = [start(500.0, 500)] * 10 + [start(float(n), n) for n in (3, 1, 9, 4, 2)]
    assert measured(past) == {("m", "d"): Cost(3.0, 3)}


def test_an_even_number_of_starts_has_the_mean_of_the_middle_two() -> None:
    assert measured([start(1.0, 10), start(2.0, 20)]) == {("m", "d"): Cost(1.5, 15)}


def test_another_definition_has_its_own_cost() -> None:
    past = [start(1.0, definition="old"), start(2.0, definition="new")]
    assert measured(past) == {("m", "old"): Cost(1.0, None), ("m", "new"): Cost(2.0, None)}


def test_memory_that_did_not_shrink_is_no_measurement() -> None:
    assert measured([start(1.0, -5), start(1.0, 0), start(1.0, 7)])["m", "d"].memory_bytes == 7
    assert measured([start(1.0, -5)])["m", "d"].memory_bytes is None


def test_an_append_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    append_history(str(path), render_entry(SWITCH))
    append_history(str(path), render_entry(SWITCH))
    assert read_history(str(path)) == (SWITCH, SWITCH)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_torn_last_line_does_not_swallow_the_next(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_bytes(render_entry(SWITCH)[:30])
    append_history(str(path), render_entry(SWITCH))
    assert read_history(str(path)) == (SWITCH,)


def test_it_stays_bounded_and_keeps_the_newest(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    lines = [render_entry(HistoryEntry(NOON, "x" * 900, str(n))) for n in range(1_300)]
    sizes = []
    for line in lines:
        append_history(str(path), line)
        sizes.append(path.stat().st_size)
    kept = [int(entry.outcome) for entry in read_history(str(path))]
    assert max(sizes) <= MAX_BYTES
    assert kept == list(range(kept[0], 1_300))
    assert sizes[-1] > MAX_BYTES // 3
    assert os.listdir(tmp_path) == ["history.jsonl"]


def test_a_huge_history_of_somebody_else_is_cut_without_being_read(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.touch()
    os.truncate(path, 8 * 1024**3)
    append_history(str(path), render_entry(SWITCH))
    assert path.stat().st_size <= MAX_BYTES
    assert read_history(str(path)) == (SWITCH,)


@pytest.mark.parametrize("kind", ["missing", "folder", "link", "pipe"])
def test_what_is_no_history_reads_as_none(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "history.jsonl"
    if kind == "folder":
        path.mkdir()
    elif kind == "link":
        path.symlink_to("/etc/passwd")
    elif kind == "pipe":
        os.mkfifo(path)
    assert read_history(str(path)) == ()
    if kind != "missing":
        with pytest.raises(OSError, match=r".+"):
            append_history(str(path), render_entry(SWITCH))
