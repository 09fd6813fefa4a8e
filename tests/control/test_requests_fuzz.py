"""Whatever is sent to the agent as an order: it is taken, or the answer says what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable, MutableMapping
from types import SimpleNamespace
from typing import Any, cast

import trio
from hypothesis import given
from hypothesis import strategies as st

from lumbridge_compute.control.app import make_app
from lumbridge_compute.control.protocol import MAX_BODY_BYTES
from lumbridge_compute.core.events import Event, Outcome
from lumbridge_compute.errors import Exit
from lumbridge_compute.orders import Command, Order
from lumbridge_compute.resident.view import Resident

ANSWERS = {200, 400, 408, 409, 413}

texts = st.text(max_size=6) | st.sampled_from(["", "\ud800", "\x00", "x" * 300, "resume"])
numbers = st.integers() | st.floats() | st.sampled_from([10**400, -(10**400), 2**22, -1, 0])
values = st.recursive(
    st.none() | st.booleans() | texts | numbers,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
fields = st.sampled_from(
    ["command", "name", "dry_run", "wait", "force", "by_agent", "pids", "client_pid", "asked_at_s"]
)
orders = st.builds(
    lambda command, rest: {"command": command, **rest},
    st.sampled_from([each.value for each in Command]),
    st.dictionaries(fields, values, max_size=3),
)
bodies = st.one_of(
    (values | orders | st.fixed_dictionaries({"order": values})).map(
        lambda value: json.dumps(value).encode()
    ),
    st.binary(max_size=60),
    st.sampled_from([b"[" * 9000, b"9" * 5000, b" " * (MAX_BODY_BYTES + 1), b"\xff\xfe{", b""]),
)


class Recorded:
    """Transactions that carry out nothing."""

    def __init__(self) -> None:
        self.taken: list[Order] = []

    async def carry_out(
        self, order: Order, _emit: Callable[[Event], None], *_rest: object
    ) -> Outcome:
        self.taken.append(order)
        return Outcome(Exit.DONE, order.name)

    def interrupt(self, *_rest: object) -> bool:
        return False


@given(st.sampled_from(["/orders", "/cancel"]), bodies)
def test_any_body_is_taken_or_told_what_is_wrong_with_it(path: str, body: bytes) -> None:
    transactions = Recorded()
    status, answer = trio.run(_post, transactions, path, body)
    assert status in ANSWERS
    documents = [json.loads(line) for line in answer.splitlines()]
    if status == 200:
        assert documents
    else:
        assert documents[0]["error"]
        assert documents[0]["hint"]
        assert not transactions.taken
    for order in transactions.taken:
        assert not order.by_agent
        assert all(0 < pid < 2**22 for pid in order.pids.values())


async def _post(transactions: Recorded, path: str, body: bytes) -> tuple[int, bytes]:
    """Status and body of the application's answer, without a socket."""
    sent: list[MutableMapping[str, Any]] = []
    requests = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> MutableMapping[str, Any]:
        if requests:
            return requests.pop()
        await trio.sleep_forever()
        raise AssertionError

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "headers": [], "query_string": b""}
    resident = cast("Resident", SimpleNamespace(transactions=transactions, status=None))
    await make_app(resident)(scope, receive, send)
    return sent[0]["status"], b"".join(each.get("body", b"") for each in sent[1:])
