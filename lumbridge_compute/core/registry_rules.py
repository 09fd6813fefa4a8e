"""Rules between the values of a registry (DESIGN section 4), and what is worth a warning.

The rules take parts and not a whole Registry, so that one that is broken is found also where
another part could not be read; None stands for such a part.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from lumbridge_compute.core.registry import Address, Model, Registry, Scene

_EVERY_ADDRESS = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared with, not bound to


class Breach(NamedTuple):
    """A rule that is broken, `path` being the keys and indexes that lead to the value.

    Where a name is unknown, `unknown` is that name and `known` are those that there are.
    """

    path: tuple[str | int, ...]
    message: str
    hint: str | None = None
    unknown: str | None = None
    known: Collection[str] = ()


def scene_breaches(
    name: str,
    models: Sequence[str | None],
    sacrifice: Sequence[str | None],
    ports: Mapping[str, int | None],
) -> Iterator[Breach]:
    """What is wrong with one Scene; `ports` has a key for each declared model."""
    holders: dict[int, str] = {}
    for index, model in enumerate(models):
        if model is None:
            continue
        path = ("scenes", name, "models", index)
        if model not in ports:
            yield Breach(path, f"unknown model {model!r}", None, model, ports)
            continue
        port = ports[model]
        first = model if port is None else holders.setdefault(port, model)
        if first != model:
            message = f"{first!r} and {model!r} can't run together: both have port {port}"
            yield Breach(path, message, "give one of them another port")
    known = {model for model in models if model is not None}
    for index, model in enumerate(sacrifice):
        if model is not None and model not in known:
            message = f"{model!r} is not a model of this Scene"
            place = ("scenes", name, "sacrifice", index)
            yield Breach(place, message, None, model, known & ports.keys())


def gateway_breaches(
    gateways: Sequence[tuple[Address | None, Address | None]], ports: Mapping[str, int | None]
) -> Iterator[Breach]:
    """What is wrong with gateways, given as (listen, upstream)."""
    holders = {port: model for model, port in ports.items() if port is not None}
    for index, (listen, upstream) in enumerate(gateways):
        if listen is None:
            continue
        path = ("node", "gateways", index, "listen")
        if listen.port in holders:
            message = f"{listen} is on the port of the model {holders[listen.port]!r}"
            yield Breach(path, message, "let the gateway listen on a port that no model has")
        if upstream is not None and overlap(listen, upstream):
            yield Breach(path, f"{listen} would relay to itself: its upstream is {upstream}")
        for other, (taken, further) in enumerate(gateways):
            if other < index and taken is not None and overlap(listen, taken):
                yield Breach(path, f"{listen} is taken by gateways[{other}], on {taken}")
            if other != index and further is not None and overlap(listen, further):
                message = f"{listen} is the upstream of gateways[{other}]"
                yield Breach(path, message, "let that one relay to the model's port itself")


def overlap(one: Address, other: Address) -> bool:
    """True when a listener on `one` would get connections made to `other`."""
    same = one.host == other.host or bool(_EVERY_ADDRESS & {one.host, other.host})
    return same and one.port == other.port


def registry_warnings(registry: Registry) -> tuple[str, ...]:
    """What is allowed and yet is seldom meant, one sentence each."""
    return (
        *_unused(registry),
        *(warning for model in registry.models.values() for warning in _doubtful(model)),
        *(warning for scene in registry.scenes.values() for warning in _alike(registry, scene)),
        *_unserved(registry),
    )


def _unused(registry: Registry) -> Iterator[str]:
    if not registry.scenes:
        yield "no Scene is declared, so nothing can be activated"
        return
    used = {model for scene in registry.scenes.values() for model in scene.models}
    for name in registry.models:
        if name not in used:
            yield f"the model {name!r} is in no Scene"


def _doubtful(model: Model) -> Iterator[str]:
    texts = (*model.command, *(value for _, value in model.env))
    if not any("${port}" in text or str(model.port) in text for text in texts):
        yield (
            f"the model {model.name!r} is expected on port {model.port}, but neither its command "
            "nor its env names ${port}"
        )
    if "${" in model.marker:
        yield f"the marker of {model.name!r} is taken as it is: ${{}} is not replaced in markers"


def _alike(registry: Registry, scene: Scene) -> Iterator[str]:
    seen: dict[str, str] = {}
    for model in registry.models_of(scene.name):
        first = seen.setdefault(model.marker, model.name)
        if first != model.name:
            yield (
                f"in the Scene {scene.name!r}, {first!r} and {model.name!r} have one marker, "
                f"{model.marker!r}: a mix-up of the two can't be seen"
            )


def _unserved(registry: Registry) -> Iterator[str]:
    ports = {model.port for model in registry.models.values()}
    for gateway in registry.gateways:
        if gateway.upstream.port not in ports:
            yield (
                f"the gateway on {gateway.listen} relays to {gateway.upstream}, "
                "a port that no model has"
            )
