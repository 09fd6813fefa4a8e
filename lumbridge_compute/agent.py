"""The resident agent: one nursery tree, each child with one job.

    agent
    ├── service manager    READY=1, STATUS=..., WATCHDOG=1
    ├── control            HTTP on the unix socket
    ├── gateways           listeners, relays
    ├── memory watchdog    the floor
    ├── process watch      a pidfd for each owned model
    ├── log keeper         the models' logs within their bounds
    ├── lock watch         leaves when its folder was taken away
    ├── transactions       one at a time, each in its own cancel scope
    ├── resume-once        one resume, then done
    └── signals            leave, models untouched · read the registry again

Children are started from the outside in: what serves is there before what uses it.  One that fails
takes the agent down; models are untouched either way.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import trio

from lumbridge_compute.control.server import serve_control
from lumbridge_compute.core.registry import Registry
from lumbridge_compute.errors import Refused
from lumbridge_compute.gateway.driver import Gateways
from lumbridge_compute.gateway.listeners import open_listeners
from lumbridge_compute.host_effects import HostEffects
from lumbridge_compute.observe import Site
from lumbridge_compute.orders import Node
from lumbridge_compute.resident.around import Around
from lumbridge_compute.resident.declared import Declared, Doors, Overrides
from lumbridge_compute.resident.floor_watch import FloorWatch
from lumbridge_compute.resident.lock_watch import watch_lock
from lumbridge_compute.resident.log_keeper import keep_logs
from lumbridge_compute.resident.news import News
from lumbridge_compute.resident.process_watch import ProcessWatch
from lumbridge_compute.resident.resume_once import resume_once
from lumbridge_compute.resident.service import ServiceManager
from lumbridge_compute.resident.signals import watch_signals
from lumbridge_compute.resident.transactions import Transactions
from lumbridge_compute.resident.view import Resident

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


async def run_agent(settings: AgentSettings) -> None:
    """Serve until SIGTERM or SIGINT.  The caller holds the agent's lock.

    `handed_over` are descriptors that an earlier agent left with the service manager; they belong
    to this call.  Raises BadInput or Refused before anything is served.
    """
    declared = Declared(settings.read_registry, settings.overrides)
    handed_over = [socket.socket(fileno=descriptor) for descriptor in settings.handed_over]
    doors = Doors(open_listeners(declared.gateways, handed_over))
    try:
        await _serve(settings, declared, doors)
    finally:
        doors.close()


async def _serve(settings: AgentSettings, declared: Declared, doors: Doors) -> None:
    effects = HostEffects(settings.root)
    site = Site(settings.root, settings.environ)
    gateways = Gateways(doors.listeners)
    gateways.expect()
    floor = FloorWatch(effects, declared.floor_bytes)
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
    resident = Resident(settings.root, declared, gateways, floor, transactions, news)
    service = ServiceManager(resident.line)

    async def leave() -> None:
        service.stopping()
        gateways.serve(())
        await transactions.leave()
        agent.cancel_scope.cancel()

    async def reload() -> None:
        # Before systemd hears of it: systemd gives a reload less time than a transaction may take.
        while transactions.running.value is not None:  # the next one may begin before we wake
            await transactions.running.wait_value(None)
        service.reloading()
        reload_registry(resident, doors, service)
        service.ready()

    async with trio.open_nursery() as agent:
        await agent.start(watch_signals, leave, reload)
        agent.start_soon(gateways.run)
        await agent.start(floor.run)
        agent.start_soon(transactions.run)
        agent.start_soon(watch.run)
        agent.start_soon(keep_logs, effects)
        agent.start_soon(watch_lock, settings.holds_lock, transactions)
        await agent.start(serve_control, resident)
        service.keep(doors.listeners)
        service.ready()
        agent.start_soon(service.run)
        agent.start_soon(resume_once, transactions, gateways)


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
