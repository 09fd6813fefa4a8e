"""One model of the registry: read, written back, and said as JSON Schema.

The state file keeps the definition of each running model in the same form.
"""

from __future__ import annotations

from lumbridge_compute.core.registry import (
    DeepProbe,
    HealthCheck,
    Match,
    Model,
    PortOwner,
    StopPolicy,
)
from lumbridge_compute.core.values import replace
from lumbridge_compute.store.registry_addresses import HOST, PORT
from lumbridge_compute.store.registry_collections import Field, MapOf, Record, Table, Values
from lumbridge_compute.store.registry_parts import Body, Command, Pairs, choice
from lumbridge_compute.store.registry_scalars import (
    FOLDER,
    HEADER,
    HEADER_VALUE,
    MARKER,
    PATH,
    POINTER,
    PROBE_PATH,
    SIGNAL,
    VARIABLE,
    VARIABLE_VALUE,
)
from lumbridge_compute.store.registry_shapes import Reader, Schema
from lumbridge_compute.store.registry_units import PAUSE, SIZE, TIMEOUT
from lumbridge_compute.store.yaml_values import Fault, MappingNode, Node, join_path


def read_model(name: str, node: Node, path: str = "") -> tuple[Model | None, tuple[Fault, ...]]:
    """The model that `node` describes under `name`, or None with all its faults.

    `path` is the path of the node's key, for the faults.
    """
    reader = Reader()
    values = MODEL.read(reader, node, path)
    if reader.faults or values is None:
        return None, tuple(reader.faults)
    return make_model(name, values), ()


def model_document(model: Model) -> dict[str, object]:
    """What `read_model` makes `model` of: plain YAML values, those left out that are defaults.

    Command, port and marker are always there.  The name is not: it is the key of the document.
    """
    return MODEL.dump(model)


def make_model(name: str, values: Values) -> Model:
    """The model of what MODEL.read gave without a fault."""
    given = dict(values)
    stop = replace(given.pop("stop", StopPolicy()), command=given.pop("stop.command", ()))
    return Model(name=name, stop=stop, **{"marker": name, **given})


def _check_pointer(reader: Reader, node: MappingNode, path: str, values: Values) -> None:
    """`pointer` goes with `match: json`, and with nothing else."""
    if "match" in node.entries and "match" not in values:
        return
    by_pointer = values.get("match") is Match.JSON
    if by_pointer and "pointer" not in node.entries:
        hint = "name the place of the marker, as in pointer: /model"
        reader.fault(node, path, "match: json needs the key 'pointer'", hint)
    elif "pointer" in node.entries and not by_pointer:
        key = node.entries["pointer"].key
        reader.fault(key, join_path(path, "pointer"), "only match: json has a pointer")


_POINTER_RULE: Schema = {
    "if": {"properties": {"match": {"const": "json"}}, "required": ["match"]},
    "then": {"required": ["pointer"]},
    "else": {"properties": {"pointer": False}},
}

_PROBE = Table(
    "a mapping with the keys of a probe",
    (
        Field("path", "path", PROBE_PATH, "What is asked; ${} is filled in.", required=True),
        Field("body", "body", Body(), "Sent as JSON by POST; without it, a GET."),
    ),
    DeepProbe(""),
)

_HEALTH = Table(
    "a mapping with the keys of a health check",
    (
        Field("path", "path", PATH, "Where the marker is read."),
        Field(
            "match",
            "match",
            choice("a way to find the marker", Match),
            "models: an entry of data[].id equals the marker; json: the value at `pointer` "
            "equals it; text: the stripped body equals it.",
        ),
        Field("pointer", "pointer", POINTER, "Where match: json looks (RFC 6901)."),
        Field("ready", "ready", PATH, "Must answer 200 before the marker is read."),
        Field(
            "headers",
            "headers",
            Pairs(MapOf(HEADER, HEADER_VALUE, "headers by name"), any_case=True),
            "Sent with every request; ${} is filled in; values are never shown or stored.",
        ),
        Field("timeout", "timeout_s", TIMEOUT, "Longest time from start to exactly healthy."),
        Field("request_timeout", "request_timeout_s", TIMEOUT, "Longest time of one request."),
        Field("probe", "probe", Record(_PROBE, DeepProbe), "Must also answer 2xx."),
    ),
    HealthCheck(),
    _check_pointer,
    _POINTER_RULE,
)

_STOP = Table(
    "a mapping with the keys 'signal' and 'grace'",
    (
        Field("signal", "signal", SIGNAL, "What asks the model to end."),
        Field("grace", "grace_s", PAUSE, "How long it may take before SIGKILL."),
    ),
    StopPolicy(),
)

MODEL = Table(
    "a mapping with the keys of a model",
    (
        Field(
            "command",
            "command",
            Command(),
            "What is run, without a shell; ${port}, ${marker}, ${name}, ${root} and ${env:NAME} "
            "are filled in.",
            required=True,
        ),
        Field("host", "host", HOST, "The literal address where it listens."),
        Field("port", "port", PORT, "The TCP port where it listens.", required=True),
        Field("marker", "marker", MARKER, "The exact name it reports; else the model's name."),
        Field("cwd", "cwd", FOLDER, "Where it runs, relative to the root; ${} is filled in."),
        Field(
            "env",
            "env",
            Pairs(MapOf(VARIABLE, VARIABLE_VALUE, "environment variables by name")),
            "Added to its environment; ${} is filled in.",
        ),
        Field("memory", "memory_bytes", SIZE, "What it needs at rest; a bare number is GiB."),
        Field("health", "health", Record(_HEALTH, HealthCheck), "How its health is judged."),
        Field("stop", "stop", Record(_STOP, StopPolicy), "How it is stopped."),
        Field(
            "port_owner",
            "port_owner",
            choice("'process' or 'any'", PortOwner),
            "process: the listener must be one of the model's own processes; any: it need not "
            "(docker run and the like), stop then means that the port is closed.",
        ),
        Field(
            "stop_command",
            "stop.command",
            Command(),
            "Run before the signal; ${} is filled in.",
        ),
    ),
    Model("", (), 0, ""),
)
