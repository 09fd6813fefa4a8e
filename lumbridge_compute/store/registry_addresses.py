"""Ports, literal addresses and networks of the registry."""

from __future__ import annotations

from lumbridge_compute.core.registry import Address
from lumbridge_compute.store.registry_shapes import Text, same
from lumbridge_compute.store.registry_units import up_to
from lumbridge_compute.store.yaml_values import Kind

_PORT = up_to(65535, least=1)
_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = rf"(?:{_OCTET}\.){{3}}{_OCTET}"


def _ipv6() -> str:
    """Source: RFC 3986 section 3.2.2."""
    part = "[0-9a-fA-F]{1,4}"
    last = f"(?:{part}:{part}|{_IPV4})"
    forms = [f"(?:{part}:){{6}}{last}", f"::(?:{part}:){{5}}{last}"]
    for left in range(1, 8):
        front = f"(?:(?:{part}:){{0,{left - 1}}}{part})?::"
        after = {5: last, 6: part, 7: ""}.get(left, f"(?:{part}:){{{5 - left}}}{last}")
        forms.append(front + after)
    return f"(?:{'|'.join(forms)})"


_IPV6 = _ipv6()


def _host(text: str) -> str:
    if ":" not in text:
        return text
    import ipaddress  # 2 ms that only IPv6 needs

    return str(ipaddress.IPv6Address(text))


def parse_address(text: str) -> Address:
    """A literal address and a port from "127.0.0.1:8011" or "[::1]:8011".  Raises ValueError."""
    if not ADDRESS.fits(text):
        raise ValueError(f"wants {ADDRESS.wants}, found {text[:64]!r}")
    host, _, port = text.rpartition(":")
    return Address(_host(host.strip("[]")), int(port))


def _network(text: str) -> str:
    import ipaddress  # 2 ms that only `allow` needs

    network = ipaddress.ip_network(text, strict=False)
    if ipaddress.ip_network(text.partition("/")[0]).network_address != network.network_address:
        raise ValueError(f"{text!r} names one address with a prefix: the network is {network}")
    return str(network)


PORT = Text(
    "a port from 1 to 65535",
    f"^{_PORT}$",
    int,
    int,
    frozenset({Kind.INT}),
    ("integer",),
    {"minimum": 1, "maximum": 65535},
    hint="write it as a decimal number without quotes",
)
HOST = Text(
    "a literal IPv4 or IPv6 address",
    f"^(?:{_IPV4}|{_IPV6})$",
    _host,
    same,
    common=_IPV4,
    hint="write it as 127.0.0.1 or ::1; names are not looked up",
)
ADDRESS = Text(
    "a literal address and a port",
    rf"^(?:{_IPV4}|\[{_IPV6}\]):{_PORT}$",
    parse_address,
    str,
    common=f"{_IPV4}:{_PORT}",
    hint="write it as 127.0.0.1:8011 or [::1]:8011",
)
NETWORK = Text(
    "a network",
    f"^(?:{_IPV4}(?:/{up_to(32)})?|{_IPV6}(?:/{up_to(128)})?)$",
    _network,
    same,
    common=f"{_IPV4}/{up_to(32)}",
    hint="write it as 10.0.0.0/8, fd00::/8 or 192.0.2.1",
)
