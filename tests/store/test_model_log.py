"""The bounded output of a model."""

from __future__ import annotations

import fcntl
import os
import re
import stat
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumbridge_compute.errors import Refused
from lumbridge_compute.store.model_log import (
    HEAD_BYTES,
    LINE_CHARS,
    LIVE_BYTES,
    PART_BYTES,
    TOTAL_BYTES,
    begin_start,
    log_tail,
    open_log,
    printable,
    trim_log,
)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "qwen.log"


def part_of(log: Path) -> Path:
    return log.with_name(log.name + ".1")


def append(log: Path, data: bytes) -> None:
    descriptor = open_log(str(log))
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(data)
    finally:
        os.close(descriptor)


def start(log: Path, header: str) -> None:
    os.close(begin_start(str(log), header))


def numbered(count: int, prefix: str = "line") -> bytes:
    return b"".join(f"{prefix} {number:08} {'x' * 80}\n".encode() for number in range(count))


def whole(log: Path) -> bytes:
    part = part_of(log)
    return (part.read_bytes() if part.exists() else b"") + log.read_bytes()


def test_a_log_is_made_for_its_owner_alone_and_appends(log: Path) -> None:
    append(log, b"one\n")
    append(log, b"two\n")
    assert log.read_bytes() == b"one\ntwo\n"
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


def test_the_descriptor_blocks_and_is_closed_on_exec(log: Path) -> None:
    descriptor = open_log(str(log))
    try:
        assert os.get_blocking(descriptor)
        assert not os.get_inheritable(descriptor)
        assert fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_APPEND
    finally:
        os.close(descriptor)


def test_a_link_is_never_followed(log: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"x" * (LIVE_BYTES + 1))
    log.symlink_to(victim)
    with pytest.raises(Refused, match="it is a symbolic link"):
        open_log(str(log))
    assert not trim_log(str(log))
    assert log_tail(str(log), 5) == ()
    assert victim.stat().st_size == LIVE_BYTES + 1


