"""Reads hostile files and tells what that cost.  Run by test_costs.

`python -m tests.store.reading READER` prints a line for each file: the CPU seconds of its reading,
and the bytes by which the process has grown since the first.
"""

from __future__ import annotations

import contextlib
import resource
import sys
import time
from collections.abc import Callable, Iterator

from lumbridge_compute.errors import BadInput
from lumbridge_compute.store.history import MAX_BYTES, measured, parse_history
from lumbridge_compute.store.registry_file import parse_registry, render_faults
from lumbridge_compute.store.state_file import parse_state
from tests.store.hostile import largest


def _read_state(data: bytes) -> None:
    with contextlib.suppress(BadInput):
        parse_state(data)


def _read_registry(data: bytes) -> None:
    render_faults("compute.yaml", parse_registry(data)[1])


def _read_history(data: bytes) -> None:
    measured(parse_history(data))


def _histories() -> Iterator[bytes]:
    line = b'{"time":"t","command":"c","outcome":"o"'
    start = b'"a":{"definition":"d","load_s":1,"memory_bytes":2}'
    for unit in (
        line + b"}\n",
        line + b',"models":{' + start + b"}}\n",
        b"{}\n",
        b"[" * 1000 + b"\n",
        b"9" * 4000 + b"\n",
        b"\n",
    ):
        yield unit * (MAX_BYTES // len(unit))
    yield line + b',"figures":{' + b",".join(b'"%d":0' % n for n in range(90_000)) + b"}}"
    yield b"9" * MAX_BYTES


READERS: dict[str, tuple[Callable[[bytes], None], Callable[[], Iterator[bytes]]]] = {
    "state": (_read_state, lambda: largest(b"processes: {}\n")),
    "registry": (_read_registry, lambda: largest(b"version: 1\nmodels:\n")),
    "history": (_read_history, _histories),
}


def main(reader: str) -> None:
    read, files = READERS[reader]
    read(b"a: b\n")
    first = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for data in files():
        began_s = time.process_time()
        read(data)
        spent_s = time.process_time() - began_s
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - first) * 1024
        print(f"{spent_s:.3f} {grown} {data[:40]!r}")  # noqa: T201 - its output


if __name__ == "__main__":
    main(sys.argv[1])
