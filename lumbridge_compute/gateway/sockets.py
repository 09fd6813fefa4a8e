"""The TCP sockets of the gateway: how they are opened, and what is asked of them.

Source: socket(7), tcp(7).  On Linux an accepted socket inherits the options set here from its
listener, so that a client's socket has them before it is accepted.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import struct

from lumbridge_compute.core.registry import Address

BACKLOG = 4096

_LINGER_ZERO = struct.pack("ii", 1, 0)
_LINGER_OFF = struct.pack("ii", 0, 0)
_ESTABLISHED = 1  # TCP_ESTABLISHED of include/net/tcp_states.h, as told by TCP_INFO
_SOCKET_TYPE = socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC

_KEEPALIVE = (
    (socket.TCP_KEEPIDLE, 60),
    (socket.TCP_KEEPINTVL, 15),
    (socket.TCP_KEEPCNT, 4),
)
"""A client whose machine has vanished is noticed after two minutes, not after two hours."""


def open_socket(address: Address) -> socket.socket:
    """A non-blocking socket of the family of `address`, with the options of a relayed one.

    Raises OSError when none can be had.
    """
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    sock = socket.socket(family, _SOCKET_TYPE)
    try:
        set_relay_options(sock)
    except OSError:
        sock.close()
        raise
    return sock


def open_listener(address: Address) -> socket.socket:
    """A listening socket on `address`; one on `::` takes IPv4 clients as well.

    Raises OSError when the address is taken, not this machine's, or not permitted.
    """
    sock = open_socket(address)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if sock.family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        prepare_listener(sock)
        sock.bind((address.host, address.port))
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock


def prepare_listener(sock: socket.socket) -> None:
    """Set what accepted sockets are to inherit on a listener, opened here or handed over."""
    sock.settimeout(0)
    set_relay_options(sock)
    for option, value in _KEEPALIVE:
        sock.setsockopt(socket.IPPROTO_TCP, option, value)


def set_relay_options(sock: socket.socket) -> None:
    """Let `sock` send at once, notice a vanished peer, and end with a RST however it is closed.

    Linger 0 makes the kernel send a RST also when it closes for a killed process.  An urgent byte
    stays in its place among the others.
    """
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)


def lift_linger(sock: socket.socket) -> None:
    """Let closing `sock` deliver what it has, and a FIN."""
    with contextlib.suppress(OSError):  # a reset that came meanwhile leaves nothing to deliver
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_OFF)


def has_ended(sock: socket.socket) -> bool:
    """Whether the peer of a socket that we have not shut down has sent a FIN or a RST."""
    state = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    return state != _ESTABLISHED


def meets_itself(sock: socket.socket, target: Address) -> bool:
    """Whether `sock`, connecting to `target`, has got that very address as its own.

    TCP lets an ephemeral port connect to its own number.
    """
    host, port = sock.getsockname()[:2]
    return port == target.port and ipaddress.ip_address(host) == ipaddress.ip_address(target.host)
