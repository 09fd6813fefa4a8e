"""The real command struck down at one moment, on a real node; then a resume, and what must hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import yaml

from lumbridge_compute.cli.node import read_status
from lumbridge_compute.core.report import Verdict, judge, passes_check
from tests.proof.crashing import AT, TRACE, Point
from tests.system.node import COMMAND, Ran, SystemNode, alive, until

CRASHING = [*COMMAND[:-2], str(Path(__file__).with_name("crashing.py"))]
KILLED = -9
SHOWN = 30
"""So many effects up to the death are shown."""


class Blow(Protocol):
    """What strikes a command.  `str` is one word of the command that replays it."""

    def run(self, node: SystemNode, *args: str) -> Ran:
        """The real command with the blow in it, ended."""
        ...


@dataclass(frozen=True, slots=True)
class Death:
    """kill -9 at an effect, see crashing.py; without `point` the effects are only told."""

    point: Point | None = None

    def __str__(self) -> str:
        return str(self.point)

    def run(self, node: SystemNode, *args: str) -> Ran:
        at = {AT: str(self.point)} if self.point is not None else {}
        return node.run(*args, command=CRASHING, env={TRACE: str(trace_of(node)), **at})


@dataclass(frozen=True, slots=True)
class Play:
    """`prepare` brings a node into the start state from wherever an earlier blow has left it.

    `kept` are models that no blow may cost their process.
    """

    prepare: Callable[[SystemNode], None]
    command: tuple[str, ...]
    kept: tuple[str, ...] = ()


def trace_of(node: SystemNode) -> Path:
    """Where the effects or the system calls of the struck command are told."""
    return node.root / "trace"


def build(root: Path) -> SystemNode:
    """A node with two Scenes that share a model and a port, and one that can't be.

    One model ignores SIGTERM: a death comes between what was asked to end and what has ended.
    """
    node = SystemNode(root)
    port = node.model("small", "--ignore-term", stop={"grace": "300ms"})
    node.model("large", port=port)
    node.model("voice")
    liar = node.model("liar", "--reported-marker", "Small", health={"timeout": "500ms"})
    node.scene("day", "small", "voice")
    node.scene("night", "large", "voice")
    node.scene("bad", "voice", "liar")
    node.write()
    assert liar != port
    return node


def strike(node: SystemNode, play: Play, blow: Blow) -> tuple[Ran, list[str]]:
    """How the struck command ended, and each promise that was broken, as a sentence.

    The node is left in a proven state where none was.
    """
    play.prepare(node)
    trace_of(node).unlink(missing_ok=True)
    before = Seen.of(node)
    ran = blow.run(node, *play.command)
    return ran, list(_broken(node, play, before, ran))


def render_broken(node: SystemNode, name: str, words: str, ran: Ran, broken: list[str]) -> str:
    """What broke, what led to it, what is so now, and how to see it again."""
    trace = trace_of(node)
    effects = trace.read_text().splitlines() if trace.exists() else []
    file = node.root / ".kuda" / "state.yaml"
    lines = [f"broken: {sentence}" for sentence in broken]
    lines += [f"the struck command: exit {ran.exit}, {ran.err.strip() or 'silent'}"]
    lines += [f"--- the last of its {len(effects)} effects", *effects[-SHOWN:]]
    lines += ["--- the state file", file.read_text() if file.exists() else "(none)"]
    lines += ["--- the node's processes", *map(_shown, sorted(node.processes()))]
    return "\n".join([*lines, f"replay: scripts/prove --real {name} {words}"])


@dataclass(frozen=True, slots=True)
class Seen:
    """The node at one moment: its state file, byte for byte, and who lives of its models."""

    file: tuple[bytes, int] | None
    living: frozenset[int]
    pids: Mapping[str, int]

    @classmethod
    def of(cls, node: SystemNode) -> Seen:
        file = node.root / ".kuda" / "state.yaml"
        if not file.exists():
            return cls(None, living(node), {})
        content = file.read_bytes(), file.stat().st_ino
        return cls(content, living(node), recorded(content[0]))


def living(node: SystemNode) -> frozenset[int]:
    """Every process of a model, those included that were started by hand."""
    by_hand = {each.pid for each in node.strangers if alive(each.pid)}
    return frozenset(node.servers() | by_hand)


def recorded(content: bytes) -> dict[str, int]:
    processes = yaml.safe_load(content)["processes"] or {}
    return {name: record["pid"] for name, record in processes.items()}


def _broken(node: SystemNode, play: Play, before: Seen, ran: Ran) -> Iterator[str]:
    yield from _answer_broken(node, play, before, ran)
    # A child at its gate ends by itself, once the pipe of its parent has closed.
    until(lambda: _orphans(node) == set() or _settled(node), "what waits at its gate ends")
    if orphans := _orphans(node):
        yield f"no orphan: pid {sorted(orphans)} lives without a record"
    struck = Seen.of(node)
    resumed = node.run("-v", "scene", "resume")
    if play.command[1] == "adopt" and resumed.exit == 3:
        # Not adopted yet: nothing of it may be touched, and adopting again is the way on.
        if Seen.of(node) != struck:
            yield "a refusal changes nothing"
        resumed = node.run(*play.command)
    if resumed.exit != 0:
        yield f"one resume converges: exit {resumed.exit}, {resumed.err.strip()}"
    yield from _unproven(node)
    now = Seen.of(node)
    for name in play.kept:
        if now.pids.get(name) not in (before.pids.get(name), None):
            yield f"a shared healthy model keeps its process: {name!r}"
    again = node.run("-v", "scene", "resume")
    if again.exit != 0 or Seen.of(node) != now:
        yield f"a second resume changes nothing: exit {again.exit}, {again.err.strip()}"


def _answer_broken(node: SystemNode, play: Play, before: Seen, ran: Ran) -> Iterator[str]:
    """What an answer promises, where the command lived to give one."""
    if ran.exit in (KILLED, 4):
        return
    if ran.exit not in (0, 1, 2, 3):
        yield f"the exit code is one of the table's: {ran.exit}"
    if ran.exit in (0, 1):
        # What is proven after a 1 may be the last known good Scene in the place of the desired one.
        found = _unproven(node, wanted=ran.exit == 0)
        yield from (f"exit {ran.exit} is a proven state: {each}" for each in found)
    if ran.exit in (2, 3) and Seen.of(node) != before:
        yield "a refusal changes nothing"


def _unproven(node: SystemNode, *, wanted: bool = True) -> Iterator[str]:
    """What speaks against the node's being exactly what its state says, by /proc and by status;
    and, if `wanted`, what it wants."""
    seen = Seen.of(node)
    if seen.living != set(seen.pids.values()):
        yield f"who lives is who is recorded: {sorted(seen.living)}, recorded {seen.pids}"
    status = read_status(str(node.root), node.environment())
    verdict = judge(status)
    if verdict not in (Verdict.EXACT, Verdict.IDLE) or (wanted and not passes_check(status)):
        yield f"the verdict is exact, or idle, as is desired: {verdict}"
    state = status.state
    if state is None:
        yield "the state can be read"
        return
    scene = node.scenes[state.active_scene]["models"] if state.active_scene else []
    if set(seen.pids) != set(scene):
        yield f"the records are those of {state.active_scene!r}: {sorted(seen.pids)}"
    if state.transition_scene is not None:
        yield "no transition is left"


def _orphans(node: SystemNode) -> set[int]:
    seen = Seen.of(node)
    return set(seen.living) - set(seen.pids.values())


def _settled(node: SystemNode) -> bool:
    """True when nobody waits at a gate: all that lives is past its exec."""
    return not any("_gate" in _shown(pid) for pid in living(node))


def _shown(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return f"pid {pid}: gone"
    return f"pid {pid}: {b' '.join(words).decode(errors='replace')}"


def _idle(node: SystemNode) -> None:
    if Seen.of(node).pids:
        node.ok("scene", "deactivate")


def _day(node: SystemNode) -> None:
    if Seen.of(node).file is None or node.state()["active_scene"] != "day":
        node.ok("scene", "activate", "day")


def _half_way(node: SystemNode) -> None:
    """A switch was killed as it had let its first model go."""
    _day(node)
    ran = Death(Point("gate.release", 1, after=True)).run(node, "scene", "activate", "night")
    assert ran.exit == KILLED, ran


def _by_hand(node: SystemNode) -> None:
    """The models of a Scene run, and a state file of bare PIDs names them."""
    file = node.root / ".kuda" / "state.yaml"
    for each in node.strangers:
        each.kill()
        each.wait()
    pids = {
        name: node.stranger(port=node.models[name]["port"], marker=name).pid
        for name in node.scenes["day"]["models"]
    }
    file.parent.mkdir(mode=0o700, exist_ok=True)
    processes = {name: {"pid": pid} for name, pid in pids.items()}
    file.write_text(yaml.safe_dump({"desired_scene": "day", "processes": processes}))


PLAYS = {
    "activate": Play(_idle, ("scene", "activate", "day")),
    "switch": Play(_day, ("scene", "activate", "night"), ("voice",)),
    "bad": Play(_day, ("scene", "activate", "bad"), ("voice",)),
    "resume": Play(_half_way, ("scene", "resume"), ("voice",)),
    "deactivate": Play(_day, ("scene", "deactivate")),
    "adopt": Play(_by_hand, ("scene", "adopt", "day"), ("small", "voice")),
}
