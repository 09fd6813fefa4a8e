"""MemAvailable from a descriptor that is kept open."""

from __future__ import annotations

from pathlib import Path

import pytest

from lumbridge_compute.host.meminfo import Meminfo, parse_field

HEAD = b"MemTotal:       16384 kB\nMemFree:         1 kB\nMemAvailable:    8192 kB\n"


def test_both_numbers_are_read_in_bytes_again_and_again(tmp_path: Path) -> None:
    path = tmp_path / "meminfo"
    path.write_bytes(HEAD)
    source = Meminfo(str(path))
    assert source.read() == (8192 * 1024, 16384 * 1024)
    with path.open("r+b") as file:
        file.write(HEAD.replace(b"8192", b"4096"))
    assert source.read() == (4096 * 1024, 16384 * 1024)
    source.close()
    source.close()


def test_the_kernel_tells_both() -> None:
    source = Meminfo()
    available, total = source.read()
    source.close()
    assert available is not None
    assert total is not None
    assert 0 < available <= total


def test_a_file_that_appears_later_is_read_then(tmp_path: Path) -> None:
    source = Meminfo(str(tmp_path / "meminfo"))
    assert source.read() == (None, None)
    (tmp_path / "meminfo").write_bytes(HEAD)
    assert source.read() == (8192 * 1024, 16384 * 1024)
    source.close()


@pytest.mark.parametrize(
    ("head", "value"),
    [
        (HEAD, 8192 * 1024),
        (b"", None),
        (b"MemAvailable:    8192 kB", None),
        (b"MemAvailable:    8192\n", None),
        (b"MemAvailable:    8192 MB\n", None),
        (b"MemAvailable:    many kB\n", None),
        (b"NotMemAvailable:    8192 kB\n", None),
        (b"MemAvailable:   -1 kB\n", -1024),
        (b"\0" * 256, None),
    ],
)
def test_only_a_whole_line_of_kibibytes_counts(head: bytes, value: int | None) -> None:
    assert parse_field(head, b"MemAvailable:") == value
