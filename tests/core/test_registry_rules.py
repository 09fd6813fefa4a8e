"""Rules between models, Scenes and gateways, and what is only worth a warning."""

from __future__ import annotations

import pytest

from lumbridge_compute.core.nearest import nearest
from lumbridge_compute.core.registry import Address, GatewaySpec, Model, Registry, Scene
from lumbridge_compute.core.registry_rules import (
    Breach,
    gateway_breaches,
    overlap,
    registry_warnings,
    scene_breaches,
)

PORTS = {"a": 1, "b": 2, "c": 1, "unread": None}


def test_a_good_scene_breaks_no_rule() -> None:
    assert list(scene_breaches("s", ("a", "b"), ("b", "a"), PORTS)) == []


def test_an_unknown_model_is_named_with_those_that_there_are() -> None:
    (breach,) = scene_breaches("s", ("b", "d"), (), PORTS)
    assert breach == Breach(("scenes", "s", "models", 1), "unknown model 'd'", None, "d", PORTS)


def test_each_model_that_shares_a_port_is_a_breach_of_its_own() -> None:
    found = list(scene_breaches("s", ("a", "c", "b", "d"), (), {**PORTS, "d": 1}))
    assert [breach.path[-1] for breach in found] == [1, 3]
    assert found[0].message == "'a' and 'c' can't run together: both have port 1"


def test_a_part_that_could_not_be_read_is_passed_over() -> None:
    assert list(scene_breaches("s", ("a", None, "unread"), (None, "a"), PORTS)) == []
    assert (
        list(gateway_breaches([(None, Address("::1", 1)), (Address("::1", 9), None)], PORTS)) == []
    )


def test_only_models_of_the_scene_can_be_sacrificed() -> None:
    (breach,) = scene_breaches("s", ("a",), ("a", "b"), PORTS)
    assert breach.path == ("scenes", "s", "sacrifice", 1)
    assert breach.message == "'b' is not a model of this Scene"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "127.0.0.2", False),
        ("0.0.0.0", "127.0.0.2", True),
        ("::1", "::", True),
        ("::", "127.0.0.1", True),
        ("::1", "127.0.0.1", False),
    ],
)
def test_addresses_overlap_also_by_the_wildcard(one: str, other: str, same: bool) -> None:  # noqa: FBT001 - a column of the table
    assert overlap(Address(one, 7), Address(other, 7)) is same
    assert overlap(Address(one, 7), Address(other, 8)) is False


def test_every_breach_of_a_gateway_is_listed() -> None:
    here = Address("127.0.0.1", 1)
    messages = [breach.message for breach in gateway_breaches([(here, here), (here, None)], PORTS)]
    assert messages == [
        "127.0.0.1:1 is on the port of the model 'c'",
        "127.0.0.1:1 would relay to itself: its upstream is 127.0.0.1:1",
        "127.0.0.1:1 is on the port of the model 'c'",
        "127.0.0.1:1 is taken by gateways[0], on 127.0.0.1:1",
        "127.0.0.1:1 is the upstream of gateways[0]",
    ]


def model(name: str, port: int, marker: str | None = None, *words: str) -> Model:
    return Model(name, (name, *(words or ("${port}",))), port, marker or name)


def registry(
    *models: Model, scenes: tuple[Scene, ...] | None = None, upstream: int = 0
) -> Registry:
    everything = (Scene("all", tuple(found.name for found in models)),)
    gateway = GatewaySpec(Address("127.0.0.1", 9), Address("127.0.0.1", upstream))
    return Registry(
        models={found.name: found for found in models},
        scenes={scene.name: scene for scene in (everything if scenes is None else scenes)},
        gateways=(gateway,) if upstream else (),
    )


def test_an_ordinary_registry_has_no_warning() -> None:
    assert registry_warnings(registry(model("a", 1), model("b", 2), upstream=1)) == ()


NO_PORT = (
    "the model 'a' is expected on port 8001, but neither its command nor its env names ${port}"
)
ONE_MARKER = (
    "in the Scene 'all', 'a' and 'b' have one marker, 'm': a mix-up of the two can't be seen"
)


@pytest.mark.parametrize(
    ("declared", "warning"),
    [
        (registry(model("a", 1), scenes=()), "no Scene is declared, so nothing can be activated"),
        (registry(model("a", 1), scenes=(Scene("s", ()),)), "the model 'a' is in no Scene"),
        (
            registry(model("a", 8001, None, "serve")),
            NO_PORT,
        ),
        (
            registry(model("a", 1, "${name}")),
            "the marker of 'a' is taken as it is: ${} is not replaced in markers",
        ),
        (
            registry(model("a", 1, "m"), model("b", 2, "m")),
            ONE_MARKER,
        ),
        (
            registry(model("a", 1), upstream=2),
            "the gateway on 127.0.0.1:9 relays to 127.0.0.1:2, a port that no model has",
        ),
    ],
)
def test_what_is_seldom_meant_is_a_warning(declared: Registry, warning: str) -> None:
    assert registry_warnings(declared) == (warning,)


@pytest.mark.parametrize("words", [("--port", "8001"), ("127.0.0.1:8001",), ("--port=${port}",)])
def test_a_command_may_name_its_port_in_digits(words: tuple[str, ...]) -> None:
    assert registry_warnings(registry(model("a", 8001, None, *words))) == ()


@pytest.mark.parametrize(
    ("word", "wanted"),
    [("prot", "port"), ("qwem", "qwen"), ("comand", "command"), ("xyz", None), ("", None)],
)
def test_the_nearest_name_is_found(word: str, wanted: str | None) -> None:
    assert nearest(word, ["port", "root", "qwen", "command", "host"]) == wanted


def test_without_names_none_is_near() -> None:
    assert nearest("port", ()) is None
