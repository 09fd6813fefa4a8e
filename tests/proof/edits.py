"""What an operator does to compute.yaml between two commands."""

from __future__ import annotations

from dataclasses import replace

from lumbridge_compute.core.registry import Model, Registry, Scene
from tests.proof.starts import MODELS

EDITS = (
    "marker ear",
    "marker talk",
    "command ear",
    "command think",
    "port talk 8005",
    "port voice 8001",
    "port ear 8006",
    "patience ear",
    "leave day ear",
    "leave night voice",
    "join day voice",
    "join night talk",
    "no-scene night",
    "no-scene day",
    "no-model voice",
    "no-model talk",
)


def edited(registry: Registry, words: tuple[str, ...]) -> Registry:
    """The registry after one edit; as it was where the edit would break its rules."""
    what, name, *rest = words
    models, scenes = dict(registry.models), dict(registry.scenes)
    if what in ("marker", "command", "port", "patience"):
        if name in models:
            models[name] = _changed(models[name], what, rest)
    elif what in ("leave", "join"):
        if name in scenes:
            scenes[name] = _rearranged(scenes[name], what, rest[0])
            models.setdefault(rest[0], MODELS[rest[0]])
    elif what == "no-scene":
        scenes.pop(name, None)
    elif what == "no-model":
        models.pop(name, None)
        scenes = {n: _rearranged(scene, "leave", name) for n, scene in scenes.items()}
    return Registry(models, scenes) if _valid(models, scenes) else registry


def _changed(model: Model, what: str, rest: list[str]) -> Model:
    if what == "marker":
        return replace(model, marker=f"{model.name}-v{int(model.marker[-1]) + 1}")
    if what == "command":
        return replace(model, command=(model.command[0] + "-newer", *model.command[1:]))
    if what == "port":
        return replace(model, port=int(rest[0]))
    return replace(model, health=replace(model.health, timeout_s=model.health.timeout_s + 1))


def _rearranged(scene: Scene, what: str, model: str) -> Scene:
    rest = tuple(name for name in scene.models if name != model)
    return replace(scene, models=rest if what == "leave" else (*rest, model))


def _valid(models: dict[str, Model], scenes: dict[str, Scene]) -> bool:
    ports = [[models[name].port for name in scene.models] for scene in scenes.values()]
    return all(each and len(set(each)) == len(each) for each in ports)
