"""Which clients a gateway takes."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

_MAPPED_PREFIX = 0xFFFF << 32  # ::ffff:0:0/96, where IPv4 sits in IPv6 (RFC 4291, section 2.5.5.2)


class AllowList:
    """The networks whose clients may connect; an empty list allows all.

    An IPv4 address and the same one mapped into IPv6 are one address.
    """

    def __init__(self, networks: Iterable[str]) -> None:
        """Raises ValueError when one is not a network, or has bits set beyond its prefix."""
        self._networks = [_to_range(ipaddress.ip_network(network)) for network in networks]

    def allows(self, host: str) -> bool:
        """Whether the client at `host`, a literal address, may connect."""
        if not self._networks:
            return True
        number = _to_number(ipaddress.ip_address(host.partition("%")[0]))
        return any(first <= number <= last for first, last in self._networks)


def _to_range(network: ipaddress.IPv4Network | ipaddress.IPv6Network) -> tuple[int, int]:
    return _to_number(network.network_address), _to_number(network.broadcast_address)


def _to_number(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> int:
    """`address` as an IPv6 one."""
    return int(address) | _MAPPED_PREFIX if address.version == 4 else int(address)
