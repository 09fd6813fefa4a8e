"""Can this release take over a node?  Looked at before anything is switched to it."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Mapping

import trio

import lumbridge_compute
from lumbridge_compute.cli.node import registry_of
from lumbridge_compute.core.events import Outcome
from lumbridge_compute.core.plan import Plan
from lumbridge_compute.core.report_outcome import render_failure
from lumbridge_compute.core.site import Site
from lumbridge_compute.host_effects import HostEffects
from lumbridge_compute.interruption import Interruption
from lumbridge_compute.orders import Command, Node, Order, run_order


def import_everything() -> tuple[int, list[str]]:
    """How many modules this release has, and what is wrong with those that can't be imported."""
    names = [
        each.name
        for each in pkgutil.walk_packages(lumbridge_compute.__path__, "lumbridge_compute.")
        if not each.name.endswith("__main__")
    ]
    return len(names), [fault for name in names if (fault := _fault_of(name)) is not None]


def _fault_of(name: str) -> str | None:
    try:
        importlib.import_module(name)
    except BaseException as error:  # noqa: BLE001 - whatever a broken module does, it is broken
        return f"cannot import {name}: {type(error).__name__}: {error}"
    return None


def check_node(root: str, environ: Mapping[str, str], *, unchanged: bool) -> list[str]:
    """What this release has against the node: its registry, its state, what its resume would do.

    With `unchanged` a resume that would start or stop a model is a fault.  Changes nothing, and
    asks no resident agent: it is this code that is tried.
    """
    outcome = trio.run(_dry_run, root, environ)
    if not outcome.ok:
        return [line.removeprefix("error: ") for line in render_failure(outcome)]
    return list(_changes(outcome)) if unchanged else []


async def _dry_run(root: str, environ: Mapping[str, str]) -> Outcome:
    node = Node(HostEffects(root), Site(root, environ), lambda: registry_of(root), lambda _: None)
    order = Order(Command.RESUME, dry_run=True, by_agent=True)
    return await run_order(node, order, Interruption())


def _changes(outcome: Outcome) -> Iterable[str]:
    plan = outcome.plan
    if not isinstance(plan, Plan):
        return
    for stop in plan.stop:
        verb = "restart" if stop.model in plan.restarted else "stop"
        yield f"its resume would {verb} {stop.model!r} (pid {stop.record.identity.pid})"
    for start in plan.start:
        if start.model not in plan.restarted:
            yield f"its resume would start {start.model!r}"
