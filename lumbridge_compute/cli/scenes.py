"""`scene list` and `scene show`: what the registry declares."""

from __future__ import annotations

from typing import Any

from lumbridge_compute.cli.call import Call
from lumbridge_compute.cli.node import registry_of, state_of
from lumbridge_compute.core.nearest import nearest
from lumbridge_compute.core.registry import Model, Registry, Scene
from lumbridge_compute.core.state import NodeState
from lumbridge_compute.core.tables import render_table
from lumbridge_compute.core.units import render_bytes
from lumbridge_compute.errors import BadInput, Exit, OperatorError


def run_list(call: Call) -> int:
    """Every declared Scene; what the state says of it where the state can be read."""
    registry, state = registry_of(call.root()), _state(call)
    if call.json:
        scenes = [_scene_document(scene, state) for scene in registry.scenes.values()]
        call.print_document({"scenes": scenes})
        return Exit.DONE
    rows = [
        (scene.name, _marks(scene, state), ", ".join(scene.models), scene.description)
        for scene in registry.scenes.values()
    ]
    header = ("SCENE", "STATE", "MODELS", "DESCRIPTION")
    table = render_table(header, rows, width=call.out.width(), spare=("DESCRIPTION",))
    call.out.write_lines(table if rows else ["no Scene is declared"])
    return Exit.DONE


def run_show(call: Call) -> int:
    """One Scene with its models in start order.  Raises BadInput for an unknown one."""
    registry, state = registry_of(call.root()), _state(call)
    scene = _known(registry, call.options.name)
    models = registry.models_of(scene.name)
    if call.json:
        document = _scene_document(scene, state)
        call.print_document(document | {"models": [_model_document(model) for model in models]})
        return Exit.DONE
    call.out.write_lines(_shown(scene, state, models, call.out.width()))
    return Exit.DONE


def _state(call: Call) -> NodeState:
    try:
        return state_of(call.root())
    except OperatorError as error:
        call.err.write_lines([f"warning: {error.message}"])
        return NodeState()


def _known(registry: Registry, name: str) -> Scene:
    scene = registry.scenes.get(name)
    if scene is None:
        near = nearest(name, registry.scenes)
        hint = f"did you mean {near!r}?" if near is not None else "lumbridge-compute scene list"
        raise BadInput(f"cannot show Scene {name!r}: compute.yaml declares no such Scene", hint)
    return scene


def _marks(scene: Scene, state: NodeState) -> str:
    marks = {
        "active": state.active_scene,
        "desired": state.desired_scene,
        "in transition": state.transition_scene,
        "last known good": state.last_known_good_scene,
    }
    return ", ".join(mark for mark, name in marks.items() if name == scene.name) or "-"


def _scene_document(scene: Scene, state: NodeState) -> dict[str, Any]:
    return {
        "name": scene.name,
        "description": scene.description,
        "models": list(scene.models),
        "sacrifice": list(scene.sacrifice),
        "active": state.active_scene == scene.name,
        "desired": state.desired_scene == scene.name,
    }


def _model_document(model: Model) -> dict[str, Any]:
    return {
        "name": model.name,
        "command": list(model.command),
        "host": model.host,
        "port": model.port,
        "marker": model.marker,
        "memory_bytes": model.memory_bytes,
    }


def _shown(
    scene: Scene, state: NodeState, models: tuple[Model, ...], width: int | None
) -> list[str]:
    lines = [f"Scene {scene.name!r}" + (f": {scene.description}" if scene.description else "")]
    marks = _marks(scene, state)
    lines += [f"state: {marks}"] if marks != "-" else []
    lines += [f"sacrifice: {', '.join(scene.sacrifice)}"] if scene.sacrifice else []
    rows = [
        (
            model.name,
            str(model.port),
            model.marker,
            render_bytes(model.memory_bytes) if model.memory_bytes is not None else "-",
            " ".join(model.command),
        )
        for model in models
    ]
    header = ("MODEL", "PORT", "MARKER", "MEMORY", "COMMAND")
    return [*lines, "", *render_table(header, rows, width=width)]
