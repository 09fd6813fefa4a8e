"""Bugs planted into the real code, to see that the proof finds them.

Nothing of the package is imported here: each bug gets the modules anew, the one with the bug
through a loader that changes its source.  `python -m tests.proof.planted [NAME]...` prints a line
for each bug: its name, and what caught it.  With --lives the state machine looks for them, which
has to come upon them by chance.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, ModuleType
from typing import Any

PACKAGE = "lumbridge_compute"
MOST_SEEDS = 8
"""So many batches of lives look for one bug."""

_OURS = (PACKAGE, "tests.fakes.", "tests.proof.")


@dataclass(frozen=True, slots=True)
class Planted:
    """One bug: what it does to `module`, as hunks of a diff without line numbers, "@@" between.

    `caught_by` is the invariant that has to break, in a story from one of `places`: a start, an
    order, and the faults that are tried there ("none" for the undisturbed command).
    """

    name: str
    module: str
    diff: str
    caught_by: str
    places: tuple[tuple[str, str, str], ...]

    def apply(self, source: str) -> str:
        """`source` with the bug in it.  Raises ValueError where it does not fit exactly once."""
        for hunk in self.diff.strip("\n").split("\n@@\n"):
            lines = hunk.split("\n")
            old, new = (
                "".join(f"{x[1:]}\n" for x in lines if x[0] in side) for side in (" -", " +")
            )
            if source.count(old) != 1:
                raise ValueError(f"{self.name!r} fits {source.count(old)} times: {old!r}")
            source = source.replace(old, new)
        return source


BUGS = (
    Planted(
        "record removed too early",
        "steps",
        """
-        await stopper.finish()
+        gone = [stopper.identity]
+        await self.journal.update(lambda state: without_processes(state, gone))
+        await stopper.finish()
""",
        "proof-of-death",
        (("day", "activate-night", "none"),),
    ),
    Planted(
        "no wait for death",
        "stopping",
        """
-            while not self._stopped():
+            while False:
""",
        "proof-of-death",
        (("escaped_survivors", "activate-day", "none"),),
    ),
    Planted(
        "only the first process is waited for",
        "stopping",
        """
-        return claim.members | claim.strays | alive
+        return frozenset()
""",
        "proof-of-death",
        (("survivors", "deactivate", "none"),),
    ),
    Planted(
        "marker not compared",
        "core.health",
        """
-    if wanted in markers:
+    if markers:
""",
        "verified",
        (("target_lies", "activate-night", "none"),),
    ),
    Planted(
        "listener not checked",
        "checking",
        """
-    if (health := own(effects, model, record, identity)) is not None:
-        return health
@@
-    return own(effects, model, record, identity) or EXACT
+    return EXACT
""",
        "verified",
        (("day", "activate-night", "stranger"),),
    ),
    Planted(
        "commit before verify",
        "steps",
        """
-        await self.verify(plan.target)
""",
        "verified",
        (("day", "activate-night", "none"),),
    ),
    Planted(
        "memory ahead of disk after a failed write",
        "journal",
        """
-            self._in_doubt = True
+            self._in_doubt, self.state = True, state
@@
-            before, self.state = self.state, parse_state(data)
-            return self.state == before
+            return False
""",
        "memory-follows-disk",
        (("day", "activate-night", "eio"),),
    ),
    Planted(
        "signal by number",
        "stopping",
        """
-        if self._leader is None and claim.ownership is Ownership.OWNED:
-            self._leader = self._effects.open_process(self._record.identity)
+        now = self._effects.identify(self._record.identity.pid)
+        if self._leader is None and now is not None:
+            self._leader = self._effects.open_process(now)
""",
        "strangers",
        (("reused_pid_with_survivors", "deactivate", "none"),),
    ),
    Planted(
        "identity not compared",
        "core.identity",
        """
-    if now is None or leader is None or not leader.alive or not identity.matches(now):
+    if now is None or leader is None or not leader.alive:
""",
        "strangers",
        (("reused_pid", "deactivate", "none"),),
    ),
    Planted(
        "restore twice",
        "orders",
        """
     elif (failure := await transaction.attempt(plan, previous)) is not None:
+        await roll_back(transaction, previous, failure)
""",
        "undo-once",
        (("target_lies", "activate-night", "none"),),
    ),
    Planted(
        "gate opened before the record",
        "steps",
        """
         try:
+            gated.release()
             await self.journal.update(lambda state: with_record(state, model.name, record))
             await self.surroundings.guard(model.name, gated.handle)
-            gated.release()
""",
        "no-orphan",
        (("fresh", "activate-day", "none"),),
    ),
    Planted(
        "lock not held over the read",
        "orders",
        """
         lock = await _locked(node, order, interruption)
+        lock.release()
""",
        "locked",
        (("day", "activate-night", "none"),),
    ),
    Planted(
        "survivors forgotten",
        "core.identity",
        """
-    members = _living(proved, table)
+    members: frozenset[int] = frozenset()
     reused = now is not None and not identity.matches(now)
""",
        "proof-of-death",
        (("survivors", "resume", "none"),),
    ),
    Planted(
        "last known good set at begin",
        "core.state",
        """
-        state, active_scene=None, transition_scene=target, last_error=None, deactivating=False
+        state, active_scene=None, transition_scene=target, last_error=None, deactivating=False,
+        last_known_good_scene=target,
""",
        "last-known-good",
        (("fresh", "activate-day", "none"),),
    ),
    Planted(
        "desired set at begin",
        "core.state",
        """
