"""A node under random steps for some minutes, looked at from outside.  Run by scripts/soak."""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from tests.soak.clients import Clients
from tests.soak.figures import Figures, growth, read_figures, render_figures
from tests.soak.soaked import CLIENTS, GOOD, Soaked, declare
from tests.soak.steps import STEPS
from tests.system.node import SystemNode, free_port

_SPARE_S = 600.0
"""The model servers end by themselves so long after the soak, whatever became of it."""

_WARM_UP = ("switch", "failing switch", "kill a model")
"""What makes the agent load what it needs."""

_ROUGH_SHARE = 0.6


class Soak:
    """One run: `rough` steps, where agents come and go, then `smooth` ones, where one stays."""

    def __init__(self, soaked: Soaked, seed: int) -> None:
        self._soaked = soaked
        self._seed = seed
        self.done: list[str] = []
        self.took_s: dict[str, float] = defaultdict(float)
        self.taken: dict[str, Figures] = {}

    def rough(self, until_s: float) -> None:
        """Any step, again and again."""
        while time.monotonic() < until_s:
            self._step(self._choose(ending=True))

    def smooth(self, until_s: float) -> None:
        """Steps that one agent lives through; what it holds at the start, at half, at the end."""
        if self._soaked.agent is None:
            self._step("begin an agent")
        for name in _WARM_UP:
            self._step(name)
        self._measure("start")
        began_s = time.monotonic()
        while (now_s := time.monotonic()) < until_s:
            if "half" not in self.taken and now_s > (began_s + until_s) / 2:
                self._measure("half")
            self._step(self._choose(ending=False))
        self._measure("end")

    def _choose(self, *, ending: bool) -> str:
        """The next step: it depends on the seed and the steps so far alone."""
        here = "agent" if self._soaked.agent is not None else "none"
        possible = {
            name: step.weight
            for name, step in STEPS.items()
            if step.needs in ("either", here) and (ending or not step.ends)
        }
        names, weights = list(possible), list(possible.values())
        return self._chance("which").choices(names, weights)[0]

    def _step(self, name: str) -> None:
        self.done.append(name)
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{len(self.done):5} {name:30}")
        began_s = time.monotonic()
        STEPS[name].run(self._soaked, self._chance(name))
        self.took_s[name] += time.monotonic() - began_s

    def _chance(self, what: str) -> random.Random:
        """A step's own: how often one draws does not change the next."""
        return random.Random(f"{self._seed}/{len(self.done)}/{what}")

    def _measure(self, moment: str) -> None:
        """The agent's figures, with the same Scene each time and no client at the gateway.

        The agent holds descriptors for each model that runs: beside another Scene, or none, the
        figures would tell nothing."""
        soaked = self._soaked
        assert soaked.agent is not None
        agent = soaked.agent
        soaked.command("scene", "activate", GOOD[0])
        soaked.rest("exact")
        soaked.clients.pause()
        soaked.until(lambda: soaked.clients.busy == 0, "the streams end")
        soaked.until(
            lambda: not any(each["connections"] for each in agent.told()["gateways"]),
            "the gateway is empty",
        )
        self.taken[moment] = read_figures(agent.process.pid)
        soaked.clients.go()


def main(arguments: Sequence[str]) -> int:
    """0 when every promise was kept, 1 where one was broken, 130 after Ctrl-C or SIGTERM."""
    options = _parse(arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    began_s = time.monotonic()
    end_s = began_s + options.minutes * 60
    with tempfile.TemporaryDirectory(prefix="lumbridge-soak-") as folder:
        node, listen = declare(Path(folder), options.minutes * 60 + _SPARE_S)
        clients = Clients(listen, CLIENTS)
        try:
            soaked = Soaked(node, clients, _strangers(node))
            return _soak(Soak(soaked, options.seed), soaked, options.seed, began_s, end_s)
        except KeyboardInterrupt:
            _say("interrupted")
            return 130
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            node.close()
            clients.close()


def _soak(soak: Soak, soaked: Soaked, seed: int, began_s: float, end_s: float) -> int:
    """Run, and print what came of it."""
    faults: list[str] = []
    soaked.clients.go()
    try:
        soak.rough(began_s + (end_s - began_s) * _ROUGH_SHARE)
        soak.smooth(end_s)
        soaked.command("scene", "deactivate")
        soaked.rest("idle")
    except Exception as error:  # noqa: BLE001 - whatever it is, the seed and the steps are told
        faults.append(f"{type(error).__name__}: {error}")
    if not faults:
        faults += growth(soak.taken["start"], soak.taken["end"])
    _tell(soak, soaked, time.monotonic() - began_s)
    for fault in faults:
        _say(f"\nVIOLATION after {len(soak.done)} steps: {fault}")
    if faults:
        _say(f"\nseed {seed}, steps so far: {', '.join(soak.done)}")
    return int(bool(faults))


def _strangers(node: SystemNode) -> list[subprocess.Popen[bytes]]:
    """Servers beside the node, that have to live through everything."""
    return [node.stranger(port=free_port(), marker=name) for name in ("small", "bystander")]


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="how long (default 5)")
    parser.add_argument("--seed", type=int, default=None, help="of the steps (default: any)")
    options = parser.parse_args(arguments)
    if options.seed is None:
        options.seed = random.randrange(10**6)
    _say(f"soak of {options.minutes:g} min, --seed {options.seed}")
    return options


def _tell(soak: Soak, soaked: Soaked, after_s: float) -> None:
    counts = Counter(soak.done)
    _say(f"\n{len(soak.done)} steps in {after_s:.0f} s")
    for name in STEPS:
        _say(f"  {name:28}{counts[name]:6}{soak.took_s[name]:8.1f} s")
    _say("streams at the gateway")
    for end, count in sorted(soaked.clients.ends.items()):
        _say(f"  {end:28}{count:6}")
    _say("one agent over the last part, no client connected")
    for row in render_figures(soak.taken):
        _say(f"  {row}")


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - the output of the command


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
