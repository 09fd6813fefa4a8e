"""The listening sockets of the gateways: checked, taken over from an earlier agent, or opened."""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from lumbridge_compute.core.registry import Address, GatewaySpec, Model
from lumbridge_compute.core.registry_rules import gateway_breaches
from lumbridge_compute.errors import Refused
from lumbridge_compute.gateway import sockets
from lumbridge_compute.host.sockets import read_listeners
from lumbridge_compute.host.strangers import describe_holders

_REASONS = {
    errno.EADDRNOTAVAIL: "no interface of this machine has this address",
    errno.EACCES: "ports below 1024 need root or CAP_NET_BIND_SERVICE",
}


@dataclass(frozen=True, slots=True)
class Listener:
    """What a gateway serves: its declaration and its listening socket, which the opener closes."""

    spec: GatewaySpec
    sock: socket.socket


def validate(specs: Collection[GatewaySpec], models: Mapping[str, Model]) -> None:
    """Refuse declarations that can't work beside `models`.  Raises Refused with every reason."""
    pairs = [(spec.listen, spec.upstream) for spec in specs]
    breaches = gateway_breaches(pairs, {name: model.port for name, model in models.items()})
    faults = [breach.message for breach in breaches]
    if faults:
        message = f"cannot serve the gateways: {'; '.join(faults)}"
        raise Refused(message, "give each gateway an address that nothing else has")


def open_listeners(
    specs: Sequence[GatewaySpec], handed_over: Iterable[socket.socket] = ()
) -> tuple[Listener, ...]:
    """A listening socket for each of `specs`: the one in `handed_over` with its address, else new.

    The sockets in `handed_over` belong to the result; those that nobody wants are closed.
    Raises Refused with the reason for every address that can't be had; nothing stays open then.
    """
    given = {key: sock for sock in handed_over if (key := _adopt(sock)) is not None}
    opened: list[Listener] = []
    reasons: list[str] = []
    for spec in specs:
        try:
            sock = given.pop(_to_key(spec.listen), None) or sockets.open_listener(spec.listen)
        except OSError as error:
            reasons.append(f"cannot listen on {spec.listen}: {_explain(spec.listen, error)}")
        else:
            opened.append(Listener(spec, sock))
    for sock in given.values():
        sock.close()
    if reasons:
        for listener in opened:
            listener.sock.close()
        raise Refused("; ".join(reasons), "end what holds it, or give the gateway another address")
    return tuple(opened)


def _adopt(sock: socket.socket) -> tuple[int, int] | None:
    """Prepare a socket handed over and tell its address; None, and closed, when it is of no use."""
    try:
        if (
            sock.family in (socket.AF_INET, socket.AF_INET6)
            and sock.type & socket.SOCK_STREAM
            and sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        ):
            sockets.prepare_listener(sock)
            host, port = sock.getsockname()[:2]
            return _to_key(Address(host, port))
    except OSError:
        pass
    sock.close()
    return None


def _to_key(address: Address) -> tuple[int, int]:
    """`address` however it is written; IPv4 and IPv6 differ."""
    host = ipaddress.ip_address(address.host)
    return int(host) + (host.version << 128), address.port


def _explain(address: Address, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"the address is taken{_name_holders(address.port)}"
    return _REASONS.get(error.errno or 0, error.strerror or str(error))


def _name_holders(port: int) -> str:
    names = dict.fromkeys(describe_holders(listener) for listener in read_listeners((port,)))
    return f" by {', '.join(names)}" if names else ""
