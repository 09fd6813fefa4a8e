"""Reads the case files of plans: registry, state, world and order -> plan or refusals.

    about:      one sentence on what the case shows
    registry:   models: {NAME: PORT} or {NAME: {port, marker, command, memory, timeout, grace,
                owner}}; scenes: {NAME: [MODEL, ...]}
    state:      desired, active, last_known_good, transition, last_error, deactivating,
                failures: {scene, count, definition: today | changed}, and
                records: {MODEL: PID} or {MODEL: {pid, was, legacy, boot, token}}; `was` holds what
                differed in the definition that the process was started with
    world:      models: {MODEL: "OWNERSHIP [HEALTH]"} or {MODEL: {is, pid, health, reports, age,
                permitted, inside, members, strays, stranger, unit}};
                ports: {PORT: HOLDER} or {PORT: [HOLDER, ...]}, one for each listening socket; a
                HOLDER is a model, `stranger`, `hidden` (the kernel shows no process), or several
                joined by "+" that hold one socket; left out, each model that answers holds its
                port; available, footprints: {MODEL: SIZE}, unstartable: {MODEL: REASON}
    order:      activate SCENE | resume [--force] | fallback | restore SCENE | deactivate |
                adopt SCENE [--pid MODEL=PID]...
    floor:      SIZE; 0 when left out
    ran_with:   {MODEL: what differed} for restore: the definitions that ran before
    own_pids:   for adopt: this command and its parents
    warnings:   fragments, one for each

and one of these outcomes, compared in full: what is not named must be empty.

    plan:       keep, stop, start, restart, forget; and, compared where they are given: scene,
                settled, memory: {available, gives, needs, after, floor} with `unknown` as a value.
                A kept model may be followed by "loading", and by "as recorded" where its old
                definition is what it is checked by
    adopted:    {MODEL: PID} or {MODEL: {pid, token}}
    refused:    [{code, model, says, hint}], with fragments of message and hint

Sizes are numbers of GiB.  Any other key is an error: a check that nobody reads proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from lumbridge_compute.core.plan import AdoptPlan, Plan, Refusals, Snapshot
from lumbridge_compute.core.plan_adopt import plan_adopt
from lumbridge_compute.core.plan_resume import plan_fallback, plan_next_resume
from lumbridge_compute.core.plan_scene import (
    plan_activate,
    plan_restore,
    plan_stop_all,
)
from lumbridge_compute.core.registry import (
    Model,
    Registry,
)
from lumbridge_compute.core.state import Bound
from lumbridge_compute.core.units import GIB
from tests.core.case_values import (
    BadCase,
    Fields,
    StrictLoader,
    changed_model,
    gib,
    parse_registry,
    parse_state,
    parse_world,
    take,
)

CASES = Path(__file__).parent / "cases"

_Planner = Callable[[], Plan | AdoptPlan | Refusals]


@dataclass(frozen=True)
class Case:
    """One case file, read.  `expected` is the outcome in the words of the file."""

    now: Snapshot
    plan: _Planner
    expected: Fields


def case_files() -> list[Path]:
    return sorted(CASES.rglob("*.yaml"))


def parse_case(text: str) -> Case:
    """Raises BadCase for a key or a name that means nothing."""
    document = yaml.load(text, StrictLoader)
    fields = take(
        document,
        needed="about registry order",
        optional="state world floor ran_with own_pids plan adopted refused warnings",
    )
    outcomes = [key for key in ("plan", "adopted", "refused") if key in fields]
    if len(outcomes) != 1:
        raise BadCase(f"wanted one of plan, adopted and refused, found {outcomes}")
    registry = parse_registry(fields["registry"])
    state = parse_state(fields.get("state") or {}, registry)
    now = Snapshot(registry, state, parse_world(fields.get("world") or {}, registry, state))
    return Case(now, _planner(fields, now), _outcome(fields, outcomes[0]))


def _planner(fields: Fields, now: Snapshot) -> _Planner:
    words = str(fields["order"]).split()
    for key, verb in (("ran_with", "restore"), ("own_pids", "adopt")):
        if key in fields and words[0] != verb:
            raise BadCase(f"{key} means nothing to {words[0]}")
    floor_bytes = gib(fields.get("floor", 0)) or 0
    match words:
        case ["activate", scene]:
            return partial(plan_activate, now, scene, floor_bytes=floor_bytes)
        case ["resume", *option] if option in ([], ["--force"]):
            return partial(plan_next_resume, now, force=bool(option), floor_bytes=floor_bytes)
        case ["fallback"]:
            return partial(plan_fallback, now, floor_bytes=floor_bytes)
        case ["restore", scene]:
            return partial(plan_restore, now, scene, _ran_with(fields, now.registry, scene))
        case ["deactivate"]:
            return partial(plan_stop_all, now, "deactivate")
        case ["adopt", scene, *options]:
            own_pids = frozenset(fields.get("own_pids") or ())
            return partial(plan_adopt, now, scene, _pids(options), own_pids)
    raise BadCase(f"no such order: {fields['order']!r}")


def _ran_with(fields: Fields, registry: Registry, scene: str) -> tuple[Model, ...]:
    """Today's models of the Scene, changed by `ran_with`, then those that only `ran_with` has."""
    given = fields.get("ran_with") or {}
    declared = registry.models_of(scene) if scene in registry.scenes else ()
    bases = {model.name: model for model in declared}
    for name in given:
        bases.setdefault(name, Model(name, ("serve", name), 0, name))
    return tuple(changed_model(base, given.get(name) or {}) for name, base in bases.items())


