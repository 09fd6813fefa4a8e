"""Gateways as values: which clients one takes, which declarations can't work, what one reports."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from lumbridge_compute.core.registry import Address, GatewaySpec, Model

_MAPPED_PREFIX = 0xFFFF << 32  # ::ffff:0:0/96, where IPv4 sits in IPv6 (RFC 4291, section 2.5.5.2)
_IPV4_BITS = 32
_IPV6_BITS = 128


@dataclass(frozen=True, slots=True)
class GatewayStatus:
    """One gateway at one moment.

    `mode` is `relaying`, `expecting` (what the upstream refuses is held) or `holding`;
    `connections` are those with an upstream, `held` those that wait for one; `refused` counts
    clients turned away without one, `reset` relayed connections that ended with a RST; `up` is
    what clients sent.
    """

    listen: Address
    upstream: Address
    mode: str
    connections: int
    held: int
    total: int
    refused: int
    reset: int
    up_bytes: int
    down_bytes: int


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


def gateway_faults(specs: Collection[GatewaySpec], models: Mapping[str, Model]) -> tuple[str, ...]:
    """A sentence for each reason why `specs` can't be served beside `models`; none when they can.

    A model's port is refused on every address: whoever listens on it would pass for the model.
    """
    return tuple(_faults(tuple(specs), models))


def overlaps(one: Address, other: Address) -> bool:
    """Whether the two have an address and port in common; `0.0.0.0` and `::` stand for all.

    A listener on `::` takes IPv4 too.
    """
    if one.port != other.port:
        return False
    (first, last), (other_first, other_last) = _claimed(one), _claimed(other)
    return first <= other_last and other_first <= last


def _faults(specs: tuple[GatewaySpec, ...], models: Mapping[str, Model]) -> Iterator[str]:
    for at, spec in enumerate(specs):
        cannot = f"cannot serve the gateway at {spec.listen}"
        for name in sorted(models):
            if models[name].port == spec.listen.port:
                yield f"{cannot}: port {spec.listen.port} is the port of the model '{name}'"
        for other in specs[:at]:
            if overlaps(spec.listen, other.listen):
                yield f"{cannot}: the gateway at {other.listen} has this address"
        if overlaps(spec.listen, spec.upstream):
            yield f"{cannot}: its upstream {spec.upstream} is this address"
        elif _leads_back(spec, specs):
            yield f"{cannot}: its upstream {spec.upstream} leads back to it through other gateways"


def _leads_back(start: GatewaySpec, specs: tuple[GatewaySpec, ...]) -> bool:
    """Whether connections of `start` reach `start` again, from gateway to gateway."""
    reached: list[GatewaySpec] = [start]
    for spec in reached:
        for other in specs:
            if overlaps(other.listen, spec.upstream):
                if other is start:
                    return True
                if other not in reached:
                    reached.append(other)
    return False


def _claimed(address: Address) -> tuple[int, int]:
    """The first and the last of the addresses that `address` stands for."""
    host = ipaddress.ip_address(address.host)
    if not host.is_unspecified:
        return _to_number(host), _to_number(host)
    return _to_range(ipaddress.ip_network("0.0.0.0/0" if host.version == 4 else "::/0"))


def _to_range(network: ipaddress.IPv4Network | ipaddress.IPv6Network) -> tuple[int, int]:
    return _to_number(network.network_address), _to_number(network.broadcast_address)


def _to_number(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> int:
    """`address` as an IPv6 one."""
    return int(address) | _MAPPED_PREFIX if address.version == 4 else int(address)
