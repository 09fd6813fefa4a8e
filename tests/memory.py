"""How much memory is available, for tests that measure it."""

from __future__ import annotations

import select

from lumbridge_compute.core.units import MIB
from lumbridge_compute.host.procfs import read_memory

_LOOK_S = 0.1
_LOOKS = 100


def read_available() -> int:
    """MemAvailable, in bytes."""
    memory = read_memory()
    return memory.available_bytes if memory is not None else 0


def settled_available() -> int:
    """MemAvailable in bytes, once nothing that has ended gives memory back any more."""
    before, available = 0, read_available()
    for _ in range(_LOOKS):
        if available - before <= MIB:
            break
        before = available
        select.select([], [], [], _LOOK_S)
        available = read_available()
    return available