def _pids(options: list[str]) -> dict[str, int]:
    if options[::2] != ["--pid"] * (len(options) // 2):
        raise BadCase(f"wanted --pid MODEL=PID, found {options}")
    pairs = (option.partition("=") for option in options[1::2])
    return {name: int(pid) for name, _, pid in pairs}


def _outcome(fields: Fields, kind: str) -> Fields:
    warnings = list(fields.get("warnings") or ())
    if kind == "refused":
        reasons = [take(r, needed="code says", optional="model hint") for r in fields[kind]]
        return {"refused": reasons, "warnings": warnings}
    if kind == "adopted":
        return {"adopted": fields[kind], "warnings": warnings}
    optional = "scene keep stop start restart forget settled memory"
    return {"plan": take(fields[kind] or {}, optional=optional), "warnings": warnings}


def render_outcome(case: Case, found: Plan | AdoptPlan | Refusals) -> Fields:
    """`found` in the words of the case files, as far as the case asks for it."""
    if isinstance(found, Refusals):
        wanted = case.expected.get("refused") or []
        reasons = [
            _reason(reason, wanted[i] if i < len(wanted) else {})
            for i, reason in enumerate(found.reasons)
        ]
        return {"refused": reasons, "warnings": _warned(case, found.warnings)}
    if isinstance(found, AdoptPlan):
        wanted = case.expected.get("adopted") or {}
        adopted = {name: _adopted(r, wanted.get(name)) for name, r in found.records.items()}
        return {"adopted": adopted, "warnings": _warned(case, found.warnings)}
    return {"plan": _plan(case, found), "warnings": _warned(case, found.warnings)}


def complete(expected: Fields) -> Fields:
    """What a case leaves out is empty."""
    if "plan" not in expected:
        return expected
    empty: Fields = {key: [] for key in ("keep", "stop", "start", "restart", "forget")}
    return {**expected, "plan": {**empty, **expected["plan"]}}


def _reason(reason: Any, wanted: Fields) -> Fields:
    """The refusal; where a fragment is in its text, the fragment."""
    found = {"code": reason.code, "says": reason.message}
    if reason.model is not None:
        found["model"] = reason.model
    if "hint" in wanted:
        found["hint"] = reason.hint
    for key in ("says", "hint"):
        if key in found and str(wanted.get(key, "\0")) in found[key]:
            found[key] = str(wanted[key])
    return found


def _warned(case: Case, warnings: tuple[str, ...]) -> list[str]:
    fragments = case.expected["warnings"]
    return [next((f for f in fragments if f in text), text) for text in warnings]


def _adopted(record: Bound, wanted: Any) -> Any:
    if isinstance(wanted, dict):
        return {"pid": record.identity.pid, "token": record.token}
    return record.identity.pid


def _plan(case: Case, plan: Plan) -> Fields:
    wanted, memory = case.expected.get("plan") or {}, plan.memory
    found: Fields = {
        "keep": [_kept(case, kept) for kept in plan.keep],
        "stop": [step.model for step in plan.stop],
        "start": [step.model for step in plan.start],
        "restart": [step.model for step in plan.start if step.model in plan.restarted],
        "forget": list(plan.forget),
    }
    if "scene" in wanted:
        found["scene"] = plan.scene
    if "settled" in wanted:
        found["settled"] = plan.settled
    if "memory" in wanted:
        found["memory"] = memory and {key: _size(memory, key) for key in wanted["memory"]}
    return found


def _size(memory: Any, key: str) -> float | str:
    names = {"available", "gives", "needs", "after", "floor"}
    if key not in names:
        raise BadCase(f"unknown key {key!r} of memory, known are {sorted(names)}")
    size = getattr(memory, f"{key}_bytes")
    return "unknown" if size is None else size / GIB


def _kept(case: Case, kept: Any) -> str:
    today = case.now.registry.models.get(kept.model)
    words = [kept.model]
    if kept.loading:
        words.append("loading")
    if kept.definition != today:
        words.append("as recorded")
    return " ".join(words)
