"""Restart the agent's service, and prove that nothing but the agent has changed."""

from __future__ import annotations

import errno
from collections import Counter
from dataclasses import dataclass, field
from subprocess import STDOUT

import trio

from lumbridge_compute import __version__
from lumbridge_compute.cli.node import read_agent, read_status
from lumbridge_compute.core.registry import Address
from lumbridge_compute.core.units import render_seconds
from lumbridge_compute.release.environment import environment_of_agent
from lumbridge_compute.release.snapshot import Snapshot, differences, is_equal, unsettled
from lumbridge_compute.store.registry_addresses import parse_address

START_S = 100.0
"""How long `systemctl restart` may take: what the unit allows a stop and a start, and more."""

SETTLE_S = 180.0
"""How long from READY to the end of the resume and a node as before; a model at work may be silent
for long."""

_LOOK_EVERY_S = 0.2
_KNOCK_EVERY_S = 0.02
_KNOCK_S = 1.0
_ANY_HOST = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - to knock at, not to listen on


@dataclass(frozen=True, slots=True)
class Proof:
    """What was proved, a sentence each, and the first thing that was not."""

    proved: tuple[str, ...]
    fault: str | None = None


@dataclass(slots=True)
class Knocks:
    """New connections to each gateway while the agent changes, and what became of them."""

    made: Counter[Address] = field(default_factory=Counter)
    refused: Counter[Address] = field(default_factory=Counter)

    async def go_on(self, gateway: Address) -> None:
        """Knock at `gateway` until cancelled."""
        while True:
            await self._knock(gateway)
            await trio.sleep(_KNOCK_EVERY_S)

    async def _knock(self, gateway: Address) -> None:
        host = _ANY_HOST.get(gateway.host, gateway.host)
        family = trio.socket.AF_INET6 if ":" in host else trio.socket.AF_INET
        with trio.socket.socket(family) as sock, trio.move_on_after(_KNOCK_S):
            self.made[gateway] += 1
            try:
                await sock.connect((host, gateway.port))
            except OSError as error:
                # Any other failure is the path's or this process's own, not the gateway's.
                self.refused[gateway] += error.errno == errno.ECONNREFUSED


async def restart_and_prove(root: str, unit: str, before: Snapshot) -> Proof:
    """Restart `unit` and compare with `before`: this release must be the one that then runs."""
    knocks, fault = Knocks(), None
    async with trio.open_nursery() as nursery:
        for gateway in before.gateways:
            nursery.start_soon(knocks.go_on, parse_address(gateway))
        fault = await _restart(unit) or await _settled(root, before)
        nursery.cancel_scope.cancel()
    if fault is not None:
        return Proof((), fault)
    return await trio.to_thread.run_sync(_prove, root, before, knocks)


async def _restart(unit: str) -> str | None:
    restart = ["systemctl", "restart", unit]
    with trio.move_on_after(START_S):
        ended = await trio.run_process(restart, capture_stdout=True, stderr=STDOUT, check=False)
        if ended.returncode == 0:
            return None
        said = ended.stdout.decode(errors="replace").strip().splitlines()[:1]
        return f"the agent did not start: {' '.join(said) or ended.returncode}"
    return f"the agent did not start within {render_seconds(START_S)}"


async def _settled(root: str, before: Snapshot) -> str | None:
    """None once the new agent has resumed and the node is as `before`; else what it lacks."""
    lacks: str | None = None
    with trio.move_on_after(SETTLE_S):
        while True:
            final, lacks = await trio.to_thread.run_sync(_look, root, before)
            if final or lacks is None:
                return lacks
            await trio.sleep(_LOOK_EVERY_S)
    return f"{lacks}, {render_seconds(SETTLE_S)} after its start"


def _look(root: str, before: Snapshot) -> tuple[bool, str | None]:
    """What the node lacks, and whether waiting is in vain."""
    agent = read_agent(root)
    if agent.told is None:
        return False, "the agent does not answer"
    if agent.version != __version__:
        return True, f"the agent that runs is {agent.version}, not {__version__}"
    if not agent.told["resumed"] or agent.told["transaction"] is not None:
        return False, "the agent's resume has not ended"
    status = read_status(root, environment_of_agent(root))
    changed = list(differences(before, status))
    if changed:
        return True, f"other processes than before: {'; '.join(changed)}"
    return False, unsettled(before, status)


def _prove(root: str, before: Snapshot, knocks: Knocks) -> Proof:
    proved = [f"the agent is {__version__}, ready, and its resume has ended"]
    pids = ", ".join(f"{name} (pid {each[1]})" for name, each in before.models.items())
    proved.append(f"the same processes as before: {pids or 'none'}")
    if before.active_scene is not None:
        proved.append(f"Scene {before.active_scene!r} is active, every model exactly healthy")
    environ = environment_of_agent(root)
    for gateway in before.equal:
        if not is_equal(root, environ, gateway):
            return Proof(tuple(proved), f"gateway {gateway} and the model behind it do not agree")
        proved.append(f"gateway {gateway} names the same models as the one behind it")
    for address, count in knocks.made.items():
        if refused := knocks.refused[address]:
            return Proof(tuple(proved), f"gateway {address} refused {refused} of {count}")
        proved.append(f"gateway {address} refused none of {count} new connections meanwhile")
    return Proof(tuple(proved))
