"""What an agent holds of the machine: it must not grow with the work that it has done."""

from __future__ import annotations

import os
from dataclasses import astuple, dataclass
from pathlib import Path

MIB = 1024 * 1024
MOST_GROWTH_BYTES = 32 * MIB
MOST_MORE_DESCRIPTORS = 4
MOST_THREADS = 40


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one process at one moment; `zombies` are its children that nobody has waited for."""

    descriptors: int
    rss_bytes: int
    threads: int
    zombies: int


def read_figures(pid: int) -> Figures:
    """Raises OSError when there is no such process.  Source: proc(5), /proc/PID/status."""
    fields = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    return Figures(
        descriptors=len(os.listdir(f"/proc/{pid}/fd")),
        rss_bytes=int(fields["VmRSS"].split()[0]) * 1024,
        threads=int(fields["Threads"]),
        zombies=count_zombies(pid),
    )


def count_zombies(parent: int) -> int:
    """The dead children of `parent`."""
    return sum(_is_dead_child(name, parent) for name in os.listdir("/proc") if name.isdigit())


def _is_dead_child(pid: str, parent: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    state, ppid = text[text.rindex(")") + 2 :].split()[:2]
    return state == "Z" and int(ppid) == parent


def growth(first: Figures, last: Figures) -> list[str]:
    """What has grown from `first` to `last` beyond its bound, each a sentence."""
    found = []
    if last.descriptors > first.descriptors + MOST_MORE_DESCRIPTORS:
        found.append(f"the agent's descriptors grew: {first.descriptors}, then {last.descriptors}")
    if last.rss_bytes > first.rss_bytes + MOST_GROWTH_BYTES:
        found.append(
            f"the agent's memory grew: {first.rss_bytes // MIB} MiB, then {last.rss_bytes // MIB}"
        )
    if last.threads > MOST_THREADS:
        found.append(f"the agent has {last.threads} threads")
    if last.zombies:
        found.append(f"the agent has {last.zombies} zombies")
    return found


def render_figures(taken: dict[str, Figures]) -> list[str]:
    """A table with a row for each moment."""
    rows = [f"{'':12}{'descriptors':>12}{'RSS MiB':>9}{'threads':>9}{'zombies':>9}"]
    for moment, figures in taken.items():
        descriptors, rss, threads, zombies = astuple(figures)
        rows.append(f"{moment:12}{descriptors:12}{rss / MIB:9.1f}{threads:9}{zombies:9}")
    return rows
