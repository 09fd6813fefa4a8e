"""Too few descriptors: refused before the first change, and never because clients have them all."""

from __future__ import annotations

import resource
import socket
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from tests.system.agent import start_agent
from tests.system.node import SystemNode, free_port

FEWEST = 6  # Python itself needs some to begin
ENOUGH = 100


def limit(count: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))


@pytest.mark.parametrize("resident", [False, True], ids=["alone", "with an agent"])
def test_too_few_descriptors_are_refused(pair: SystemNode, *, resident: bool) -> None:
    pair.ok("scene", "activate", "day")
    before = (pair.root / ".kuda" / "state.yaml").read_bytes()
    if resident:
        start_agent(pair)
    for count in (FEWEST, 9, 12, 16, 24, 40):
        ran = pair.run("scene", "activate", "night", "--json", preexec_fn=limit(count))
        assert ran.exit == 3, (count, ran)
        assert "free descriptors" in ran.json["error"]
        assert "ulimit -n" in ran.json["hint"]
        assert (pair.root / ".kuda" / "state.yaml").read_bytes() == before
    assert pair.status()["verdict"] == "exact"
    pair.ok("scene", "activate", "night", preexec_fn=limit(ENOUGH))


def test_clients_that_use_up_the_gateways_descriptors_do_not_stop_a_switch(
    pair: SystemNode,
) -> None:
    listen = free_port()
    pair.settings["gateways"] = [
        {"listen": f"127.0.0.1:{listen}", "upstream": f"127.0.0.1:{pair.models['voice']['port']}"}
    ]
    pair.write()
    agent = start_agent(pair, preexec_fn=limit(100))
    pair.ok("scene", "activate", "day")
    with ExitStack() as opened:
        for _ in range(100):
            client = opened.enter_context(socket.create_connection(("127.0.0.1", listen), 20))
            client.sendall(b"GET /v1/models HTTP/1.1\r\nHost: a\r\n\r\n")
        pair.ok("scene", "activate", "night")
        pair.ok("scene", "activate", "day")
    assert pair.status()["verdict"] == "exact"
    assert "Too many open files" not in agent.log
    agent.leave()
