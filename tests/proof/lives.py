"""Many lives of simulated nodes, from seeds, until the time is over.  Run by scripts/prove."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from lumbridge_compute.host.urgent import end_with_parent
from tests.proof.circumstances import NAMES
from tests.proof.life import Broken, smallest
from tests.proof.machine import REACHED, NodeMachine

STEPS = 25
BATCH = 20
"""So many lives have one seed."""

IN_QUICK_PART = 40
"""So many lives at the least; and more, up to `MOST_IN_QUICK_PART`, until all was met."""
MOST_IN_QUICK_PART = 300
_SETTINGS = settings(
    stateful_step_count=STEPS,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    # A life is made small by its steps, see `smallest`: what is drawn depends on their number.
    phases=[Phase.generate],
    report_multiple_bugs=False,
    print_blob=True,
)


@dataclass(frozen=True, slots=True)
class Lived:
    """One batch: what was met and how often, and what broke."""

    seed: int
    reached: Counter[str]
    broken: str | None


def live_quickly(enough: Callable[[Counter[str]], bool]) -> Counter[str]:
    """Lives from one seed after the other, until what was met is `enough`: how often a thing is met
    varies by a factor of ten between two seeds.  Raises AssertionError with what broke."""
    first = 1 if "CI" in os.environ else int.from_bytes(os.urandom(4), "big")
    reached: Counter[str] = Counter()
    for batch in range(MOST_IN_QUICK_PART // BATCH):
        if batch * BATCH >= IN_QUICK_PART and enough(reached):
            break
        lived = live_batch(first + batch)
        assert lived.broken is None, f"seed {lived.seed}: {lived.broken}"
        reached += lived.reached
    return reached


def live_batch(number: int, *, small: bool = True, lives: int = BATCH) -> Lived:
    """The lives of one seed; `small`: what breaks is made small."""
    REACHED.clear()
    chosen = settings(_SETTINGS, max_examples=lives, database=None)
    broken = None
    try:
        run_state_machine_as_test(seed(number)(NodeMachine), settings=chosen)
    except Broken as error:
        broken = str(smallest(error) if small else error)
    return Lived(number, Counter(REACHED), broken)


def live_for(minutes: float, first: int, jobs: int, say: Callable[[str], None]) -> int:
    """Batch after batch from seed `first` on; 1 where a promise was broken.

    One summary line and a table of what was reached come last.
    """
    began_s = time.monotonic()
    reached: Counter[str] = Counter()
    batches = broken = 0

    seeds = itertools.count(first)
    with multiprocessing.get_context("spawn").Pool(jobs, end_with_parent, (os.getpid(),)) as pool:
        while time.monotonic() - began_s < minutes * 60:
            for lived in pool.map(live_batch, itertools.islice(seeds, jobs), chunksize=1):
                batches += 1
                broken += lived.broken is not None
                reached += lived.reached
                after_s = time.monotonic() - began_s
                say(f"{after_s:6.0f} s  seed {lived.seed}: {_counts(lived.reached)}")
                if lived.broken is not None:
                    say(lived.broken)
    say(f"\n{batches * BATCH} lives, {_counts(reached)}, {broken} seeds with a broken promise")
    for name in (*NAMES, *sorted(reached.keys() - set(NAMES))):
        say(f"  {reached[name]:8}  {name}")
    return int(broken > 0)


def _counts(reached: Counter[str]) -> str:
    commands = sum(count for name, count in reached.items() if name.startswith("run "))
    return f"{commands} commands, {reached['fault']} with a fault"
