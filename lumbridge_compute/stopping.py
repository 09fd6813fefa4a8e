"""Stop one model for certain: signal only what is proved ours, wait for everything that counts."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping

import trio

from lumbridge_compute.claims import claim_of
from lumbridge_compute.core.identity import Claim, Identity, Ownership, Process
from lumbridge_compute.core.launch import UnsetVariable, expanded_stop_command, launch_of
from lumbridge_compute.core.plan import Stop
from lumbridge_compute.core.registry import PortOwner
from lumbridge_compute.core.site import Site
from lumbridge_compute.core.world import Listener
from lumbridge_compute.effects import Effects, ProcessHandle

_FIRST_POLL_S = 0.002
_SLOWEST_POLL_S = 0.1
_KILL_ROUNDS = 20
_KILL_ROUND_S = 0.5
_PORT_AFTER_DEATH_S = 0.25


class StopFailed(Exception):
    """Something outlived SIGKILL, can't be proved ours, or still serves where anybody may."""


class Stopper:
    """Stops what `step` names.  Handles stay open from the first signal until `close`, so that
    what was proved ours while the leader lived can still be signalled after its death.

    `note` tells of a stranger that holds the port once nothing of ours is left.
    """

    def __init__(self, effects: Effects, site: Site, step: Stop) -> None:
        self.model = step.model
        self.asked = False
        self.finished = False
        self.failed = False
        self.note: str | None = None
        self._effects = effects
        self._site = site
        self._record = step.record
        self._leader: ProcessHandle | None = None
        self._others: dict[int, ProcessHandle] = {}
        self._died_at: float | None = None

    @property
    def identity(self) -> Identity:
        return self._record.identity

    @property
    def has_command(self) -> bool:
        return bool(self._record.definition.stop.command)

    async def run_command(self) -> str | None:
        """Run `stop_command`, bounded by the grace; its failure is a note, not a verdict."""
        definition = self._record.definition
        try:
            argv = expanded_stop_command(definition, self._site.root, self._site.environ)
            launch = launch_of(definition, self._site.root, self._site.environ)
        except UnsetVariable as error:
            return str(error)
        return await self._effects.run(argv, launch, definition.stop.grace_s)

    def ask_to_end(self) -> None:
        """Send the model's stop signal to everything proved ours."""
        self.asked = True
        self._signal(signal.Signals[self._record.definition.stop.signal])

    async def finish(self) -> None:
        """Wait until the model is stopped: repeat the signal once within the grace, then SIGKILL.

        Raises StopFailed with what is left.  Cancellation leaves the model signalled.
        """
        half = self._record.definition.stop.grace_s / 2
        if not await self._gone_within(half):
            self.ask_to_end()
            if not await self._gone_within(half):
                await self._kill()
        self.finished = True

    def close(self) -> None:
        for handle in (self._leader, *self._others.values()):
            if handle is not None:
                handle.close()
        self._leader, self._others = None, {}

    async def _kill(self) -> None:
        for _ in range(_KILL_ROUNDS):
            self._signal(signal.SIGKILL)
            if await self._gone_within(_KILL_ROUND_S):
                return
            if not self._processes_left():
                break  # there is nothing to kill any more: only the port is still held
        raise StopFailed(self._what_is_left())

    def _signal(self, number: int) -> None:
        claim, _, table = claim_of(self._effects, self._record)
        if self._leader is None and claim.ownership is Ownership.OWNED:
            self._leader = self._effects.open_process(self._record.identity)
        self._hold_others(claim, table)
        if self._leader is not None:
            self._leader.signal_group(number)
        for handle in self._others.values():
            handle.signal(number)

    def _hold_others(self, claim: Claim, table: Mapping[int, Process]) -> None:
        """Open what the group signal does not reach.  A pid may be reused between the scan and the
        opening, so a handle counts only when its pid is proved ours once more while it is held."""
        fresh: dict[int, ProcessHandle] = {}
        for pid in claim.members - set(self._others):
            row = table.get(pid)
            if row is None or (self._leader is not None and row.group == self._leader.identity.pid):
                continue
            identity = Identity(self._record.identity.boot_id, pid, row.start_ticks)
            if (handle := self._effects.open_process(identity)) is not None:
                fresh[pid] = handle
        proved = claim_of(self._effects, self._record)[0].members if fresh else frozenset()
        for pid, handle in fresh.items():
            if pid in proved:
                self._others[pid] = handle
            else:
                handle.close()

    async def _gone_within(self, seconds: float) -> bool:
        with trio.move_on_after(seconds):
            if self._leader is not None:
                await self._leader.wait()
            poll_s = _FIRST_POLL_S
            while not self._stopped():
                await self._effects.sleep(poll_s)
                poll_s = min(poll_s * 1.5, _SLOWEST_POLL_S)
            return True
        return False

    def _stopped(self) -> bool:
        if self._processes_left():
            return False
        definition = self._record.definition
        listeners = self._effects.listeners({definition.port})
        if not listeners:
            return True
        if definition.port_owner is PortOwner.ANY:
            return False
        # The kernel may close a socket a little after its last process.  What then still listens
        # is a stranger: it is not waited for, and blocks whatever needs the port.
        self._died_at = self._effects.now() if self._died_at is None else self._died_at
        if self._effects.now() - self._died_at <= _PORT_AFTER_DEATH_S:
            return False
        self.note = f"port {definition.port} is held by {_who(listeners)}: not ours, not touched"
        return True

    def _processes_left(self) -> frozenset[int]:
        held = {pid for pid, handle in self._others.items() if handle.signal(0)}
        claim, _, table = claim_of(self._effects, self._record)
        alive = frozenset(pid for pid in held if pid in table and table[pid].alive)
        return claim.members | claim.strays | alive

    def _what_is_left(self) -> str:
        left = self._processes_left()
        if left:
            pids = ", ".join(str(pid) for pid in sorted(left))
            return f"cannot stop {self.model!r}: still alive after SIGKILL: pid {pids}"
        port = self._record.definition.port
        who = _who(self._effects.listeners({port}))
        return f"cannot stop {self.model!r}: port {port} is still held by {who}"


def _who(listeners: Iterable[Listener]) -> str:
    return ", ".join(listener.who or "?" for listener in listeners) or "a stranger"
