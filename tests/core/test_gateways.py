"""Gateways as values."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumbridge_compute.core.gateways import AllowList


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
