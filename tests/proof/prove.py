"""The whole enumeration, or one story of it again.  Run by scripts/prove."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lumbridge_compute.host.urgent import end_with_parent
from tests.fakes.faults import Fault, Kind
from tests.proof.enumerator import ORDERS, Enumeration, Story, Tally, tell
from tests.proof.life import Broken, live
from tests.proof.lives import live_for
from tests.proof.report import render_told
from tests.proof.starts import STARTS
from tests.proof.witness import INVARIANTS

SHOWN = 3
"""So many broken stories of one start are told in full."""

_REPLAY = "START and ORDER of one story, with its --fault and --later: tell it again, in full"


@dataclass(frozen=True, slots=True)
class _Part:
    """All of one start, or one of its commands."""

    start: str
    order: str | None
    seed: int
    twice: bool
    share: float


@dataclass(frozen=True, slots=True)
class _Result:
    part: _Part
    runs: int
    stories: int
    faults: dict[Kind, int]
    violations: int
    broken: dict[str, int]
    told: tuple[str, ...]


def main(arguments: Sequence[str]) -> int:
    options = _parse(arguments)
    if options.replay is not None:
        return _replay(options)
    if options.live is not None:
        return _live(options.live)
    if options.machine is not None:
        return live_for(options.machine, options.seed, options.jobs, _say)
    parts = list(_parts(options))[options.part - 1 :]
    began_s = time.monotonic()
    results = []
    first = options.part
    spawning = multiprocessing.get_context("spawn")
    with spawning.Pool(options.jobs, end_with_parent, (os.getpid(),)) as pool:
        for number, result in enumerate(pool.imap(_prove, parts), first):
            results.append(result)
            _tell_progress(result, number, first + len(parts) - 1, time.monotonic() - began_s)
    _tell_summary(results, time.monotonic() - began_s)
    return int(any(result.violations for result in results))


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="prove",
        description="Every start x command x effect x fault, on the real code in a simulated "
        "machine; then resume with a second death at each of its effects; then peace.",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the machine's chances (default 0)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    parser.add_argument("--start", choices=STARTS, help="this start alone")
    parser.add_argument("--order", choices=ORDERS, help="this command alone")
    parser.add_argument("--once", action="store_true", help="no second death")
    parser.add_argument(
        "--share", type=float, default=1.0, help="of the stories, from 0 to 1 (default 1)"
    )
    parser.add_argument(
        "--part", type=int, default=1, help="go on with this part, as the progress counts them"
    )
    parser.add_argument("--replay", nargs=2, metavar=("START", "ORDER"), help=_REPLAY)
    parser.add_argument("--fault", action="append", type=Fault.parse, default=[])
    parser.add_argument("--later", action="append", type=Fault.parse, default=[])
    parser.add_argument(
        "--machine", type=float, metavar="MINUTES", help="lives of a node by chance, for so long"
    )
    parser.add_argument("--live", metavar="STEPS", help="one such life again")
    return parser.parse_args(arguments)


def _parts(options: argparse.Namespace) -> Iterator[_Part]:
    for start in STARTS:
        if options.start in (None, start):
            yield _Part(start, options.order, options.seed, not options.once, options.share)


def _prove(part: _Part) -> _Result:
    whole = Enumeration(part.start, part.seed, twice=part.twice, share=part.share)
    tally = whole.run(ORDERS if part.order is None else (part.order,))
    told = tuple(render_told(each) for each in tally.broken[:SHOWN])
    return _Result(
        part, tally.runs, tally.stories, tally.faults, len(tally.broken), _names(tally), told
    )


def _names(tally: Tally) -> dict[str, int]:
    found: dict[str, int] = {}
    for told in tally.broken:
        for name in {violation.name for _, violation in told.violations}:
            found[name] = found.get(name, 0) + 1
    return found


def _replay(options: argparse.Namespace) -> int:
    start, order = options.replay
    story = Story(start, order, tuple(options.fault), tuple(options.later), options.seed)
    told = tell(story)
    _say(render_told(told, every_effect=True))
    return int(bool(told.violations))


def _live(steps: str) -> int:
    try:
        live(steps)
    except Broken as broken:
        _say(str(broken))
        return 1
    _say("no promise is broken")
    return 0


def _tell_progress(result: _Result, number: int, count: int, after_s: float) -> None:
    part = result.part
    line = f"{number:4}/{count} {after_s:6.0f} s  {part.start} {part.order or ''}"
    _say(f"{line:60} {result.stories:6} stories {result.runs:7} runs {result.violations:4} broken")
    for told in result.told:
        _say(f"{told}\n")


def _tell_summary(results: Sequence[_Result], after_s: float) -> None:
    faults: dict[Kind, int] = {}
    broken: dict[str, int] = {}
    for result in results:
        for kind, count in result.faults.items():
            faults[kind] = faults.get(kind, 0) + count
        for name, count in result.broken.items():
            broken[name] = broken.get(name, 0) + count
    runs, stories = (sum(getattr(each, key) for each in results) for key in ("runs", "stories"))
    _say(f"\n{stories} stories, {runs} runs, {sum(faults.values())} faults, {after_s:.0f} s")
    for kind in Kind:
        _say(f"  {kind:16} {faults.get(kind, 0):8}")
    _say(f"{sum(each.violations for each in results)} stories with a broken promise")
    for name, sentence in INVARIANTS.items():
        _say(f"  {broken.get(name, 0):6}  {name}: {sentence}")


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - the output of the command


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
