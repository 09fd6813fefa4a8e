"""The control socket served: connections bounded in number and patience, HTTP by hypercorn."""

from __future__ import annotations

import logging
import os

import trio
from hypercorn.config import Config
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState
from hypercorn.utils import wrap_app

from lumbridge_compute.control.app import make_app
from lumbridge_compute.control.unix_socket import open_control_socket, read_peer_uid
from lumbridge_compute.resident.view import Resident

MAX_CONNECTIONS = 64
SEND_S = 10.0
_FAREWELL_S = 0.5
"""How long answers may still go out once the agent leaves."""

_ACCEPT_PAUSE_S = 0.1
_HTTP_2 = (b"HTTP/1.1 101", b"\0")
"""An answer that begins so is the turn to it: the consent to an upgrade, or the length of a frame.

Source: RFC 9113, 4.1 "Frame Format"; RFC 7540, 3.2.
"""

_log = logging.getLogger(__name__)


async def serve_control(
    resident: Resident,
    *,
    send_s: float = SEND_S,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the agent's socket until cancelled; what has an answer by then still gets it.

    A client that takes nothing for `send_s` seconds is let go.
    Raises Refused where the socket can't be made.
    """
    with open_control_socket(resident.site.root) as sock:
        listener = trio.socket.from_stdlib_socket(sock)
        server = _Server(resident, send_s)
        async with trio.open_nursery() as nursery:
            handlers = await nursery.start(server.keep_handlers)
            task_status.started()
            try:
                await server.accept(listener, handlers)
            finally:
                server.leaving.set()


class _Server:
    """Connections of one socket, each a task."""

    def __init__(self, resident: Resident, send_s: float) -> None:
        self._send_s = send_s
        self.leaving = trio.Event()
        self._context = WorkerContext(None)
        self._app = wrap_app(make_app(resident), 0, "asgi")  # type: ignore[arg-type]
        self._config = _config()
        self._free = trio.CapacityLimiter(MAX_CONNECTIONS)

    async def keep_handlers(
        self, task_status: trio.TaskStatus[trio.Nursery] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """The connections' tasks: a cancellation reaches them after a farewell."""
        async with trio.open_nursery() as handlers:
            task_status.started(handlers)
            # Cancelled while it began: nobody would ever tell a shielded one to leave.
            await trio.lowlevel.checkpoint_if_cancelled()
            handlers.cancel_scope.shield = True
            await self.leaving.wait()
            handlers.cancel_scope.deadline = trio.current_time() + _FAREWELL_S
            await self._context.terminated.set()

    async def accept(self, listener: trio.socket.SocketType, handlers: trio.Nursery) -> None:
        """Take one connection after another, as many at a time as are allowed."""
        while True:
            await self._free.acquire_on_behalf_of(place := object())
            try:
                sock, _ = await listener.accept()
            except OSError as error:
                self._free.release_on_behalf_of(place)
                _log.error("cannot accept on the control socket cause=%r", error.strerror)
                await trio.sleep(_ACCEPT_PAUSE_S)
                continue
            except BaseException:
                self._free.release_on_behalf_of(place)
                raise
            handlers.start_soon(self._serve, sock, place)

    async def _serve(self, sock: trio.socket.SocketType, place: object) -> None:
        try:
            if read_peer_uid(sock.fileno()) in (0, os.geteuid()):
                state = ConnectionState({})
                with trio.CancelScope() as end:
                    stream = _PatientStream(sock, self._send_s, end)
                    await TCPServer(self._app, self._config, self._context, state, stream)  # type: ignore[arg-type]
        except Exception:  # noqa: BLE001 - no client may end the agent
            _log.exception("a connection to the control socket broke")
        finally:
            sock.close()
            self._free.release_on_behalf_of(place)


class _PatientStream:
    """A stream of HTTP/1 whose client has to take what it asked for within a bounded time.

    hypercorn shields what it sends from every cancellation, and can't be told to leave HTTP/2
    alone, where a silent client keeps its place without a bound.
    """

    def __init__(self, sock: trio.socket.SocketType, send_s: float, end: trio.CancelScope) -> None:
        """`end` is cancelled to end the connection."""
        self.socket = sock
        self._send_s = send_s
        self._stream = trio.SocketStream(sock)
        self._end = end

    async def send_all(self, data: bytes) -> None:
        if data.startswith(_HTTP_2):
            self._end.cancel()
            raise trio.BrokenResourceError("the client wants HTTP/2")
        with trio.move_on_after(self._send_s) as bound:
            await self._stream.send_all(data)
        if bound.cancelled_caught:
            raise trio.BrokenResourceError("the client takes nothing")

    async def receive_some(self, most: int) -> bytes:
        return bytes(await self._stream.receive_some(most))

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def aclose(self) -> None:
        await self._stream.aclose()


def _config() -> Config:
    config = Config()
    config.include_server_header = False
    config.accesslog = None
    config.errorlog = _log
    config.alpn_protocols = ["http/1.1"]
    return config
