"""A simulated machine: processes, ports, memory, a disk and time; deterministic by its seed.

It holds nothing of trio, so that it can be copied between two commands.  What happens by itself
waits in a heap of events and comes due by `advance`.
"""

from __future__ import annotations

import heapq
import itertools
import pickle
import random
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from lumbridge_compute.core.identity import Identity
from lumbridge_compute.core.registry import Model, Registry
from lumbridge_compute.core.state import Bound, NodeState
from lumbridge_compute.core.world import Memory
from lumbridge_compute.effects import STATE_FILE
from lumbridge_compute.errors import BadInput
from lumbridge_compute.store.state_file import render_state
from tests.fakes.bodies import GIB, Body, Engine, Phase, Program
from tests.fakes.disk import Disk

TICKS_PER_S = 100
KILL_S = 0.004
LINGER_S = 0.15
SHELL_PID = 50
FIRST_PID = 100


@dataclass
class World:
    """The machine.  `programs` says by model name how its server behaves, `scopes` whether there
    is a systemd to give each model a scope, `churn` whether every freed PID is at once taken by a
    stranger that leads a group of its own, `registry_fault` why compute.yaml can't be read now."""

    registry: Registry
    programs: dict[str, Program] = field(default_factory=dict)
    seed: int = 0
    scopes: bool = False
    churn: bool = False
    total_bytes: int = 64 * GIB
    now_s: float = 1000.0
    boot: int = 1
    disk: Disk = field(default_factory=Disk)
    bodies: dict[int, Body] = field(default_factory=dict)
    locked_by: int | None = None
    command: Body | None = None
    leaders: dict[int, Identity] = field(default_factory=dict)
    version: int = 0
    registry_fault: str | None = None
    _events: list[tuple[float, int, str, Body, Any]] = field(default_factory=list)
    _count: int = 0

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self._boot_up()

    def copy(self) -> World:
        found: World = pickle.loads(pickle.dumps(self))
        return found

    def read_registry(self) -> Registry:
        if self.registry_fault is not None:
            raise BadInput(self.registry_fault, "mend compute.yaml")
        return self.registry

    # time

    def advance(self, now_s: float) -> None:
        """Let everything happen that is due."""
        while self._events and self._events[0][0] <= now_s:
            due_s, _, what, body, detail = heapq.heappop(self._events)
            self.now_s = max(self.now_s, due_s)
            self.version += 1
            if body.alive:
                getattr(self, f"_on_{what}")(body, detail)
        self.now_s = max(self.now_s, now_s)

    def next_event_s(self) -> float:
        return self._events[0][0] if self._events else float("inf")

    def later(self, delay_s: float, what: str, body: Body, detail: object = None) -> None:
        self._count += 1
        self.version += 1
        heapq.heappush(self._events, (self.now_s + delay_s, self._count, what, body, detail))

    def pending(self) -> tuple[tuple[str, int], ...]:
        """What is about to happen by itself, and to which PID, in its order."""
        due = sorted(self._events, key=lambda event: event[:2])
        return tuple((what, body.pid) for _, _, what, body, _ in due if body.alive)

    # processes

    @property
    def boot_id(self) -> str:
        return f"{self.boot:032x}"

    def identity(self, body: Body) -> Identity:
        return Identity(self.boot_id, body.pid, body.ticks, body.inode)

    def living(self) -> Iterator[Body]:
        return (body for body in self.bodies.values() if body.alive)

    def ours(self) -> list[Body]:
        """Every living process that came from a start of ours, past its gate."""
        return [b for b in self.living() if b.model is not None and b.phase is Phase.RUNNING]

    def body_of(self, identity: Identity) -> Body | None:
        body = self.bodies.get(identity.pid)
        return body if body is not None and identity.matches(self.identity(body)) else None

    def begin_command(self) -> Body:
        """A new command, which is what the following starts are children of."""
        self.command = self._new("lumbridge-compute", parent=SHELL_PID)
        return self.command

    def end_command(self) -> None:
        """The command is gone, however: its lock is free, its gated children end, its ended
        children are reaped."""
        command, self.command = self.command, None
        self.locked_by = None
        if command is not None and command.phase is not Phase.GONE:
            command.phase = Phase.GONE
            del self.bodies[command.pid]
            for body in list(self.bodies.values()):
                if body.parent == command.pid:
                    body.parent = 1
                    if body.phase is Phase.GATED:
                        self.end(body, "exit code 1")
                    elif body.phase is Phase.ZOMBIE:
                        self.reap(body)

    def spawn(
        self, name: str, port: int, marker: str, token: str | None, scope: str | None
    ) -> Body:
        """A child of the command that waits at its gate."""
        parent = self.command.pid if self.command is not None else 1
        body = self._new(name, parent=parent)
        body.phase, body.model, body.start, body.leads = Phase.GATED, name, body.inode, True
        body.token, body.scope, body.port, body.marker = token, scope, port, marker
        body.program = self.programs.get(name, Program())
        self.leaders[body.start] = self.identity(body)
        return body

    def release(self, body: Body) -> None:
        """The gate opens: the child becomes the model."""
        assert body.program is not None
        body.phase = Phase.RUNNING
        program = body.program
        self.later(program.load_s, "listen", body)
        if program.engine is not Engine.NONE:
            self.later(program.load_s / 2, "engine", body)
        if program.dies_after_s is not None:
            self.later(program.dies_after_s, "exit", body, "exit code 1")

    def run_model(self, model: Model, *, loading: bool = False, adopted: bool = False) -> Bound:
        """A start of long ago, as the record that it left: serving by now, or just begun."""
        self._count += 1
        token = None if adopted else f"{self._count:032x}"
        scope = f"lumbridge-{model.name}-{self._count}.scope" if self.scopes else None
        body = self.spawn(model.name, model.port, model.marker, token, scope)
        body.parent = 1
        self.release(body)
        if not loading:
            assert body.program is not None
            self.advance(self.now_s + body.program.load_s + body.program.warm_s + 0.1)
        return Bound(self.identity(body), model, token, scope, "2026-01-01T00:00:00Z")

    def stranger(self, name: str = "stranger", port: int | None = None, marker: str = "") -> Body:
        """A process that is none of ours, in a group of its own; it may serve on `port`."""
        body = self._new(name, parent=1)
        if port is not None:
            body.listens, body.shares_port, body.port = {port}, True, port
            body.serves, body.marker = True, marker
        return body

    def remove_strangers(self) -> None:
        for body in list(self.living()):
            if body.name == "stranger":
                self.end(body, "killed by SIGKILL")

    def signal(self, body: Body, number: int) -> None:
        if not body.alive or number == 0:
            return
        if number == signal.SIGKILL:
            self.later(KILL_S, "exit", body, "killed by SIGKILL")
            return
        body.terms += 1
        program = body.program
        if body.phase is Phase.GATED or program is None:
            self.later(KILL_S, "exit", body, "killed by SIGTERM")
        elif not program.ignores_term and body.terms > program.loses_terms and not body.ending:
            body.ending = True
            self.later(program.term_s, "exit", body, "killed by SIGTERM")

    def end(self, body: Body, cause: str) -> None:
        """It is dead: a zombie while its parent, the command, has not reaped it."""
        body.listens, body.serves, body.cause = set(), False, cause
        self.version += 1
        command = self.command
        waits = command is not None and body.parent == command.pid
        body.phase = Phase.ZOMBIE
        if not waits:
            self.reap(body)
        if body.leads and body.program is not None and not body.program.outlives:
            for other in self.living():
                if other.start == body.start and other is not body:
                    self.later(LINGER_S, "exit", other, "exit code 1")

    def reap(self, body: Body) -> None:
        if body.phase is Phase.ZOMBIE:
            body.phase = Phase.GONE
            del self.bodies[body.pid]
            if self.churn and body.name != "stranger" and self._free(body.pid):
                self._new("stranger", parent=1, pid=body.pid)

    def reboot(self) -> None:
        """The power fails, and the machine comes back."""
        self.disk.lose_power(self.chance)
        for body in self.bodies.values():
            body.phase = Phase.GONE
        self.bodies, self._events, self.command, self.locked_by = {}, [], None, None
        self.boot += 1
        self.now_s += 30
        self._boot_up()

    # ports and memory

    def listeners(self, port: int) -> list[Body]:
        return [body for body in self.living() if port in body.listens]

    def memory(self) -> Memory:
        used = sum(b.program.memory_bytes for b in self.ours() if b.program and b.leads)
        return Memory(self.total_bytes - 4 * GIB - used, self.total_bytes)

    def write_state(self, state: NodeState) -> None:
        self.disk.put(STATE_FILE, render_state(state))

    def _boot_up(self) -> None:
        self._new("init", parent=0, pid=1)
        self._new("sh", parent=1, pid=SHELL_PID)

    def _new(self, name: str, parent: int, pid: int | None = None) -> Body:
        if pid is None:
            pid = next(each for each in itertools.count(FIRST_PID) if self._free(each))
        self._count += 1
        ticks = int(self.now_s * TICKS_PER_S)
        body = Body(pid, parent, pid, pid, ticks, self._count, name, self._count)
        self.bodies[pid] = body
        return body

    def _free(self, pid: int) -> bool:
        """As the kernel: no number that a process, a group or a session still has."""
        return pid not in self.bodies and not any(
            pid in (body.group, body.session) for body in self.bodies.values()
        )

    # what happens by itself

    def _on_listen(self, body: Body, _detail: object) -> None:
        program = body.program
        assert program is not None
        others = self.listeners(body.port)
        if others and not (program.shares_port and all(each.shares_port for each in others)):
            self.end(body, "exit code 1")
            return
        body.listens, body.shares_port = {body.port}, program.shares_port
        self.later(program.warm_s, "serve", body)
        for engine in self.living():
            if engine.start == body.start and engine is not body and program.engine_listens:
                engine.listens, engine.shares_port = {body.port}, program.shares_port

    def _on_serve(self, body: Body, _detail: object) -> None:
        body.serves = True

    def _on_exit(self, body: Body, cause: str) -> None:
        self.end(body, cause)

    def _on_engine(self, leader: Body, _detail: object) -> None:
        program = leader.program
        assert program is not None
        body = self._new(f"{leader.name}-engine", parent=leader.pid)
        body.model, body.start, body.scope = leader.model, leader.start, leader.scope
        body.token = leader.token if program.keeps_token else None
        body.program = replace(program, engine=Engine.NONE)
        if program.engine is Engine.IN_GROUP:
            body.group, body.session = leader.group, leader.session
            body.group_inode = leader.group_inode
