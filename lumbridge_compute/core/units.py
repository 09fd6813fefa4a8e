"""Sizes and times as an operator reads them."""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB


def render_bytes(size: int) -> str:
    """`size` bytes with a binary unit: "512 MiB", "3.0 GiB"."""
    if abs(size) >= GIB:
        return f"{size / GIB:.1f} GiB"
    if abs(size) >= MIB:
        return f"{size / MIB:.0f} MiB"
    return f"{size / KIB:.0f} KiB"


def render_seconds(seconds: float) -> str:
    """`seconds` in a short form: "0.4 s", "42 s", "15 min", "2 h 5 min"."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"