def test_a_link_in_the_place_of_the_older_part_is_replaced_not_written_through(
    log: Path, tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    part_of(log).symlink_to(victim)
    append(log, numbered(60_000))
    assert trim_log(str(log))
    assert victim.read_bytes() == b"precious"
    assert not part_of(log).is_symlink()


@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_what_is_no_regular_file_is_refused_at_once(log: Path, kind: str) -> None:
    if kind == "pipe":
        os.mkfifo(log)
    else:
        log.mkdir()
    with pytest.raises(Refused, match="cannot open the log") as caught:
        open_log(str(log))
    assert caught.value.hint
    assert not trim_log(str(log))
    assert log_tail(str(log), 5) == ()


def test_a_pipe_with_a_reader_is_refused_too(log: Path) -> None:
    os.mkfifo(log)
    reader = os.open(log, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(Refused, match="not a regular file"):
            open_log(str(log))
    finally:
        os.close(reader)


def test_a_missing_log_has_no_lines_and_needs_no_trim(log: Path) -> None:
    assert log_tail(str(log), 5) == ()
    assert not trim_log(str(log))


def test_a_start_begins_a_line_of_its_own(log: Path) -> None:
    append(log, b"killed in the mid")
    start(log, "qwen at 12:00\nwith a second line")
    assert (
        log.read_bytes()
        == b"killed in the mid\n==== start: qwen at 12:00\\nwith a second line ====\n"
    )


def test_a_small_log_is_left_alone(log: Path) -> None:
    start(log, "qwen")
    append(log, b"hello\n")
    before = log.read_bytes()
    assert not trim_log(str(log))
    assert log.read_bytes() == before
    assert not part_of(log).exists()


def test_a_trim_moves_everything_when_there_is_room(log: Path) -> None:
    start(log, "qwen")
    append(log, numbered(46_000))
    before = log.read_bytes()
    assert LIVE_BYTES < len(before) < PART_BYTES - 1024 * 1024
    assert trim_log(str(log))
    assert part_of(log).read_bytes() == before
    assert log.read_bytes() == b""
    assert stat.S_IMODE(part_of(log).stat().st_mode) == 0o600


def test_the_beginning_of_the_start_and_the_newest_lines_survive_every_trim(log: Path) -> None:
    start(log, "older")
    append(log, numbered(2_000, "old"))
    start(log, "newest")
    lines = numbered(200_000)
    for piece in range(0, len(lines), 3_000_001):
        append(log, lines[piece : piece + 3_000_001])
        trim_log(str(log))
        assert len(whole(log)) <= TOTAL_BYTES
    kept = whole(log)
    beginning = b"==== start: newest ====\n" + lines
    assert kept.startswith(beginning[: HEAD_BYTES - 200])
    assert kept.endswith(lines[-2_000_000:])


def test_what_was_left_out_is_counted_over_several_trims(log: Path) -> None:
    start(log, "qwen")
    written = log.stat().st_size
    for _ in range(4):
        block = numbered(70_000)
        written += len(block)
        append(log, block)
        assert trim_log(str(log))
    kept = whole(log)
    markers = re.findall(rb"^\.\.\. ([0-9]+) bytes left out \.\.\.\n", kept, re.MULTILINE)
    assert len(markers) == 1
    marker_line = b"... " + markers[0] + b" bytes left out ...\n"
    assert int(markers[0]) + len(kept) - len(marker_line) == written


def test_cuts_are_at_line_ends(log: Path) -> None:
    start(log, "qwen")
    append(log, numbered(100_000))
    trim_log(str(log))
    for line in part_of(log).read_bytes().splitlines():
        assert re.fullmatch(
            rb"==== .* ====|\.\.\. [0-9]+ bytes left out \.\.\.|line [0-9]{8} x{80}", line
        )


def test_older_starts_are_kept_as_room_allows(log: Path) -> None:
    for name in ("first", "second", "third"):
        start(log, name)
        append(log, numbered(20_000, name))
        trim_log(str(log))
    kept = whole(log)
    assert b"==== start: second ====\n" in kept
    assert b"==== start: third ====\nthird 00000000" in kept
    assert kept.endswith(numbered(20_000, "third")[-1000:])


def test_a_huge_log_is_neither_read_whole_nor_lost_at_its_ends(log: Path) -> None:
    start(log, "qwen")
    append(log, b"loading weights\n")
    os.truncate(log, 20 * 1024**3)
    append(log, b"\nthe newest line\n")
    tracemalloc.start()
    try:
        assert log_tail(str(log), 1) == ("the newest line",)
        assert trim_log(str(log))
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 4 * TOTAL_BYTES
    assert len(whole(log)) <= TOTAL_BYTES
    assert whole(log).startswith(b"==== start: qwen ====\nloading weights\n")
    assert log_tail(str(log), 1) == ("the newest line",)


def test_a_start_is_found_again_after_a_huge_log_of_an_older_one(log: Path) -> None:
    start(log, "older")
    os.truncate(log, 5 * 1024**3)
    start(log, "newest")
    os.truncate(log, 5 * 1024**3)
    append(log, b"\nend\n")
    trim_log(str(log))
    assert whole(log).startswith(b"==== start: newest ====\n")


def test_a_log_of_one_endless_line_is_bounded(log: Path) -> None:
    append(log, b"x" * (PART_BYTES + 123))
    assert trim_log(str(log))
    assert len(whole(log)) <= PART_BYTES
    assert b" bytes left out ..." in whole(log)
    assert len(log_tail(str(log), 1)[0]) <= LINE_CHARS


def test_a_part_that_is_too_large_is_cut_back(log: Path) -> None:
    append(log, b"newest\n")
    part_of(log).write_bytes(numbered(200_000))
    assert trim_log(str(log))
    assert len(whole(log)) <= TOTAL_BYTES
    assert log_tail(str(log), 1) == ("newest",)


def test_a_writer_goes_on_at_the_beginning_of_the_emptied_log(log: Path) -> None:
    descriptor = begin_start(str(log), "qwen")
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(numbered(60_000))
        assert trim_log(str(log))
        os.write(descriptor, b"after\n")
    finally:
        os.close(descriptor)
    assert log.read_bytes() == b"after\n"
    assert log_tail(str(log), 2)[-1] == "after"


def test_a_trim_under_a_chatty_writer_keeps_the_bound_and_the_line_order(log: Path) -> None:
    program = "import sys\nn = 0\nwhile True:\n    print(n, 'y' * 900)\n    n += 1"
    descriptor = begin_start(str(log), "chatty")
    writer = subprocess.Popen([sys.executable, "-c", program], stdout=descriptor)
    os.close(descriptor)
    try:
        trims = 0
        while trims < 3:
            trims += trim_log(str(log))
            assert part_of(log).stat().st_size <= PART_BYTES if trims else True
    finally:
        writer.kill()
        writer.wait()
    numbers = [int(found) for found in re.findall(rb"(?m)^([0-9]+) y{900}$", whole(log))]
    assert numbers == sorted(numbers)
    assert numbers[0] == 0


def test_a_trim_that_somebody_else_carries_out_is_left_to_them(log: Path) -> None:
    append(log, numbered(60_000))
    descriptor = os.open(log, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        assert not trim_log(str(log))
    finally:
        os.close(descriptor)
    assert trim_log(str(log))


def test_a_part_that_cannot_be_written_leaves_the_log_as_it_was(log: Path) -> None:
    append(log, numbered(60_000))
    before = log.read_bytes()
    part_of(log).mkdir()
    with pytest.raises(IsADirectoryError):
        trim_log(str(log))
    assert log.read_bytes() == before
    assert sorted(os.listdir(log.parent)) == ["qwen.log", "qwen.log.1"]
    start(log, "a start is not hindered by it")


def test_what_an_interrupted_trim_left_behind_is_no_hindrance(log: Path) -> None:
    append(log, numbered(60_000))
    log.with_name("qwen.log.1.new").write_bytes(b"half")
    assert trim_log(str(log))
    assert sorted(os.listdir(log.parent)) == ["qwen.log", "qwen.log.1"]


def test_the_tail_reaches_over_into_the_older_part(log: Path) -> None:
    part_of(log).write_bytes(b"one\ntwo\nthr")
    log.write_bytes(b"ee\nfour\nfi")
    assert log_tail(str(log), 3) == ("three", "four", "fi")
    assert log_tail(str(log), 99) == ("one", "two", "three", "four", "fi")
    assert log_tail(str(log), 0) == ()


def test_a_long_tail_begins_at_a_whole_line(log: Path) -> None:
    append(log, numbered(10_000))
    lines = log_tail(str(log), 10_000)
    assert 2_000 < len(lines) < 10_000
    assert all(re.fullmatch(r"line [0-9]{8} x{80}", line) for line in lines)


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain", "plain"),
        ("windows\r\n", "windows"),
        ("10%\r50%\r100%", "100%"),
        ("\x1b[31mred\x1b[0m \x1b[2Kline", "red line"),
        ("bell\a and \x1b]0;title", "bell\\x07 and \\x1b]0;title"),
        ("right to left \u202e mark", "right to left \\u202e mark"),
        ("a\tb", "a       b"),
        ("naïve 模型 🙂", "naïve 模型 🙂"),
    ],
)
def test_lines_are_shown_as_a_terminal_would_leave_them(raw: str, shown: str) -> None:
    assert printable(raw) == shown


@given(st.binary(max_size=500))
def test_any_output_is_printable_and_of_bounded_length(data: bytes) -> None:
    line = printable(data.decode(errors="backslashreplace"))
    assert line.isprintable()
    assert len(line) <= LINE_CHARS * 10
