"""The registry, the state and the world of a case file; `plan_cases` says how they are written."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import yaml

from lumbridge_compute.core.digest import digest
from lumbridge_compute.core.health import EXACT, Health, HealthName
from lumbridge_compute.core.identity import Claim, Identity, Ownership, Process
from lumbridge_compute.core.registry import (
    HealthCheck,
    Model,
    PortOwner,
    Registry,
    Scene,
    StopPolicy,
)
from lumbridge_compute.core.state import Bound, Legacy, NodeState, Record, ResumeFailures
from lumbridge_compute.core.units import GIB
from lumbridge_compute.core.world import Listener, Memory, ModelView, World

BOOT = "boot-now"
STRANGER_PID = 9999
ANSWERS = frozenset(
    {
        HealthName.EXACT,
        HealthName.BUSY,
        HealthName.NOT_READY,
        HealthName.WRONG_MARKER,
        HealthName.UNAUTHORIZED,
        HealthName.MALFORMED,
    }
)
Fields = dict[str, Any]


class BadCase(Exception):
    """The case file itself is wrong."""


class StrictLoader(yaml.SafeLoader):
    pass


def _mapping_without_doubles(loader: yaml.SafeLoader, node: yaml.MappingNode) -> Fields:
    found = loader.construct_pairs(node, deep=True)
    keys = [key for key, _ in found]
    if len(set(keys)) != len(keys):
        raise BadCase(f"a key occurs twice: {keys}")
    return dict(found)


StrictLoader.add_constructor("tag:yaml.org,2002:map", _mapping_without_doubles)


def take(value: Any, *, needed: str = "", optional: str = "") -> Fields:
    if not isinstance(value, dict):
        raise BadCase(f"wanted a mapping, found {value!r}")
    required, allowed = set(needed.split()), {*needed.split(), *optional.split()}
    if unknown := set(value) - allowed:
        raise BadCase(f"unknown keys {sorted(map(str, unknown))}, known are {sorted(allowed)}")
    if missing := required - set(value):
        raise BadCase(f"keys left out: {sorted(missing)}")
    return value


def known(name: Any, names: Mapping[str, object], what: str) -> str:
    if name not in names:
        raise BadCase(f"{name!r} is no {what} here, known are {sorted(names)}")
    return str(name)


def gib(size: float | None) -> int | None:
    return None if size is None else int(size * GIB)


# The registry.


def parse_registry(value: Any) -> Registry:
    fields = take(value, needed="models scenes")
    models = {name: _model(name, given) for name, given in fields["models"].items()}
    scenes = {}
    for name, members in fields["scenes"].items():
        scenes[name] = Scene(name, tuple(known(m, models, "model") for m in members))
    return Registry(models, scenes)


def _model(name: str, given: Any) -> Model:
    fields = {"port": given} if isinstance(given, int) else given
    return changed_model(
        Model(name, ("serve", name), 0, name), take(fields, needed="port", optional=_MODEL)
    )


_MODEL = "marker command memory timeout grace owner"


def changed_model(model: Model, fields: Fields) -> Model:
    made: Fields = {}
    for key, value in take(fields, optional=f"port {_MODEL}").items():
        match key:
            case "port" | "marker":
                made[key] = value
            case "command":
                made["command"] = tuple(shlex.split(value))
            case "memory":
                made["memory_bytes"] = gib(value)
            case "timeout":
                made["health"] = HealthCheck(timeout_s=value)
            case "grace":
                made["stop"] = StopPolicy(grace_s=value)
            case "owner":
                made["port_owner"] = PortOwner(value)
    return replace(model, **made)


# The state.

_STATE = "desired active last_known_good transition last_error deactivating failures records"


def parse_state(value: Any, registry: Registry) -> NodeState:
    fields = take(value, optional=_STATE)
    records = fields.get("records") or {}
    return NodeState(
        desired_scene=fields.get("desired"),
        active_scene=fields.get("active"),
        last_known_good_scene=fields.get("last_known_good"),
        transition_scene=fields.get("transition"),
        last_error=fields.get("last_error"),
        processes={name: _record(name, given, registry) for name, given in records.items()},
        resume_failures=_failures(fields.get("failures"), registry),
        deactivating=fields.get("deactivating", False),
    )


def _record(name: str, given: Any, registry: Registry) -> Record:
    value = {"pid": given} if isinstance(given, int) else given
    fields = take(value, optional="pid legacy was boot token")
    if "legacy" in fields:
        take(value, needed="legacy")
        return Legacy(fields["legacy"])
    declared = registry.models.get(name, Model(name, ("serve", name), 0, name))
    definition = changed_model(declared, fields.get("was") or {})
    if not definition.port:
        raise BadCase(f"{name!r} is not declared: say under `was` which port it had")
    identity = _identity(fields["pid"], fields.get("boot", BOOT))
    return Bound(identity, definition, token=fields.get("token"))


def _identity(pid: int, boot: str = BOOT) -> Identity:
    """Who was started later has the higher pid here."""
    return Identity(boot, pid, 1000 + pid)


def _failures(value: Any, registry: Registry) -> ResumeFailures | None:
    if value is None:
        return None
    fields = take(value, needed="scene count", optional="definition")
    scene = fields["scene"]
    today = digest(registry.models_of(scene)) if scene in registry.scenes else "unknown"
    definition = {"today": today, "changed": "0" * 16}[fields.get("definition", "today")]
    return ResumeFailures(scene, definition, fields["count"])


# The world.

_VIEW = "pid health reports age permitted inside members strays stranger unit"


def parse_world(value: Any, registry: Registry, state: NodeState) -> World:
    fields = take(value, optional="models ports available footprints unstartable")
    names = {**registry.models, **state.processes}
    given = fields.get("models") or {}
    for name in (*given, *(fields.get("footprints") or {}), *(fields.get("unstartable") or {})):
        known(name, names, "model")
    if blind := set(state.processes) - set(given):
        raise BadCase(f"say in `world` what became of the records of {sorted(blind)}")
    views = {name: _view(name, given.get(name, "none"), registry, state) for name in names}
    ports = fields.get("ports")
    available = gib(fields.get("available"))
    return World(
        models=views,
        listeners=_listeners(_ports_of(views) if ports is None else ports, views),
        memory=None if available is None else Memory(available, 128 * GIB),
        unstartable={n: (why,) for n, why in (fields.get("unstartable") or {}).items()},
        footprints={n: int(size * GIB) for n, size in (fields.get("footprints") or {}).items()},
    )


def _view(name: str, given: Any, registry: Registry, state: NodeState) -> ModelView:
    value = dict(zip(("is", "health"), given.split(), strict=False)) if _is_text(given) else given
    fields = take(value, needed="is", optional=_VIEW)
    ownership, record = Ownership(fields["is"]), state.processes.get(name)
    identity = _identity_seen(record, ownership, fields)
    checked = _checked(name, registry, record)
    return ModelView(
        name,
        _claim(ownership, identity, fields),
        identity=identity,
        checked=checked,
        health=_health(checked, fields.get("health"), fields.get("reports")),
        stranger=_health(checked, fields.get("stranger")),
        age_s=fields.get("age"),
        permitted=fields.get("permitted", True),
        hosts_us=fields.get("inside", False),
        legacy_pid=record.pid if isinstance(record, Legacy) else None,
        restarting_unit=fields.get("unit"),
    )


def _is_text(given: Any) -> bool:
    if isinstance(given, str) and len(given.split()) > 2:
        raise BadCase(f"wanted OWNERSHIP [HEALTH], found {given!r}")
    return isinstance(given, str)


def _identity_seen(record: Record | None, ownership: Ownership, fields: Fields) -> Identity | None:
    if "pid" in fields:
        return _identity(fields["pid"])
    if isinstance(record, Bound):
        return record.identity
    alive = ownership not in (Ownership.GONE, Ownership.NONE)
    if alive and record is None:
        raise BadCase(f"a process that is {ownership} has a record or a pid")
    return _identity(record.pid) if record is not None and alive else None


def _claim(ownership: Ownership, identity: Identity | None, fields: Fields) -> Claim:
    strays = frozenset(fields.get("strays") or ())
    if ownership in (Ownership.GONE, Ownership.NONE):
        return Claim(ownership, strays=strays)
    assert identity is not None
    pid = identity.pid
    if ownership is Ownership.SURVIVORS:
        return Claim(ownership, None, frozenset(fields.get("members") or {pid + 1}), strays)
    leader = Process(pid, 1, pid, pid, "S", identity.start_ticks)
    return Claim(ownership, leader, frozenset({pid, *(fields.get("members") or ())}), strays)


def _checked(name: str, registry: Registry, record: Record | None) -> Model | None:
    declared = registry.models.get(name)
    if isinstance(record, Bound) and (
        declared is None or not record.definition.starts_like(declared)
    ):
        return record.definition
    return declared


def _health(checked: Model | None, name: str | None, reports: Any = None) -> Health | None:
    if name is None or checked is None:
        return None
    if HealthName(name) is HealthName.EXACT:
        return EXACT
    reported = tuple(reports or ())
    said = f"port {checked.port} answers as {reported}" if reported else f"it is {name}"
    return Health(HealthName(name), said, reported)


def _ports_of(views: Mapping[str, ModelView]) -> dict[int, str]:
    """Every model that gives an answer listens on its port."""
    return {
        view.checked.port: view.name
        for view in views.values()
        if view.claim.members and view.checked and view.health and view.health.name in ANSWERS
    }


def _listeners(ports: Mapping[int, Any], views: Mapping[str, ModelView]) -> tuple[Listener, ...]:
    sockets = [
        (port, holder)
        for port, holders in ports.items()
        for holder in (holders if isinstance(holders, list) else [holders])
    ]
    return tuple(
        _listener(port, holder, inode, views) for inode, (port, holder) in enumerate(sockets, 1)
    )


def _listener(port: int, holder: str, inode: int, views: Mapping[str, ModelView]) -> Listener:
    if holder == "hidden":
        return Listener("127.0.0.1", port, inode, 33, who="user 33")
    pids: set[int] = set()
    for name in holder.split("+"):
        if name == "stranger":
            pids.add(STRANGER_PID)
        else:
            pids |= views[known(name, views, "model")].claim.members
    who = f"pid {STRANGER_PID} (nginx)" if holder == "stranger" else f"pid {min(pids)} ({holder})"
    return Listener("127.0.0.1", port, inode, 0, frozenset(pids), who)
