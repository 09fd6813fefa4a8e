"""A short name for a definition, equal exactly where the definitions are."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import MISSING, Field, fields, is_dataclass, replace
from typing import Any

from lumbridge_compute.core.registry import HealthCheck, Model, PortOwner, StopPolicy


def digest(models: Iterable[Model]) -> str:
    """16 hexadecimal digits that name these definitions in this order.

    Stable over processes and Python versions, and when a later version adds a field with a
    default.  It holds nothing of what it was made from.
    """
    text = _canonical(tuple(models))
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


def process_digest(model: Model) -> str:
    """The digest of what makes the process: equal for models that start like each other.

    What was measured about a process stays true when only its health check or stop policy change.
    """
    as_started = replace(
        model,
        memory_bytes=None,
        health=HealthCheck(),
        stop=StopPolicy(),
        port_owner=PortOwner.PROCESS,
    )
    return digest((as_started,))


def _canonical(value: Any) -> str:  # noqa: ANN401 - any field of a definition
    if is_dataclass(value):
        given = {field.name: getattr(value, field.name) for field in fields(value)}
        default = {field.name: _default(field) for field in fields(value)}
        named = (f"{key}={_canonical(given[key])}" for key in given if given[key] != default[key])
        return f"{{{','.join(named)}}}"
    if isinstance(value, tuple):
        return f"({','.join(_canonical(item) for item in value)})"
    # An enumeration of texts by its text: its repr has changed between Python versions.
    return ascii(str(value)) if isinstance(value, str) else repr(value)


def _default(field: Field[Any]) -> Any:  # noqa: ANN401 - as above
    if field.default_factory is not MISSING:
        return field.default_factory()
    return field.default
