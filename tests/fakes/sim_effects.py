"""The effects of one command on a simulated world: each is numbered, and can go wrong."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import trio

from lumbridge_compute.core.health import Answer, Outcome, Request
from lumbridge_compute.core.identity import Identity, Process
from lumbridge_compute.core.launch import Launch
from lumbridge_compute.core.state import FloorLatch
from lumbridge_compute.core.world import Listener, Memory
from lumbridge_compute.effects import STATE_FILE, Effects, Holder, NodeLock, ProcessHandle
from lumbridge_compute.errors import Refused
from lumbridge_compute.host.files import Fault as FileFault
from lumbridge_compute.host.files import Unreadable
from lumbridge_compute.interruption import Interruption
from tests.fakes.bodies import Body, Phase
from tests.fakes.faults import AFFECTED, ERRORS, FOR_EVER, Fault, Kind
from tests.fakes.world import SHELL_PID, World

ASK_S = 0.0005
MOST_CALLS = 20_000
_T = TypeVar("_T")


class Killed(BaseException):
    """The command was killed by kill -9, or went down with the machine: nothing of it runs on."""


class Endless(BaseException):
    """The command has had more effects than any that comes to an end."""


@dataclass(frozen=True, slots=True)
class Call:
    """One effect: when, and of what."""

    number: int
    name: str
    detail: str
    at_s: float

    def __str__(self) -> str:
        return f"{self.number:4} {self.at_s:9.3f} s  {self.name} {self.detail}".rstrip()


class Witness(Protocol):
    """Sees what really happens, at the moment at which it does."""

    def calls(self, call: Call) -> None: ...
    def signals(self, handle: Body, number: int, reached: Collection[Body]) -> None: ...
    def waits(self, body: Body) -> None: ...
    def starts(self, body: Body) -> None: ...
    def writes(self, before: bytes | None, after: bytes) -> None: ...
    def hears(self, request: Request, body: Body | None, answer: Answer) -> None: ...
    def reads_state(self) -> None: ...
    def strikes(self, fault: Fault, hit: Body | None) -> None: ...


@dataclass
class SimEffects:
    """Implements Effects.  `faults` strike where they say; `interruption` is what a Ctrl-C takes.

    After a kill every effect raises Killed and changes nothing.  Time is trio's, on top of the
    world's own at the beginning.
    """

    world: World
    witness: Witness
    faults: tuple[Fault, ...] = ()
    interruption: Interruption = field(default_factory=Interruption)
    calls: list[Call] = field(default_factory=list)
    dead: bool = False
    holds_lock: bool = False
    newest_guarded: list[Identity] = field(default_factory=list)
    floor_victims: dict[str, str] = field(default_factory=dict)
    _kept: list[Body] = field(default_factory=list)
    _lasting: Kind | None = None
    _base_s: float = field(init=False)
    _tokens: int = 0
    _seen: int = 0
    changed: trio.Event = field(default_factory=trio.Event)

    def __post_init__(self) -> None:
        self._base_s = self.world.now_s - trio.current_time()
        self.own = self.world.begin_command()

    # the frame around each effect

    def effect(self, name: str, detail: str = "") -> Call:
        """What every effect begins with."""
        self._live()
        self.tick()
        if len(self.calls) > MOST_CALLS:
            self.dead = True
            raise Endless
        call = Call(len(self.calls), name, detail, self.world.now_s)
        self.calls.append(call)
        self.witness.calls(call)
        for fault in self.faults:
            if fault.number == call.number and not fault.after:
                self._strike(fault, name)
        self._refuse_lasting(name)
        return call

    def done(self, call: Call) -> None:
        """What every effect ends with."""
        self.tick()
        for fault in self.faults:
            if fault.number == call.number and fault.after:
                self._strike(fault, call.name)

    def tick(self) -> None:
        """Let the world catch up with the clock, and tell those who wait."""
        self.world.advance(self._base_s + trio.current_time())
        if self.world.version != self._seen:
            self._seen = self.world.version
            self.changed.set()
            self.changed = trio.Event()

    def clock_of(self, world_s: float) -> float:
        """When, on trio's clock, the world is past `world_s`, however that is rounded."""
        return world_s - self._base_s + 1e-6

    def _live(self) -> None:
        if self.dead:
            raise Killed

    def _strike(self, fault: Fault, name: str) -> None:
        kind = fault.kind
        if kind in ERRORS:
            if name in AFFECTED[kind]:
                self.witness.strikes(fault, None)
                self._lasting = kind if kind in FOR_EVER else self._lasting
                raise _error(kind, name)
        elif kind in (Kind.KILL, Kind.POWER):
            self.witness.strikes(fault, None)
            self._die(with_machine=kind is Kind.POWER)
        elif kind in (Kind.INTERRUPT, Kind.INTERRUPT_TWICE):
            self.witness.strikes(fault, None)
            for _ in range(1 + (kind is Kind.INTERRUPT_TWICE)):
                self.interruption.interrupt()
        elif kind is Kind.LEAVE:
            self.witness.strikes(fault, None)
            self.interruption.leave()
        else:
            self.witness.strikes(fault, self._change_world(kind))

    def _die(self, *, with_machine: bool) -> None:
        self.dead = True
        if with_machine:
            self.world.reboot()
        else:
            self.world.end_command()
        raise Killed

    def _change_world(self, kind: Kind) -> Body | None:
        if kind is Kind.STRANGER:
            return self._take_port()
        if kind is Kind.FLOOR:
            return self._trip_floor()
        return self._kill_model(whole=kind is Kind.MODEL_DIES)

    def _refuse_lasting(self, name: str) -> None:
        if self._lasting is not None and name in AFFECTED[self._lasting]:
            raise _error(self._lasting, name)

    def _kill_model(self, *, whole: bool) -> Body | None:
        """The process of ours that started last dies, alone or with all that came from it."""
        leaders = [body for body in self.world.living() if body.model and body.leads]
        if not leaders:
            return None
        leader = max(leaders, key=lambda body: body.start)
        for body in list(self.world.living()):
            if body is leader or (whole and body.start == leader.start):
                self.world.end(body, "killed by SIGKILL")
        self.tick()
        return leader

    def _take_port(self) -> Body | None:
        """A stranger listens on a port of ours and says what the model there should say: on one
        that is free, else beside a server that shares its port."""
        markers = {model.port: model.marker for model in self.world.registry.models.values()}
        open_ports = [
            port
            for port in sorted(markers)
            if all(each.shares_port for each in self.world.listeners(port))
        ]
        if not open_ports:
            return None
        port = min(open_ports, key=lambda each: len(self.world.listeners(each)))
        return self.world.stranger(port=port, marker=markers[port])

    def _trip_floor(self) -> Body | None:
        for identity in reversed(self.newest_guarded):
            body = self.world.body_of(identity)
            if body is not None and body.alive and body.model is not None:
                self.floor_victims[body.model] = f"the memory floor has stopped {body.model!r}"
                for other in list(self.world.living()):
                    if other.group_inode == body.group_inode:
                        self.world.end(other, "killed by SIGKILL")
                self.tick()
                return body
        return None

    def for_client(self, pid: int | None) -> SimEffects:
        return self

    # time

    def now(self) -> float:
        return trio.current_time()

    def timestamp(self) -> str:
        return "2026-01-01T00:00:00Z"

    async def sleep(self, seconds: float) -> None:
        call = self.effect("sleep", f"{seconds:.3f}")
        await trio.sleep(seconds)
        self._live()
        self.done(call)

    # disk

    def try_lock(self, command: str) -> NodeLock | Holder:
        call = self.effect("try_lock", command)
        if self.world.locked_by is not None:
            return Holder(self.world.locked_by, "activate", 1.0)
        self.world.locked_by = self.own.pid
        self.holds_lock = True
        self.done(call)
        return _Lock(self)

    async def read(self, name: str) -> bytes | None:
        return await self._disk("read", name, lambda: self._read(name))

    def _read(self, name: str) -> bytes | None:
        if name == STATE_FILE:
            self.witness.reads_state()
        return self.world.disk.read(name)

    async def create(self, name: str, data: bytes) -> None:
        await self._disk("create", name, lambda: self.world.disk.create(name, data))

    async def fsync(self, name: str) -> None:
        await self._disk("fsync", name, lambda: self.world.disk.sync(name))

    async def rename(self, source: str, target: str) -> None:
        def work() -> None:
            before = self.world.disk.read(target)
            self.world.disk.rename(source, target)
            self.witness.writes(before, self.world.disk.read(target) or b"")

        await self._disk("rename", f"{source} {target}", work)

    async def fsync_folder(self) -> None:
        await self._disk("fsync_folder", "", self.world.disk.sync_folder)

    async def remove(self, name: str) -> None:
        await self._disk("remove", name, lambda: self.world.disk.remove(name))

    async def names(self) -> tuple[str, ...]:
        return await self._disk("names", "", lambda: tuple(sorted(self.world.disk.entries)))

    async def append_history(self, line: bytes) -> None:
        await self._disk(
            "append_history", "", lambda: self.world.disk.append("history.jsonl", line)
        )

    async def trim_log(self, model: str) -> None:
        await self._disk("trim_log", model, lambda: None)

    async def log_tail(self, model: str, lines: int) -> tuple[str, ...]:
        return await self._disk("log_tail", model, lambda: ("its last words",))

    async def _disk(self, name: str, detail: str, work: Callable[[], _T]) -> _T:
        """As in a thread: cancelled before it begins, or not at all."""
        self._live()
        await trio.lowlevel.checkpoint_if_cancelled()
        call = self.effect(name, detail)
        result = work()
        await trio.lowlevel.cancel_shielded_checkpoint()
        self._live()
        self.done(call)
        return result

    # processes

    def boot_id(self) -> str:
        return self.world.boot_id

    def age_s(self, start_ticks: int) -> float:
        return max(0.0, self.world.now_s - start_ticks / 100)

    def own_pids(self, table: Mapping[int, Process] | None = None) -> frozenset[int]:
        return frozenset({self.own.pid, SHELL_PID})

    def identify(self, pid: int) -> Identity | None:
        self.effect("identify", str(pid))
        body = self.world.bodies.get(pid)
        return None if body is None else self.world.identity(body)

    def process(self, pid: int) -> Process | None:
        self.effect("process", str(pid))
        body = self.world.bodies.get(pid)
        return None if body is None else body.row

    def processes(self) -> Mapping[int, Process]:
        self.effect("processes")
        return {body.pid: body.row for body in self.world.bodies.values()}

    def carriers(self, tokens: Collection[str]) -> Mapping[str, frozenset[int]]:
        self.effect("carriers")
        return {
            token: frozenset(b.pid for b in self.world.living() if b.token == token)
            for token in tokens
        }

    def scope_members(self, scopes: Collection[str]) -> Mapping[str, frozenset[int]]:
        self.effect("scope_members")
        return {
            scope: frozenset(b.pid for b in self.world.living() if b.scope == scope)
            for scope in scopes
        }

    def open_process(self, identity: Identity) -> ProcessHandle | None:
        self.effect("open_process", str(identity.pid))
        if identity.pid <= 1 or identity.pid in self.own_pids():
            raise ValueError(f"pid {identity.pid} is never a target")
        body = self.world.body_of(identity)
        return SimHandle(self, body) if body is not None and body.alive else None

    def keep(self, leader: ProcessHandle) -> None:
        """No effect on the world, and so nothing for a fault to strike."""
        body = self.world.body_of(leader.identity)
        if body is not None:
            self._kept.append(body)

    def left_behind(
        self, leaders: Collection[Identity], table: Mapping[int, Process]
    ) -> Mapping[Identity, frozenset[int]]:
        return {
            identity: frozenset(
                b.pid for b in self.world.living() if b.group_inode == body.group_inode
            )
            for identity in leaders
            for body in self._kept
            if identity.matches(self.world.identity(body))
        }

    def permitted(self, identity: Identity) -> bool:
        self.effect("permitted", str(identity.pid))
        return True

    def restarting_unit(self, pid: int) -> str | None:
        return None

    def new_token(self) -> str:
        self._tokens += 1
        return f"{self._tokens:06x}{self.own.inode:06x}{self.world.boot:020x}"

    def new_scope(self, model: str) -> str | None:
        return f"lumbridge-{model}-{self.new_token()}.scope" if self.world.scopes else None

    def unstartable(self, launch: Launch) -> tuple[str, ...]:
        return ()

    async def spawn(self, launch: Launch) -> SimGate:
        _, port, marker = launch.argv

        def work() -> Body:
            return self.world.spawn(launch.model, int(port), marker, launch.token, launch.scope)

        return SimGate(self, await self._disk("spawn", launch.model, work))

    async def run(self, argv: tuple[str, ...], launch: Launch, timeout_s: float) -> str | None:
        call = self.effect("run", " ".join(argv))
        await trio.sleep(min(0.05, timeout_s))
        self._live()
        self.done(call)
        return None

    # ports and memory

    def listeners(
        self, ports: Collection[int], among: Collection[int] | None = None
    ) -> tuple[Listener, ...]:
        self.effect("listeners", " ".join(map(str, sorted(ports))))
        found: list[Listener] = []
        for port in sorted(ports):
            sockets: dict[int, set[int]] = {}
            for body in self.world.listeners(port):
                # Processes of one start hold one socket, inherited.
                sockets.setdefault(body.start or -body.pid, set()).add(body.pid)
            for inode, pids in sockets.items():
                seen = pids if among is None else pids & set(among)
                who = "" if among is not None else f"pid {min(pids)}"
                found.append(Listener("127.0.0.1", port, inode, 0, frozenset(seen), who))
        return tuple(found)

    async def ask(self, request: Request) -> Answer:
        call = self.effect("ask", f"{request.port}{request.path}")
        await trio.sleep(ASK_S)
        self._live()
        self.tick()
        body = self._who_accepts(request.port)
        silent = body is not None and not _speaks(body)
        if silent:
            await trio.sleep(request.timeout_s)
            self._live()
            self.tick()
        answer = Answer(Outcome.SILENT) if silent else _answer(request, body)
        self.witness.hears(request, body, answer)
        self.done(call)
        return answer

    def _who_accepts(self, port: int) -> Body | None:
        """Of several sockets on one port the kernel picks one: here the newest, the nastiest.  Of
        the processes that hold it the first one answers, while it lives."""
        holders = self.world.listeners(port)
        newest = max((each.start or each.inode for each in holders), default=0)
        held = [each for each in holders if (each.start or each.inode) == newest]
        return min(held, key=lambda each: each.inode) if held else None

    def memory(self) -> Memory | None:
        self.effect("memory")
        return self.world.memory()


