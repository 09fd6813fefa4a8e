"""The gateway beside HAProxy, nginx, socat and systemd-socket-proxyd: bytes, tokens, memory.

Every round measures every relay once, so that what else the machine does falls on all of them;
the table has medians over the rounds, and ratios to HAProxy.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from relaying import relays

SOURCES = Path(__file__).parent / "relaying"
REFERENCE = "haproxy"
TOKENS_PER_S = 20
MOST_TOKENS_PER_S = 5000
HOW = ("streams", "scattered")
"""Tokens of all streams at once, as servers that batch send them; and spread in time."""
STREAMS = (1, 50, 200, 1000, 2000)
IDLE = 2000

Figures = dict[str, float]
Found = dict[str, dict[str, dict[str, list[float]]]]
"""Task, relay and figure, with a value from each round."""


@dataclass(frozen=True)
class Task:
    """One thing to measure: `measure` gives named figures for one relay."""

    name: str
    measure: Callable[[Bench, relays.Relay], Figures]


class Bench:
    """The compiled load generator, and how long each measurement takes."""

    def __init__(self, load: Path, *, seconds: float, bulk_mib: int) -> None:
        self._load = str(load)
        self.seconds = seconds
        self.bulk_mib = bulk_mib

    def load(self, relay: relays.Relay, *arguments: object) -> Figures:
        """What one run of the load generator has measured."""
        command = [self._load, str(relay.port), *map(str, arguments)]
        result = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=120)
        return dict(json.loads(result.stdout))

    @contextlib.contextmanager
    def idle(self, relay: relays.Relay, count: int) -> Iterator[None]:
        """Within it, `count` connections that were used once are open."""
        command = [self._load, str(relay.port), "idle", str(count)]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe) as process:
            assert process.stdout is not None
            if not process.stdout.readline():
                sys.exit(f"cannot open {count} connections through {relay.name}")
            yield


def measure_bulk(direction: str) -> Callable[[Bench, relays.Relay], Figures]:
    """One connection in one direction: MB/s, and CPU seconds a GB."""

    def measure(bench: Bench, relay: relays.Relay) -> Figures:
        size = bench.bulk_mib * 1024 * 1024
        before = relay.cpu_s()
        found = bench.load(relay, "bulk", direction, size)
        return {
            "MB/s": found["mb_per_s"],
            "CPU s/GB": (relay.cpu_s() - before) * 1e9 / size,
        }

    return measure


def measure_echo(bench: Bench, relay: relays.Relay) -> Figures:
    """64 bytes there and back, one after another."""
    found = bench.load(relay, "echo", int(4000 * bench.seconds))
    return {"p50 us": found["p50_us"], "p99 us": found["p99_us"]}


def measure_streams(how: str, streams: int) -> Callable[[Bench, relays.Relay], Figures]:
    """Tokens of that many streams: how late they come, and what one costs."""
    period_us = max(1_000_000 // TOKENS_PER_S, streams * 1_000_000 // MOST_TOKENS_PER_S)

    def measure(bench: Bench, relay: relays.Relay) -> Figures:
        before = relay.cpu_s()
        found = bench.load(relay, how, streams, period_us, bench.seconds)
        tokens = max(1.0, found["count"])
        share = bench.seconds / (bench.seconds + 0.5)  # warm-up costs CPU too
        return {
            "p50 us": found["p50_us"],
            "p99 us": found["p99_us"],
            "CPU us/token": (relay.cpu_s() - before) * 1e6 * share / tokens,
            "tokens/s": tokens / bench.seconds,
            "lost": found["lost"],
        }

    return measure


def measure_connect(bench: Bench, relay: relays.Relay) -> Figures:
    """New connections, eight at a time: each asks, is answered and closes."""
    before = relay.cpu_s()
    found = bench.load(relay, "connect", 8, bench.seconds)
    cpu_us = (relay.cpu_s() - before) * 1e6 / (found["per_s"] * bench.seconds)
    return {"per s": found["per_s"], "CPU us": cpu_us, "failed": found["failed"]}


def measure_idle(bench: Bench, relay: relays.Relay) -> Figures:
    """Memory of the relay for each idle connection."""
    count = min(IDLE, 200) if relay.name in {"socat", "proxyd"} else IDLE
    before = relay.rss_bytes()
    with bench.idle(relay, count):
        return {"KB/connection": (relay.rss_bytes() - before) / count / 1000}


TASKS = (
    Task("idle", measure_idle),  # first: what a relay has kept from earlier work hides it
    Task("bulk down", measure_bulk("down")),
    Task("bulk up", measure_bulk("up")),
    Task("echo 64 B", measure_echo),
    *(Task(f"{streams} streams", measure_streams("step", streams)) for streams in STREAMS),
    *(Task(f"{streams} scattered", measure_streams("stream", streams)) for streams in STREAMS[1:]),
    Task("connect", measure_connect),
)
TOO_MUCH = {
    "direct": {"idle"},
    "socat": {f"{streams} {how}" for streams in (1000, 2000) for how in HOW},
}
"""A process for each connection does not get that far on a small machine."""


def main(argv: list[str]) -> int:
    """Measure and print a table."""
    options = _parse(argv)
    tasks = [task for task in TASKS if not options.only or task.name.startswith(options.only)]
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        for program in ("load", "backend"):
            _compile(program, folder)
        bench = Bench(folder / "load", seconds=options.seconds, bulk_mib=options.bulk)
        upstream = _start_backend(folder / "backend", stack)
        found: Found = {}
        for _ in range(options.rounds):
            with _started(options.relays, upstream, folder) as running:
                _measure(bench, running, tasks, found)
    print(render(found))
    return 0


def render(found: Found) -> str:
    """A Markdown table a task: a row for each relay, medians, and ratios to the reference."""
    parts = []
    for task, by_relay in found.items():
        names = list(next(iter(by_relay.values())))
        lines = [f"| {task} | " + " | ".join(names) + " |", "| --- " * (len(names) + 1) + "|"]
        reference = by_relay.get(REFERENCE)
        for relay, figures in by_relay.items():
            cells = [_cell(figures, reference, name) for name in names]
            lines.append(f"| {relay} | " + " | ".join(cells) + " |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _cell(
    figures: dict[str, list[float]], reference: dict[str, list[float]] | None, name: str
) -> str:
    value = statistics.median(figures[name])
    text = f"{value:.2f}" if value < 10 else f"{value:.0f}"
    if reference is None or name in {"lost", "failed"}:
        return text
    base = statistics.median(reference[name])
    return f"{text} ({value / base:.2f})" if base else text


def _measure(bench: Bench, running: list[relays.Relay], tasks: list[Task], found: Found) -> None:
    """One round: each task with each relay."""
    for task in tasks:
        for relay in running:
            if task.name in TOO_MUCH.get(relay.name, ()):
                continue
            figures = found.setdefault(task.name, {}).setdefault(relay.name, {})
            for name, value in task.measure(bench, relay).items():
                figures.setdefault(name, []).append(value)


@contextlib.contextmanager
def _started(names: list[str], upstream: int, folder: Path) -> Iterator[list[relays.Relay]]:
    """The relays called `names`, fresh ones, as far as they are installed."""
    with contextlib.ExitStack() as stack:
        running = []
        for name in names:
            relay = relays.start(name, upstream, folder)
            if relay is None:
                print(f"{name} is not installed: left out", file=sys.stderr)
                continue
            stack.callback(relay.stop)
            running.append(relay)
        yield running


def _start_backend(program: Path, stack: contextlib.ExitStack) -> int:
    backend = subprocess.Popen([program], stdout=subprocess.PIPE)
    stack.callback(backend.wait)
    stack.callback(backend.kill)
    assert backend.stdout is not None
    return int(backend.stdout.readline())


def _compile(program: str, folder: Path) -> None:
    source = SOURCES / f"{program}.c"
    try:
        subprocess.run(["cc", "-O2", "-o", folder / program, source], check=True)
    except FileNotFoundError:
        sys.exit(
            "cannot measure: there is no C compiler (on Debian: apt-get install gcc libc6-dev)"
        )


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench gateway", description=__doc__)
    every = ["direct", *relays.STARTERS]
    add = parser.add_argument
    add("--relays", type=lambda text: text.split(","), default=every, metavar="NAME,...")
    add("--only", default="", metavar="PREFIX", help="measure the tasks that begin with this")
    add("--rounds", type=int, default=5)
    add("--seconds", type=float, default=2.0, help="length of one measurement")
    add("--bulk", type=int, default=1024, metavar="MIB", help="size of one bulk transfer")
    options = parser.parse_args(argv)
    unknown = [name for name in options.relays if name not in every]
    if unknown:
        parser.error(f"unknown relay '{unknown[0]}'; there are {', '.join(every)}")
    return options


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
