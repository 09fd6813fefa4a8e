"""Headers whose values are written out in compute.yaml: never stored (DESIGN section 4, headers).

A value that comes from the environment is stored unexpanded and is no secret.  Every other one is
left out of the records, and taken from today's registry where a record's definition is used.
"""

from __future__ import annotations

from lumbridge_compute.core.placeholders import placeholders
from lumbridge_compute.core.registry import Model, Registry
from lumbridge_compute.core.state import Bound, NodeState
from lumbridge_compute.core.values import replace


def without_literals(state: NodeState) -> NodeState:
    """`state` as it may be stored."""
    processes = {
        name: replace(record, definition=_stripped(record.definition))
        if isinstance(record, Bound) and record.definition.health.headers
        else record
        for name, record in state.processes.items()
    }
    return replace(state, processes=processes)


def with_literals(state: NodeState, registry: Registry) -> NodeState:
    """`state` with what was left out, as far as `registry` still declares it."""
    processes = {
        name: replace(record, definition=completed(record.definition, registry.models.get(name)))
        if isinstance(record, Bound)
        else record
        for name, record in state.processes.items()
    }
    return replace(state, processes=processes)


def completed(definition: Model, declared: Model | None) -> Model:
    """`definition`, with the written-out headers of `declared` that it has none of."""
    if declared is None:
        return definition
    had = {name.lower() for name, _ in definition.health.headers}
    added = tuple(
        (name, value)
        for name, value in declared.health.headers
        if name.lower() not in had and _literal(value)
    )
    return _with_headers(definition, definition.health.headers + added) if added else definition


def _stripped(definition: Model) -> Model:
    headers = definition.health.headers
    kept = tuple((name, value) for name, value in headers if not _literal(value))
    return _with_headers(definition, kept) if kept != headers else definition


def _with_headers(definition: Model, headers: tuple[tuple[str, str], ...]) -> Model:
    return replace(definition, health=replace(definition.health, headers=headers))


def _literal(value: str) -> bool:
    return not any(name.startswith("env:") for name in placeholders(value))
