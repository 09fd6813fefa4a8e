"""`check` and `schema`: is compute.yaml right, and what may be in it."""

from __future__ import annotations

import os
from collections.abc import Iterable

from lumbridge_compute.cli.call import REGISTRY_FILE, Call
from lumbridge_compute.cli.guard import check_owner
from lumbridge_compute.core.launch import UnsetVariable, launch_of
from lumbridge_compute.core.registry import Model, Registry
from lumbridge_compute.core.units import render_bytes
from lumbridge_compute.core.world import Memory
from lumbridge_compute.errors import Exit, Refused
from lumbridge_compute.host.files import read_bounded
from lumbridge_compute.host_effects import HostEffects
from lumbridge_compute.store.registry_file import parse_registry, read_registry, render_fault
from lumbridge_compute.store.yaml_nodes import MAX_BYTES
from lumbridge_compute.store.yaml_values import Fault


def run_check(call: Call) -> int:
    """Every fault and warning; 2 where there is a fault, 0 with warnings alone.

    Raises BadInput where the file can't be read at all.
    """
    root = call.root()
    path = os.path.join(root, REGISTRY_FILE)
    registry, faults = _read(path)
    warnings = list(_warnings(call, root, registry)) if registry is not None else []
    code = Exit.DONE if registry is not None else Exit.BAD_INPUT
    if call.json:
        document = {"ok": code is Exit.DONE, "exit": int(code), "file": path}
        listed = {"faults": [fault._asdict() for fault in faults], "warnings": warnings}
        call.print_document(document | listed)
    else:
        call.out.write_lines(render_fault(path, fault) for fault in faults)
        call.out.write_lines(f"warning: {warning}" for warning in warnings)
        call.out.write_lines([f"{path}: {_summary(registry, faults, warnings)}"])
    return code


def run_schema(call: Call) -> int:
    """The JSON Schema of compute.yaml; it needs no node."""
    from lumbridge_compute.store.registry_schema import schema

    call.print_document(schema())
    return Exit.DONE


def _read(path: str) -> tuple[Registry | None, tuple[Fault, ...]]:
    data = read_bounded(path, 2 * MAX_BYTES)
    if data is None:
        return read_registry(path), ()
    return parse_registry(data)


def _summary(registry: Registry | None, faults: tuple[Fault, ...], warnings: list[str]) -> str:
    if registry is None:
        return _count(len(faults), "fault")
    declared = f"{_count(len(registry.models), 'model')}, {_count(len(registry.scenes), 'Scene')}"
    said = f", {_count(len(warnings), 'warning')}" if warnings else ""
    return f"no faults{said} ({declared})"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _warnings(call: Call, root: str, registry: Registry) -> Iterable[str]:
    effects = HostEffects(root)
    for model in registry.models.values():
        try:
            reasons = effects.unstartable(launch_of(model, root, call.environ))
        except UnsetVariable as error:
            yield str(error)
            continue
        yield from (f"cannot start {model.name!r}: {reason}" for reason in reasons)
    memory = effects.memory()
    if memory is not None:
        yield from _memory_warnings(registry, memory)
    try:
        check_owner(root, "check")
    except Refused as error:
        yield f"{error.message} (hint: {error.hint})"


def _memory_warnings(registry: Registry, memory: Memory) -> Iterable[str]:
    floor = registry.memory_floor_bytes or 0
    total, available = memory.total_bytes, memory.available_bytes
    if floor >= total:
        yield (
            f"the memory floor of {render_bytes(floor)} is not below the machine's memory, "
            f"{render_bytes(total)}"
        )
    elif floor > available:
        yield (
            f"the memory floor of {render_bytes(floor)} is above what is available now, "
            f"{render_bytes(available)}"
        )
    for scene in registry.scenes.values():
        needs = _declared(registry.models_of(scene.name))
        if needs and needs + floor > total:
            above = f" above a floor of {render_bytes(floor)}" if floor else ""
            yield (
                f"Scene {scene.name!r} needs {render_bytes(needs)}{above}, the machine has "
                f"{render_bytes(total)}"
            )


def _declared(models: Iterable[Model]) -> int:
    return sum(model.memory_bytes or 0 for model in models)
