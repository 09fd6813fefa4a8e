"""Whose listening sockets: every one of the port must be the model's."""

from __future__ import annotations

from dataclasses import replace

from lumbridge_compute.core.health import HealthName
from lumbridge_compute.core.ports import judge_listeners, render_holders
from lumbridge_compute.core.registry import Model, PortOwner
from lumbridge_compute.core.world import Listener

LLM = Model("qwen", ("serve",), 8001, "qwen3-30b")
ANY = replace(LLM, port_owner=PortOwner.ANY)
OURS = frozenset({100, 101})


def listener(*pids: int, port: int = 8001, who: str = "", address: str = "127.0.0.1") -> Listener:
    return Listener(address, port, inode=1, uid=33, pids=frozenset(pids), who=who)


def test_own_sockets_on_both_families_are_fine() -> None:
    sockets = [listener(100), listener(101, address="::1"), listener(100, 101)]
    assert judge_listeners(LLM, sockets, OURS, owned=True) is None


def test_other_ports_do_not_matter() -> None:
    sockets = [listener(100), listener(7, port=8002)]
    assert judge_listeners(LLM, sockets, OURS, owned=True) is None


def test_no_socket_yet_means_starting() -> None:
    health = judge_listeners(LLM, [listener(7, port=1)], OURS, owned=True)
    assert health is not None
    assert (health.name, health.detail) == (
        HealthName.STARTING,
        "nobody listens on port 8001 yet",
    )


def test_no_socket_and_no_process_is_unreachable() -> None:
    health = judge_listeners(LLM, [], frozenset(), owned=False)
    assert health is not None
    assert health.name is HealthName.UNREACHABLE


def test_a_stranger_is_named() -> None:
    health = judge_listeners(LLM, [listener(7, who="pid 7 (nginx)")], OURS, owned=True)
    assert health is not None
    assert health.name is HealthName.FOREIGN_LISTENER
    assert health.detail == "port 8001 is held by pid 7 (nginx), not by 'qwen'"


def test_a_socket_whose_holder_is_hidden_is_foreign_and_its_user_named() -> None:
    health = judge_listeners(LLM, [listener()], OURS, owned=True)
    assert health is not None
    assert health.name is HealthName.FOREIGN_LISTENER
    assert "user 33" in (health.detail or "")


def test_a_stranger_beside_us_shares_the_port() -> None:
    sockets = [listener(100), listener(7, who="pid 7 (llama-server)", address="::")]
    health = judge_listeners(LLM, sockets, OURS, owned=True)
    assert health is not None
    assert health.name is HealthName.SHARED_PORT
    assert health.detail == "port 8001 is shared by 'qwen' and pid 7 (llama-server)"


def test_one_socket_held_by_us_and_a_stranger_is_shared() -> None:
    health = judge_listeners(LLM, [listener(100, 7)], OURS, owned=True)
    assert health is not None
    assert health.name is HealthName.SHARED_PORT


def test_any_owner_will_do_where_the_registry_says_so() -> None:
    assert judge_listeners(ANY, [listener(7)], OURS, owned=True) is None
    assert judge_listeners(ANY, [listener()], OURS, owned=True) is None
    starting = judge_listeners(ANY, [], OURS, owned=True)
    assert starting is not None
    assert starting.name is HealthName.STARTING


def test_holders_are_named_once_shortly_and_printably() -> None:
    names = ["pid 7 (a\x1b[31m)", "pid 7 (a\x1b[31m)", "b", "c", "d", "e"]
    shown = render_holders([listener(7, who=who) for who in names])
    assert shown == "pid 7 (a?[31m), b, c and 2 more"
    assert render_holders([listener(9, 8)]) == "pid 8, pid 9"
