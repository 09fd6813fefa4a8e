"""The keys of compute.yaml outside of its models: the node, its gateways, and Scenes."""

from __future__ import annotations

from lumbridge_compute.core.registry import Address, GatewaySpec, Registry, Scene
from lumbridge_compute.store.registry_addresses import ADDRESS, NETWORK
from lumbridge_compute.store.registry_collections import Field, ListOf, MapOf, Table
from lumbridge_compute.store.registry_model import MODEL
from lumbridge_compute.store.registry_scalars import DESCRIPTION, NAME, VERSION
from lumbridge_compute.store.registry_units import PAUSE, SIZE

_GATEWAY = Table(
    "a mapping with the keys of a gateway",
    (
        Field("listen", "listen", ADDRESS, "The stable address that clients use.", required=True),
        Field("upstream", "upstream", ADDRESS, "Where the models serve.", required=True),
        Field(
            "allow",
            "allow",
            ListOf(NETWORK, "a list of networks", least=1, most=128),
            "Networks of the clients that may connect; without it, any.",
        ),
        Field(
            "hold",
            "hold_s",
            PAUSE,
            "Longest time that a new connection waits for a transition; 0 refuses at once.",
        ),
        Field(
            "drain",
            "drain_s",
            PAUSE,
            "Longest time that running connections get before a switch cuts them.",
        ),
    ),
    GatewaySpec(Address("", 0), Address("", 0)),
)

_NODE = Table(
    "a mapping with the keys 'memory_floor' and 'gateways'",
    (
        Field(
            "memory_floor",
            "memory_floor_bytes",
            SIZE,
            "The least available memory that the agent tolerates; 0 is no floor.",
        ),
        Field("gateways", "gateways", ListOf(_GATEWAY, "a list of gateways", most=64), "Relays."),
    ),
    Registry({}, {}),
)

_SCENE = Table(
    "a mapping with the keys of a Scene",
    (
        Field(
            "models",
            "models",
            ListOf(NAME, "a list of at least one model", least=1, unique=True),
            "Names of models in the order of their start; they stop in the reverse order.",
            required=True,
        ),
        Field(
            "sacrifice",
            "sacrifice",
            ListOf(NAME, "a list of models", unique=True),
            "What the memory floor stops first.",
        ),
        Field("description", "description", DESCRIPTION, "For people."),
    ),
    Scene("", ()),
)

REGISTRY = Table(
    "a mapping with the keys 'version', 'models' and 'scenes'",
    (
        Field("version", "version", VERSION, "The form of this file.", required=True),
        Field("node", "node", _NODE, "What is true of the whole machine."),
        Field("models", "models", MapOf(NAME, MODEL, "models by name"), "Model servers."),
        Field(
            "scenes",
            "scenes",
            MapOf(NAME, _SCENE, "Scenes by name"),
            "Sets of models that run together.",
        ),
    ),
)
