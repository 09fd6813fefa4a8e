"""What the agent tells about itself: for `status`, for the service manager."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

import trio

from lumbridge_compute import __version__
from lumbridge_compute.core.documents import AgentDocument, StatusDocument
from lumbridge_compute.core.registry import Registry
from lumbridge_compute.core.report import AgentView
from lumbridge_compute.core.report_status import status_document
from lumbridge_compute.core.site import Site
from lumbridge_compute.core.units import render_bytes, render_seconds
from lumbridge_compute.effects import Effects
from lumbridge_compute.gateway.driver import Gateways
from lumbridge_compute.looking import Look
from lumbridge_compute.resident.declared import Declared
from lumbridge_compute.resident.floor_watch import FloorWatch
from lumbridge_compute.resident.news import News
from lumbridge_compute.resident.transactions import Transactions


@dataclass(frozen=True, slots=True)
class Resident:
    """The parts of a running agent that its control socket reaches."""

    site: Site
    read_registry: Callable[[], Registry]
    effects: Effects
    declared: Declared
    gateways: Gateways
    floor: FloorWatch
    transactions: Transactions
    news: News

    def document(self) -> AgentDocument:
        """The agent as plain values."""
        running = self.transactions.running.value
        return {
            "pid": os.getpid(),
            "version": __version__,
            "registry_fault": self.declared.fault.message if self.declared.fault else None,
            "resumed": self.transactions.finished.value > 0,
            "transaction": None
            if running is None
            else {
                "command": running.order.command.value,
                "name": running.order.name,
                "client_pid": running.client_pid,
                "age_s": round(trio.current_time() - running.since_s, 3),
            },
            "waiting": self.transactions.waiting,
            "floor": {
                "bytes": self.declared.floor_bytes or None,
                "sampler_pid": self.floor.status.sampler_pid,
                "cause": self.floor.status.cause,
                "blind": self.floor.status.blind,
            },
            "gateways": list(self.gateways.status()),
        }

    async def status(self) -> StatusDocument:
        """The node as `status --json` shows it.  Raises OSError where we can't look."""
        look = Look(self.site, self.read_registry, self.effects)
        while look.again():
            if look.pending:
                await look.ask()
        agent = AgentView(running=True, pid=os.getpid(), version=__version__, told=self.document())
        return status_document(look.status(agent))

    def line(self) -> str:
        """One line for a person: what goes on."""
        running = self.transactions.running.value
        doing = "at rest"
        if running is not None:
            doing = f"{running}, for {render_seconds(trio.current_time() - running.since_s)}"
        notes = [doing]
        if self.declared.fault is not None:
            notes.append("compute.yaml is refused, the old one is in force")
        if self.floor.status.blind is not None:
            notes.append(f"BLIND to memory: {self.floor.status.blind}")
        elif self.declared.floor_bytes:
            notes.append(f"floor {render_bytes(self.declared.floor_bytes)}")
        return "; ".join(notes)
