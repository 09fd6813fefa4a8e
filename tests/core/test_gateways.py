"""Gateways as values."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumbridge_compute.core.gateways import AllowList, gateway_faults, overlaps
from lumbridge_compute.core.registry import Address, GatewaySpec, Model

MODELS = {"qwen": Model("qwen", ("serve",), 8001, "qwen")}


def parse_address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return Address(host.strip("[]"), int(port))


def gateways(*pairs: str) -> list[GatewaySpec]:
    """Specs from "LISTEN > UPSTREAM"."""
    specs = []
    for pair in pairs:
        listen, _, upstream = pair.partition(" > ")
        specs.append(GatewaySpec(parse_address(listen), parse_address(upstream)))
    return specs


@given(st.lists(st.ip_addresses(v=4), max_size=3), st.integers(0, 32), st.ip_addresses(v=4))
def test_an_ipv4_client_is_allowed_by_its_network_and_as_a_mapped_address(
    networks: list[ipaddress.IPv4Address], prefix: int, client: ipaddress.IPv4Address
) -> None:
    ranges = [ipaddress.ip_network((network, prefix), strict=False) for network in networks]
    expected = not ranges or any(client in network for network in ranges)
    allowed = AllowList(map(str, ranges))
    assert allowed.allows(str(client)) == allowed.allows(f"::ffff:{client}") == expected


@given(st.ip_addresses(v=6), st.integers(0, 128), st.ip_addresses(v=6))
def test_an_ipv6_client_is_allowed_by_its_network(
    network: ipaddress.IPv6Address, prefix: int, client: ipaddress.IPv6Address
) -> None:
    allowed = ipaddress.ip_network((network, prefix), strict=False)
    plain = ipaddress.IPv6Address(int(client))
    assert AllowList([str(allowed)]).allows(f"{plain}%eth0") == (plain in allowed)


@pytest.mark.parametrize("network", ["10.0.0.1/8", "everyone", "10.0.0.0/33"])
def test_what_is_no_network_is_no_allow_list(network: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        AllowList([network])


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("127.0.0.1:1", "127.0.0.1:1", True),
        ("127.0.0.1:1", "127.0.0.1:2", False),
        ("127.0.0.1:1", "127.0.0.2:1", False),
        ("0.0.0.0:1", "127.0.0.1:1", True),
        ("0.0.0.0:1", "[::1]:1", False),
        ("[::]:1", "127.0.0.1:1", True),
        ("[::]:1", "0.0.0.0:1", True),
        ("[::ffff:127.0.0.1]:1", "127.0.0.1:1", True),
        ("[::1]:1", "[0:0:0:0:0:0:0:1]:1", True),
    ],
)
def test_addresses_overlap_where_one_listener_would_take_the_others_clients(
    one: str, other: str, *, expected: bool
) -> None:
    assert overlaps(parse_address(one), parse_address(other)) == expected
    assert overlaps(parse_address(other), parse_address(one)) == expected


def test_gateways_that_work_have_no_faults() -> None:
    specs = gateways("0.0.0.0:8011 > 127.0.0.1:8001", "[::1]:8012 > 127.0.0.1:8001")
    assert gateway_faults(specs, MODELS) == ()


def test_every_fault_is_told() -> None:
    specs = gateways(
        "192.168.1.5:8001 > 127.0.0.1:8002",
        "0.0.0.0:9000 > 127.0.0.1:9000",
        "127.0.0.1:9000 > 127.0.0.1:8002",
    )
    assert gateway_faults(specs, MODELS) == (
        "cannot serve the gateway at 192.168.1.5:8001: port 8001 is the port of the model 'qwen'",
        "cannot serve the gateway at 0.0.0.0:9000: its upstream 127.0.0.1:9000 is this address",
        "cannot serve the gateway at 127.0.0.1:9000: the gateway at 0.0.0.0:9000 has this address",
    )


def test_gateways_that_lead_into_each_other_are_refused() -> None:
    specs = gateways(
        "127.0.0.1:1 > 127.0.0.1:2", "127.0.0.1:2 > 127.0.0.1:3", "127.0.0.1:3 > 127.0.0.1:1"
    )
    faults = gateway_faults(specs, MODELS)
    assert len(faults) == 3
    assert faults[0] == (
        "cannot serve the gateway at 127.0.0.1:1: "
        "its upstream 127.0.0.1:2 leads back to it through other gateways"
    )
    assert gateway_faults(specs[:2], MODELS) == ()
