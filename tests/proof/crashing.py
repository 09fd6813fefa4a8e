"""The real command, with a death at a chosen effect.

`python tests/proof/crashing.py ARGUMENT...` is `lumbridge-compute ARGUMENT...`, with each of its
effects going through a watch.  LUMBRIDGE_COMPUTE_CRASH_AT=EFFECT:N:SIDE ends it by SIGKILL at the
Nth call of EFFECT (from 1), SIDE being `before` or `after` it is done; EFFECT `any` counts all.
LUMBRIDGE_COMPUTE_CRASH_TRACE names a file that gets a line `PID EFFECT` before each is done.
"""

from __future__ import annotations

import gc
import inspect
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, cast

from lumbridge_compute.cli.run import run
from lumbridge_compute.effects import Effects
from lumbridge_compute.host.lock import NodeLock
from lumbridge_compute.host.pidfd import HeldProcess
from lumbridge_compute.host.spawn import Gate
from lumbridge_compute.host_effects import HostEffects

AT = "LUMBRIDGE_COMPUTE_CRASH_AT"
TRACE = "LUMBRIDGE_COMPUTE_CRASH_TRACE"
ANY = "any"

LASTING = frozenset(
    {"try_lock", "create", "fsync", "rename", "fsync_folder", "remove", "append_history"}
    | {"trim_log", "spawn", "run", "gate.release", "gate.abandon", "lock.release"}
    | {"process.signal", "process.signal_group"}
)
"""Effects after which the machine is another: deaths between two of them are one death."""

_PARTS: dict[type, str] = {NodeLock: "lock", Gate: "gate", HeldProcess: "process"}
"""What effects give back that has effects of its own, and how these are called."""


@dataclass(frozen=True, slots=True)
class Point:
    """Where the command dies: at call `number` of `effect`, counted from 1."""

    effect: str
    number: int
    after: bool

    def __str__(self) -> str:
        return f"{self.effect}:{self.number}:{'after' if self.after else 'before'}"

    @classmethod
    def parse(cls, text: str) -> Point:
        """The point of `str`.  Raises ValueError."""
        effect, number, side = text.split(":")
        if side not in ("before", "after"):
            raise ValueError(f"{text!r} ends with neither before nor after")
        return cls(effect, int(number), side == "after")


class Watch:
    """Tells each effect to the trace, and ends this process at the point."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._point = Point.parse(environ[AT]) if AT in environ else None
        self._calls: Counter[str] = Counter()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._trace = os.open(environ[TRACE], flags, 0o600) if TRACE in environ else None

    def before(self, effect: str) -> tuple[int, int]:
        """Which call of `effect`, and which effect at all, is about to be done."""
        self._calls[effect] += 1
        self._calls[ANY] += 1
        numbers = self._calls[effect], self._calls[ANY]
        if self._trace is not None:
            os.write(self._trace, f"{os.getpid()} {effect}\n".encode())
        self._die_at(effect, numbers, after=False)
        return numbers

    def after(self, effect: str, numbers: tuple[int, int]) -> None:
        self._die_at(effect, numbers, after=True)

    def _die_at(self, effect: str, numbers: tuple[int, int], *, after: bool) -> None:
        own, overall = numbers
        if self._point in (Point(effect, own, after), Point(ANY, overall, after)):
            os.kill(os.getpid(), signal.SIGKILL)
            signal.pause()  # a signal to oneself may take a moment


class Watched:
    """`inner` with every call of a method told to `watch`, under the method's name."""

    def __init__(self, inner: object, watch: Watch, prefix: str = "") -> None:
        self._inner = inner
        self._watch = watch
        self._prefix = prefix

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not inspect.ismethod(found):
            return self._part(found)
        effect = self._prefix + name
        watched = self._awaited if inspect.iscoroutinefunction(found) else self._called
        return watched(effect, found)

    def _called(self, effect: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **keys: Any) -> Any:
            numbers = self._watch.before(effect)
            result = method(*args, **keys)
            self._watch.after(effect, numbers)
            return self._part(result)

        return call

    def _awaited(self, effect: str, method: Callable[..., Any]) -> Callable[..., Any]:
        async def call(*args: Any, **keys: Any) -> Any:
            numbers = self._watch.before(effect)
            result = await method(*args, **keys)
            self._watch.after(effect, numbers)
            return self._part(result)

        return call

    def _part(self, result: Any) -> Any:
        kind = _PARTS.get(type(result))
        return result if kind is None else Watched(result, self._watch, f"{kind}.")


def main() -> NoReturn:
    """As the command itself, see lumbridge_compute.__main__."""
    gc.disable()
    watch = Watch(os.environ)

    def open_effects(root: str) -> Effects:
        return cast(Effects, Watched(HostEffects(root), watch))

    os._exit(run(sys.argv[1:], os.environ, open_effects))


if __name__ == "__main__":
    main()
