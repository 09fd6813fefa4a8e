"""The real command struck down on a real node.  Run by scripts/prove --real."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from lumbridge_compute.host.urgent import end_with_parent
from tests.proof.crashing import ANY, LASTING, Point
from tests.proof.plays import PLAYS, Blow, Death, build, render_broken, strike, trace_of
from tests.proof.syscalls import CALLS, FAULTS, Struck, count_calls, why_no_strace
from tests.system.node import SystemNode, choose_ports

_PROGRESS = 20
"""A line of progress for each so many blows."""

ENDINGS = {-9: "killed", **{code: f"exit {code}" for code in (0, 1, 2, 3, 4)}}
"""How a struck command may end, each a column of the table."""


@dataclass
class Proved:
    """What became of one play: its blows of each kind, how the struck commands ended, and what
    broke."""

    play: str
    kinds: Counter[str] = field(default_factory=Counter)
    endings: Counter[int] = field(default_factory=Counter)
    took_s: float = 0.0
    broken: str | None = None


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
    plays = [options.play] if options.play else list(PLAYS)
    began_s = time.monotonic()
    _leave_on_signals()
    spawning = multiprocessing.get_context("spawn")
    with spawning.Pool(options.jobs, _begin, (os.getpid(),)) as pool:
        proved = list(pool.imap(partial(_prove, options=options), enumerate(plays), chunksize=1))
    _tell_summary(proved, time.monotonic() - began_s)
    return int(any(each.broken for each in proved))


def _begin(parent: int) -> None:
    end_with_parent(parent)
    _leave_on_signals()


def _leave_on_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit(130))  # with the node's end on the way


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
    parser.add_argument("--jobs", type=int, default=2, help="plays at a time (default 2)")
    parser.add_argument(
        "--from", type=int, default=1, dest="first", help="go on with this blow of each play"
    )
    return parser.parse_args(arguments)


def _prove(numbered: tuple[int, str], *, options: argparse.Namespace) -> Proved:
    """Every blow of one play, up to the first that breaks a promise."""
    number, play = numbered
    choose_ports(number)
    began_s = time.monotonic()
    proved = Proved(play)
    with tempfile.TemporaryDirectory(prefix="prove-") as folder:
        node = build(Path(folder))
        try:
            blows = options.blow or list(_every_blow(node, play, every=options.every))
            for number, blow in enumerate(blows[options.first - 1 :], options.first):
                ran, broken = strike(node, PLAYS[play], blow)
                proved.kinds[_kind(blow)] += 1
                proved.endings[ran.exit] += 1
                proved.took_s = time.monotonic() - began_s
                if broken:
                    words = " ".join(map(str, options.blow[:number] or [blow]))
                    proved.broken = render_broken(node, play, words, ran, broken)
                    _say(proved.broken)
                    break
                if number % _PROGRESS == 0 or number == len(blows):
                    _say(f"{play:12} {number:4}/{len(blows)} blows {proved.took_s:6.0f} s")
        finally:
            node.close()
    return proved


def _every_blow(node: SystemNode, play: str, *, every: bool) -> Iterator[Blow]:
    yield from map(Death, count_effects(node, play, every=every))
    if (why := why_no_strace()) is not None:
        _say(f"{play}: no faults at system calls: {why}")
        return
    for call in CALLS:
        for number in range(1, count_syscalls(node, play, call) + 1):
            yield from (Struck(call, number, fault) for fault in FAULTS)


def _kind(blow: Blow) -> str:
    if isinstance(blow, Struck):
        return f"{blow.fault} at a call"
    return "KILL at an effect"


def _tell_summary(proved: Sequence[Proved], after_s: float) -> None:
    kinds = ["KILL at an effect", *(f"{fault} at a call" for fault in FAULTS)]
    columns = [*kinds, *ENDINGS.values(), "broken"]
    _say("\n" + f"{'':12}" + "".join(f"{each:>{len(each) + 2}}" for each in columns))
    totals = [0] * len(columns)
    for each in proved:
        counts = [*(each.kinds[kind] for kind in kinds), *(each.endings[code] for code in ENDINGS)]
        counts.append(int(each.broken is not None))
        totals = [total + count for total, count in zip(totals, counts, strict=True)]
        _say(_row(each.play, columns, counts))
    _say(_row("all", columns, totals))
    _say(f"\n{sum(totals[: len(kinds)])} blows, {after_s:.0f} s, {totals[-1]} plays broken")


def _row(name: str, columns: Sequence[str], counts: Sequence[int]) -> str:
    cells = zip(columns, counts, strict=True)
    return f"{name:12}" + "".join(f"{count:{len(column) + 2}}" for column, count in cells)


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - the output of the command


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