-        state, active_scene=None, transition_scene=target, last_error=None, deactivating=False
+        state, active_scene=None, transition_scene=target, last_error=None, deactivating=False,
+        desired_scene=target,
""",
        "desired",
        (("day", "activate-night", "none"),),
    ),
    Planted(
        "content not synced",
        "journal",
        """
-        await self._effects.fsync(name)
         await self._effects.rename(name, STATE_FILE)
""",
        "no-orphan",
        (("fresh", "activate-day", "none"),),
    ),
    Planted(
        "folder not synced",
        "journal",
        """
-        await self._effects.fsync_folder()
""",
        "no-orphan",
        (("fresh", "activate-day", "none"),),
    ),
    Planted(
        "write cancelled half-way",
        "journal",
        """
-                with trio.CancelScope(shield=True):
+                with trio.CancelScope():
""",
        "memory-follows-disk",
        (("day", "activate-night", "interrupt-twice"),),
    ),
    Planted(
        "restored records dropped by name",
        "way_back",
        """
-    worthless = set(plan.forget) - {model.name for model in plan.target}
+    worthless = set(plan.forget)
     state = writes.restored(writes.without_records(state, worthless), previous.scene, cause)
""",
        "no-orphan",
        (("day", "activate-night", "interrupt"),),
    ),
    Planted(
        "healthy models restarted",
        "core.plan_scene",
        """
-    if not healthy or not record.definition.starts_like(model):
+    if record is not None:
""",
        "kept",
        (("day", "activate-night", "none"),),
    ),
    Planted(
        "the latch forgotten in a transaction",
        "transaction",
        """
-            if (latch := self.steps.surroundings.floor_latch(name)) is not None:
+            if (latch := self.steps.surroundings.floor_latch("")) is not None:
""",
        "floor",
        (("survivors", "activate-day", "floor"),),
    ),
    Planted(
        "what the floor stopped is started again",
        "steps",
        """
-        stopped = self.surroundings.stopped_by_floor()
+        stopped: dict[str, str] = {}
""",
        "floor",
        (("rebooted", "resume", "floor"), ("changed_shared", "activate-night", "floor")),
    ),
    Planted(
        "failed write on the way back believed",
        "way_back",
        """
         except OSError:
             continue
         return True
-    return False
+    return True
""",
        "exit-1",
        (("fresh_target_lies", "activate-night", "enospc-ever"),),
    ),
    Planted(
        "restored without a check",
        "way_back",
        """
-        await transaction.steps.carry_out(plan)
+        await transaction.steps.stop(plan.stop)
         await transaction.journal.update(lambda state: _put_back(state, previous, plan, cause))
""",
        "verified",
        (("target_lies", "activate-night", "none"),),
    ),
    Planted(
        "adopted by the old definition",
        "observe",
        """
-    if not isinstance(record, Bound) or (adopting and declared is not None):
+    if not isinstance(record, Bound):
""",
        "exit-0",
        (("changed_definition", "adopt-day", "none"),),
    ),
)


class _Loader(importlib.machinery.SourceFileLoader):
    """Compiles a module from its changed source, and never from a cache."""

    bug: Planted

    def get_code(self, fullname: str) -> CodeType | None:
        source = self.bug.apply(self.get_data(self.path).decode())
        return compile(source, self.path, "exec", dont_inherit=True)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, bug: Planted) -> None:
        self._bug = bug

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != f"{PACKAGE}.{self._bug.module}":
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        assert spec is not None
        assert spec.origin is not None
        loader = _Loader(fullname, spec.origin)
        loader.bug = self._bug
        return importlib.util.spec_from_file_location(fullname, spec.origin, loader=loader)


@contextmanager
def planted(bug: Planted) -> Iterator[Any]:
    """The enumerator, on the code with `bug` in it."""
    _forget_modules()
    finder = _Finder(bug)
    sys.meta_path.insert(0, finder)
    try:
        yield importlib.import_module("tests.proof.enumerator")
    finally:
        sys.meta_path.remove(finder)
        _forget_modules()


def hunt(bug: Planted) -> str | None:
    """The first broken promise that tells of `bug`, with its story; None when nothing does."""
    with planted(bug) as enumerator:
        for start, order, kinds in bug.places:
            for story in enumerator.named_stories(start, order, kinds):
                told = enumerator.tell(story)
                for _, violation in told.violations:
                    if violation.name == bug.caught_by:
                        return f"{violation} [{story}]"
    return None


def hunt_by_lives(bug: Planted) -> str | None:
    """The first broken promise that lives by chance tell of `bug`; None when none does."""
    with planted(bug):
        lives = importlib.import_module("tests.proof.lives")
        for number in range(MOST_SEEDS):
            told = lives.live_batch(number, small=False).broken
            if told is not None:
                first = str(told.splitlines()[0]).removeprefix("broken: ")
                return f"{first} [seed {number}]"
    return None


def _forget_modules() -> None:
    for name in list(sys.modules):
        if name.startswith(_OURS) and name != __name__:
            del sys.modules[name]


def main(arguments: Sequence[str], tell: Callable[[str], None]) -> int:
    look = hunt_by_lives if "--lives" in arguments else hunt
    names = [each for each in arguments if each != "--lives"]
    missed = 0
    for bug in BUGS:
        if names and bug.name not in names:
            continue
        found = look(bug)
        missed += found is None
        tell(f"{bug.name}\t{found or ''}")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], lambda line: print(line, flush=True)))  # noqa: T201 - its output
