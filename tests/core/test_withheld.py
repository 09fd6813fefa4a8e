"""What a record keeps of the headers that a model is asked with."""

from __future__ import annotations

from lumbridge_compute.core.identity import Identity
from lumbridge_compute.core.registry import HealthCheck, Model, Registry
from lumbridge_compute.core.state import Bound, Legacy, NodeState
from lumbridge_compute.core.withheld import completed, with_literals, without_literals

HEADERS = (
    ("Authorization", "Bearer ${env:KEY}"),
    ("X-Key", "s3cret"),
    ("X-Mixed", "s3cret-${port}"),
    ("X-Text", "$${env:KEY}"),
)


def model(*headers: tuple[str, str], port: int = 8001) -> Model:
    return Model("qwen", ("serve",), port, "qwen", health=HealthCheck(headers=headers))


def state(definition: Model) -> NodeState:
    record = Bound(Identity("b", 4242, 7), definition)
    return NodeState(processes={"qwen": record, "old": Legacy(5)})


def headers_in(state: NodeState) -> tuple[tuple[str, str], ...]:
    record = state.processes["qwen"]
    assert isinstance(record, Bound)
    return record.definition.health.headers


def test_only_values_that_come_from_the_environment_are_stored() -> None:
    assert headers_in(without_literals(state(model(*HEADERS)))) == HEADERS[:1]
    assert without_literals(state(model())) == state(model())


def test_what_was_left_out_is_taken_from_todays_registry() -> None:
    registry = Registry({"qwen": model(*HEADERS, port=9)}, {})
    assert headers_in(with_literals(state(model(HEADERS[0])), registry)) == HEADERS
    assert with_literals(state(model()), Registry({}, {})) == state(model())


def test_a_stored_header_is_never_replaced() -> None:
    recorded = model(("x-key", "${env:OLD}"))
    assert completed(recorded, model(("X-Key", "new"))) == recorded
    assert completed(recorded, model(("X-Other", "${env:OTHER}"))) == recorded