class SimHandle:
    """One process of the world, held."""

    def __init__(self, effects: SimEffects, body: Body) -> None:
        self._effects = effects
        self._body = body
        self._closed = False

    @property
    def identity(self) -> Identity:
        return self._effects.world.identity(self._body)

    def fileno(self) -> int:
        return -1

    def signal(self, number: int) -> bool:
        call = self._effects.effect("signal", f"{self._body.pid} {number}")
        if not self._body.alive:
            return False
        self._send(number, [self._body])
        self._effects.done(call)
        return True

    def signal_group(self, number: int) -> bool:
        call = self._effects.effect("signal_group", f"{self._body.pid} {number}")
        members = [
            body
            for body in self._effects.world.living()
            if body.group_inode == self._body.group_inode
        ]
        self._send(number, members)
        self._effects.done(call)
        return bool(members)

    def _send(self, number: int, reached: list[Body]) -> None:
        if number:
            self._effects.witness.signals(self._body, number, reached)
        for body in reached:
            self._effects.world.signal(body, number)
        self._effects.tick()

    async def wait(self) -> None:
        effects = self._effects
        call = effects.effect("wait", str(self._body.pid))
        effects.witness.waits(self._body)
        while self._body.alive:
            with trio.move_on_at(effects.clock_of(effects.world.next_event_s())):
                await effects.changed.wait()
            effects._live()
            effects.tick()
        await trio.lowlevel.checkpoint()
        effects._live()
        effects.done(call)

    def exit_cause(self) -> str | None:
        if self._effects.dead or self._body.alive:
            return None
        self._effects.world.reap(self._body)
        return self._body.cause

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.exit_cause()


