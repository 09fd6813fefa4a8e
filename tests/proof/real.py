"""The real command struck down on a real node.  Run by scripts/prove --real."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.proof.crashing import ANY, LASTING, Point
from tests.proof.plays import PLAYS, Blow, Death, build, render_broken, strike, trace_of
from tests.proof.syscalls import CALLS, FAULTS, Struck, count_calls, why_no_strace
from tests.system.node import SystemNode

_PROGRESS = 20
"""A line of progress for each so many blows."""


def count_effects(node: SystemNode, play: str, *, every: bool = False) -> list[Point]:
    """Both sides of every effect of an undisturbed run: of those alone after which the machine is
    another, unless `every`."""
    ran, broken = strike(node, PLAYS[play], Death())
    if broken:
        raise AssertionError(render_broken(node, play, "", ran, broken))
    # The strike has ended with resumes, which are not told: the trace is the command's own.
    effects = trace_of(node).read_text().split()[1::2]
    if every:
        calls = [(ANY, number + 1) for number in range(len(effects))]
    else:
        seen: Counter[str] = Counter()
        calls = []
        for effect in effects:
            seen[effect] += 1
            if effect in LASTING:
                calls.append((effect, seen[effect]))
    return [Point(*call, after) for call in calls for after in (False, True)]


def count_syscalls(node: SystemNode, play: str, call: str) -> int:
    """How many of `call` an undisturbed run has."""
    ran, broken = strike(node, PLAYS[play], Struck(call, 0))
    if broken:
        raise AssertionError(render_broken(node, play, "", ran, broken))
    return count_calls(node)


def parse_blow(text: str) -> Blow:
    """A blow by its word.  Raises ValueError."""
    return Struck.parse(text) if text.endswith(tuple(FAULTS)) else Death(Point.parse(text))


def main(arguments: Sequence[str]) -> int:
    options = _parse(arguments)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit(130))  # with the node's end on the way
    plays = [options.play] if options.play else list(PLAYS)
    broken = [play for play in plays if not _prove(play, options)]
    return int(bool(broken))


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="prove --real",
        description="The real command on a real node, killed before and after each of its effects, "
        "and struck at each of its writes, fsyncs, opens and renames; then a resume.",
    )
    parser.add_argument("play", nargs="?", choices=PLAYS, help="this start and command alone")
    parser.add_argument(
        "blow", nargs="*", type=parse_blow, help="these blows alone, one after the other"
    )
    parser.add_argument(
        "--every", action="store_true", help="also between effects that change nothing"
    )
    parser.add_argument(
        "--from", type=int, default=1, dest="first", help="go on with this blow of each play"
    )
    return parser.parse_args(arguments)


def _prove(play: str, options: argparse.Namespace) -> bool:
    """Whether nothing was broken."""
    began_s = time.monotonic()
    endings: Counter[int] = Counter()
    with tempfile.TemporaryDirectory(prefix="prove-") as folder:
        node = build(Path(folder))
        try:
            blows = options.blow or list(_every_blow(node, play, every=options.every))
            for number, blow in enumerate(blows[options.first - 1 :], options.first):
                ran, broken = strike(node, PLAYS[play], blow)
                endings[ran.exit] += 1
                if broken:
                    words = " ".join(map(str, options.blow[:number] or [blow]))
                    _say(render_broken(node, play, words, ran, broken))
                    return False
                if number % _PROGRESS == 0 or number == len(blows):
                    _tell(play, f"{number}/{len(blows)}", endings, time.monotonic() - began_s)
        finally:
            node.close()
    return True


def _every_blow(node: SystemNode, play: str, *, every: bool) -> Iterator[Blow]:
    yield from map(Death, count_effects(node, play, every=every))
    if (why := why_no_strace()) is not None:
        _say(f"{play}: no faults at system calls: {why}")
        return
    for call in CALLS:
        for number in range(1, count_syscalls(node, play, call) + 1):
            yield from (Struck(call, number, fault) for fault in FAULTS)


def _tell(play: str, progress: str, endings: Counter[int], took_s: float) -> None:
    said = ", ".join(f"exit {code}: {count}" for code, count in sorted(endings.items()))
    _say(f"{play:12} {progress:>9} blows {took_s:6.0f} s, nothing broken ({said})")


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - the output of the command


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
