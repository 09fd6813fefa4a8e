"""The resident agent: one nursery tree, each child with one job.

    agent
    ├── signals            leave, models untouched · read the registry again
    ├── service manager    READY=1, STATUS=..., WATCHDOG=1
    ├── gateways           listeners, relays
    ├── memory watchdog    the floor
    ├── log keeper         the models' logs within their bounds
    ├── lock watch         leaves when its folder was taken away
    ├── transactions       one at a time, each in its own cancel scope
    ├── process watch      a pidfd for each owned model
    ├── control            HTTP on the unix socket
    └── resume-once        one resume, then done

Each is nested in those above it: what serves is there before what uses it, and is there until
that has ended.  One that fails takes the agent down; models are untouched either way.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import trio

from lumbridge_compute.control.server import serve_control
from lumbridge_compute.core.registry import Registry
from lumbridge_compute.core.site import Site
from lumbridge_compute.effects import Effects
from lumbridge_compute.errors import Refused
from lumbridge_compute.gateway.driver import Gateways
from lumbridge_compute.gateway.listeners import open_listeners
from lumbridge_compute.host_effects import HostEffects
from lumbridge_compute.orders import Node
from lumbridge_compute.resident.around import Around
from lumbridge_compute.resident.child import child
from lumbridge_compute.resident.declared import Declared, Doors, Overrides
from lumbridge_compute.resident.floor_watch import FloorWatch, OpenGuard
from lumbridge_compute.resident.lock_watch import watch_lock
from lumbridge_compute.resident.log_keeper import keep_logs
from lumbridge_compute.resident.news import News
from lumbridge_compute.resident.process_watch import ProcessWatch
from lumbridge_compute.resident.resume_once import resume_once
from lumbridge_compute.resident.service import ServiceManager
from lumbridge_compute.resident.signals import watch_signals
from lumbridge_compute.resident.transactions import Transactions
from lumbridge_compute.resident.view import Resident
from lumbridge_compute.watchdog.supervisor import open_guard

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """How an agent is started: the node's root, absolute, and what overrides its registry.

    `holds_lock` says whether the agent's lock still keeps others out.
    """

    root: str
    environ: Mapping[str, str]
    read_registry: Callable[[], Registry]
    overrides: Overrides
    holds_lock: Callable[[], bool]
    handed_over: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Outside:
    """How the agent reaches the machine; as it stands, the real one.

    `open_effects` is given the root, inside trio.
    """

    open_effects: Callable[[str], Effects] = HostEffects
    open_guard: OpenGuard = open_guard


async def run_agent(settings: AgentSettings, outside: Outside | None = None) -> None:
    """Serve until SIGTERM or SIGINT.  The caller holds the agent's lock.

    `handed_over` are descriptors that an earlier agent left with the service manager; they belong
    to this call.  Raises BadInput or Refused before anything is served.
    """
    declared = Declared(settings.read_registry, settings.overrides)
    handed_over = [socket.socket(fileno=descriptor) for descriptor in settings.handed_over]
    doors = Doors(open_listeners(declared.gateways, handed_over))
    try:
        await _serve(settings, outside or Outside(), declared, doors)
    finally:
        doors.close()


async def _serve(
    settings: AgentSettings, outside: Outside, declared: Declared, doors: Doors
) -> None:
    effects = outside.open_effects(settings.root)
    site = Site(settings.root, settings.environ)
    gateways = Gateways(doors.listeners)
    gateways.expect()
    floor = FloorWatch(effects, declared.floor_bytes, outside.open_guard)
    news = News()
    node = Node(
        effects,
        site,
        settings.read_registry,
        news.tell,
        settings.overrides.floor_bytes,
        Around(gateways, floor),
    )
    transactions = Transactions(node, news)
    watch = ProcessWatch(effects, declared.registry, transactions, floor)
    resident = Resident(
        site, settings.read_registry, effects, declared, gateways, floor, transactions, news
    )
    service = ServiceManager(resident.line)

    left = trio.Event()

    async def leave() -> None:
        service.stopping()
        gateways.serve(())
        await transactions.leave()
        left.set()

    async def reload() -> None:
        # Before systemd hears of it: systemd gives a reload less time than a transaction may take.
        while transactions.running.value is not None:  # the next one may begin before we wake
            await transactions.running.wait_value(None)
        service.reloading()
        reload_registry(resident, doors, service)
        service.ready()

    async with (
        child(watch_signals, leave, reload, ready=True),
        child(service.run),
        child(gateways.run),
        child(floor.run, ready=True),
        child(keep_logs, effects),
        child(watch_lock, settings.holds_lock, transactions),
        child(transactions.run),
        child(watch.run),
        child(serve_control, resident, ready=True),
    ):
        service.keep(doors.listeners)
        service.ready()
        async with child(resume_once, transactions, gateways):
            await left.wait()


def reload_registry(resident: Resident, doors: Doors, service: ServiceManager) -> None:
    """Take compute.yaml as it is now.  Not while a transaction is under way, which has read its own
    and holds gateways."""
    declared = resident.declared
    before = doors.listeners
    if not declared.read_again():
        return
    resident.floor.floor_bytes.value = declared.floor_bytes
    try:
        doors.change(declared.gateways, resident.gateways)
    except Refused as error:
        declared.fault = error
        _log.error("the gateways stay as they were cause=%r", str(error))
    if doors.listeners != before:
        service.keep(doors.listeners)