class SimGate:
    """A child at its gate."""

    def __init__(self, effects: SimEffects, body: Body) -> None:
        self.handle = SimHandle(effects, body)
        self._effects = effects
        self._body = body
        self._open = True

    def release(self) -> None:
        call = self._effects.effect("release", f"{self._body.name} {self._body.pid}")
        self._open = False
        if not self._body.alive:
            raise BrokenPipeError(32, "Broken pipe")
        self._effects.witness.starts(self._body)
        self._effects.world.release(self._body)
        self._effects.tick()
        self._effects.done(call)

    def abandon(self) -> None:
        if self._open and not self._effects.dead:
            self._effects.effect("abandon", self._body.name)
            self._open = False
            if self._body.phase is Phase.GATED:
                self._effects.world.end(self._body, "exit code 1")
            self.handle.close()


class _Lock:
    def __init__(self, effects: SimEffects) -> None:
        self._effects = effects

    def release(self) -> None:
        if not self._effects.dead:
            self._effects.effect("unlock")
            self._effects.holds_lock = False
            self._effects.world.locked_by = None


class SimSurroundings:
    """The gateways and the floor of an agent: told of everything, they add their own effects."""

    def __init__(self, effects: SimEffects) -> None:
        self._effects = effects

    async def hold(self, ports: Collection[int]) -> None:
        await self._pass("hold")

    def clients(self, ports: Collection[int]) -> int:
        return 0

    async def drain(self, ports: Collection[int]) -> None:
        await self._pass("drain")

    def release(self) -> None:
        pass

    async def guard(self, model: str, handle: ProcessHandle) -> None:
        self._effects.newest_guarded.append(handle.identity)
        await self._pass("guard")

    async def unguard(self, model: str) -> None:
        await self._pass("unguard")

    def stopped_by_floor(self) -> Mapping[str, str]:
        return self._effects.floor_victims

    def floor_latch(self, model: str) -> FloorLatch | None:
        if model not in self._effects.floor_victims:
            return None
        return FloorLatch(None, self._effects.boot_id(), self._effects.timestamp(), {})

    async def _pass(self, name: str) -> None:
        call = self._effects.effect(name)
        await trio.lowlevel.checkpoint()
        self._effects._live()
        self._effects.done(call)


def _speaks(body: Body) -> bool:
    """False for a server that accepts and says nothing, and for an engine without its leader."""
    return body.program is None or (body.leads and not body.program.silent)


def _answer(request: Request, body: Body | None) -> Answer:
    if body is None:
        return Answer(Outcome.REFUSED)
    if not body.serves:
        return Answer(Outcome.ANSWERED, 503)
    marker = body.marker
    if body.program is not None and body.program.marker is not None:
        marker = body.program.marker
    return Answer(Outcome.ANSWERED, 200, json.dumps({"data": [{"id": marker}]}).encode())


def _error(kind: Kind, name: str) -> OSError | Unreadable | Refused:
    number = ERRORS[kind]
    error = OSError(number, os.strerror(number))
    if name == "read":
        return Unreadable(STATE_FILE, FileFault.BROKEN, error.strerror)
    if name == "try_lock":
        return Refused(f"cannot lock 'lock': {error.strerror}", "mend the disk")
    return error


def _implements(effects: SimEffects) -> Effects:
    """Lets the type checker compare the class with the seam."""
    return effects
