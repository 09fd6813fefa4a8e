"""The client of a node's resident agent, for apps that switch Scenes themselves.

    async with Node("/srv/node") as node:
        outcome = await node.activate("voice-laguna", on_event=print)

Under trio and asyncio alike.  Every call talks to the agent over its unix socket, so the models
belong to the agent, and what was begun goes on when the app ends.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Any, Self, TypeVar, cast

import anyio
import httpx

from lumbridge_compute import __version__
from lumbridge_compute.control.protocol import (
    ANSWER_S,
    ORDER_HEADER,
    PROTOCOL,
    PROTOCOL_HEADER,
    PULSE_S,
    SOCKET_NAME,
    VERSION_HEADER,
)
from lumbridge_compute.control.wire import WireError, from_plain, to_plain
from lumbridge_compute.core.documents import AgentDocument, StatusDocument
from lumbridge_compute.core.events import Event, EventKind, Outcome
from lumbridge_compute.errors import Busy, Exit, OperatorError
from lumbridge_compute.host.files import PRIVATE_FOLDER
from lumbridge_compute.host.lock import AGENT_LOCK_NAME, LockHolder, read_lock_holder
from lumbridge_compute.orders import Command, Order

__all__ = [
    "AgentDocument",
    "AgentLost",
    "AgentRefused",
    "AgentStuck",
    "Command",
    "Event",
    "EventKind",
    "Exit",
    "NoAgent",
    "Node",
    "Order",
    "Outcome",
    "StatusDocument",
]

_SILENCE_S = 4 * PULSE_S
_RETRY_S = 0.05

_T = TypeVar("_T")
OnEvent = Callable[[Event], object]


class NoAgent(OperatorError):
    """No agent is resident on the node; nothing was asked."""


class AgentStuck(Busy):
    """An agent holds its lock and does not answer; nothing was asked."""


class AgentRefused(OperatorError):
    """The agent does not take the request, in its own words; nothing was changed."""


class AgentLost(OperatorError):
    """The agent went away, or fell silent, before it told the outcome."""

    exit = Exit.DEGRADED


class Node:
    """The node at `root`, by way of its resident agent.

    `client_pid` is the process that the agent names as the one it works for, by default this one.
    Every method raises NoAgent, AgentStuck, AgentRefused or AgentLost.
    """

    def __init__(self, root: str | os.PathLike[str], *, client_pid: int | None = None) -> None:
        self.root = os.path.abspath(root)
        self.agent_version: str | None = None
        """The version of the agent that has answered last; None before."""
        self._client_pid = client_pid or os.getpid()
        self._numbers: set[int] = set()
        self._folder = -1
        self._http: httpx.AsyncClient | None = None

    async def __aenter__(self) -> Self:
        """Reach the agent."""
        self._folder = _open_folder(self.root)
        path = f"/proc/self/fd/{self._folder}/{SOCKET_NAME}"
        self._http = httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(uds=path),
            base_url="http://agent",
            headers={VERSION_HEADER: __version__, PROTOCOL_HEADER: str(PROTOCOL)},
            trust_env=False,
        )
        try:
            await self.agent()
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Let go of the agent; what it does for us goes on."""
        with anyio.CancelScope(shield=True):
            if self._http is not None:
                await self._http.aclose()
        if self._folder >= 0:
            os.close(self._folder)
        self._http, self._folder = None, -1

    # what changes the node

    async def activate(
        self, scene: str, *, wait: bool = False, on_event: OnEvent | None = None
    ) -> Outcome:
        """Switch to `scene`.  How it ended is in the outcome, failures included: `outcome.ok`,
        `.exit`, `.active_scene`, `.restored`, `.error` and `.hint`."""
        return await self.carry_out(Order(Command.ACTIVATE, scene, wait=wait), on_event)

    async def resume(
        self, *, force: bool = False, wait: bool = False, on_event: OnEvent | None = None
    ) -> Outcome:
        """Make the desired Scene true again, else the last known good one."""
        return await self.carry_out(Order(Command.RESUME, wait=wait, force=force), on_event)

    async def deactivate(self, *, wait: bool = False, on_event: OnEvent | None = None) -> Outcome:
        """Stop everything that is the node's own."""
        return await self.carry_out(Order(Command.DEACTIVATE, wait=wait), on_event)

    async def adopt(self, scene: str, pids: Mapping[str, int] | None = None) -> Outcome:
        """Bind a Scene that already runs; `pids` gives processes by model."""
        return await self.carry_out(Order(Command.ADOPT, scene, pids=dict(pids or {})))

    async def forget(self, model: str) -> Outcome:
        """Drop the record of `model`; signals nothing."""
        return await self.carry_out(Order(Command.FORGET, model))

    async def carry_out(self, order: Order, on_event: OnEvent | None = None) -> Outcome:
        """The outcome of `order`; `on_event` is told each step as it happens.

        Cancelling this leaves the transaction to the agent, unless it has not begun: `cancel` ends
        it.
        """
        asked = {"client_pid": self._client_pid, "asked_at_s": time.monotonic()}
        body = {**to_plain(order), **asked}
        async with self._stream("POST", "/orders", body) as answer:
            number = int(answer.headers.get(ORDER_HEADER, "0"))
            self._numbers.add(number)
            try:
                while (line := await answer.line()) is not None:
                    if "outcome" in line:
                        return _value(Outcome, line["outcome"])
                    if on_event is not None:
                        on_event(_value(Event, line.get("event")))
            finally:
                self._numbers.discard(number)
        raise _lost("it ended the answer without an outcome")

    async def cancel(self) -> bool:
        """Cancel what this object has asked for; it is put back.  A second time: it is left at
        once, unfinished.  False when there was nothing to cancel."""
        done = False
        for number in (*self._numbers,):
            done = await self._cancel(number) or done
        return done

    async def cancel_running(self) -> bool:
        """As `cancel`, for whatever is under way, whoever asked for it."""
        return await self._cancel(None)

    # what looks at it

    async def plan(self, scene: str) -> Outcome:
        """What an activation of `scene` would do: `.plan`, else `.refusals` or `.error`."""
        return await self.carry_out(Order(Command.ACTIVATE, scene, dry_run=True))

    async def status(self) -> StatusDocument:
        """The node as `status --json` shows it, every model asked now.

        It takes as long as the slowest model may take to answer.  However many ask at a time, the
        models are asked by one after the other.  Raises AgentRefused also where the agent can't
        look.
        """
        async with self._stream("GET", "/status") as answer:
            if (line := await answer.line()) is None:
                raise _lost("it ended the answer without a status")
        if "status" not in line:
            raise AgentRefused(str(line.get("error")), line.get("hint"))
        return cast("StatusDocument", line["status"])

    async def agent(self) -> AgentDocument:
        """The agent as it is now."""
        return cast("AgentDocument", await self._ask("GET", "/agent"))

    async def history(self, count: int = 20) -> list[dict[str, Any]]:
        """The newest `count` entries as `history --json` shows them, the newest last."""
        answer = await self._ask("GET", f"/history?n={count}")
        return cast("list[dict[str, Any]]", answer["entries"])

    async def events(self) -> AsyncGenerator[Event, None]:
        """Each step of every transaction from now on, whoever asked for it.

        Close the iterator (`contextlib.aclosing`) before the node.
        """
        async with self._stream("GET", "/events") as answer:
            while (line := await answer.line()) is not None:
                yield _value(Event, line.get("event"))

    # how

    async def _cancel(self, number: int | None) -> bool:
        answer = await self._ask("POST", "/cancel", {"order": number})
        return bool(answer.get("cancelled"))

    async def _ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        async with self._stream(method, path, body) as answer:
            return await answer.document()

    @asynccontextmanager
    async def _stream(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> AsyncIterator[_Answer]:
        """The answer, begun.  One that begins too late, or says no, is an error."""
        answer = _Answer(await self._begun(method, path, body))
        try:
            self.agent_version = answer.headers.get(VERSION_HEADER)
            if answer.status != 200:
                said = await answer.document()
                raise AgentRefused(str(said.get("error")), said.get("hint"))
            yield answer
        finally:
            await answer.aclose()

    async def _begun(
        self, method: str, path: str, body: Mapping[str, Any] | None
    ) -> httpx.Response:
        assert self._http is not None, "use it as `async with Node(root) as node`"  # noqa: S101
        timeout = httpx.Timeout(ANSWER_S, read=_SILENCE_S)
        request = self._http.build_request(method, path, json=body, timeout=timeout)
        try:
            with anyio.fail_after(ANSWER_S):
                while True:
                    with suppress(httpx.ConnectError):
                        return await self._http.send(request, stream=True)
                    # It may have just begun, and bind its socket in a moment.
                    _check_held(self._folder)
                    await anyio.sleep(_RETRY_S)
        except (TimeoutError, httpx.TimeoutException) as error:
            raise _stuck(_check_held(self._folder)) from error
        except httpx.TransportError as error:
            if method == "GET":
                _check_held(self._folder)
            raise _lost(str(error)) from error


class _Answer:
    """One response, read piece by piece."""

    def __init__(self, response: httpx.Response) -> None:
        self.headers, self.status = response.headers, response.status_code
        self._response = response
        self._pieces = aiter(response.aiter_raw())
        self._buffer = b""

    async def line(self) -> dict[str, Any] | None:
        """The next line that says something; None at the end.  Raises AgentLost."""
        while True:
            line, found, rest = self._buffer.partition(b"\n")
            if not found:
                piece = await self._piece()
                if not piece:
                    return None
                self._buffer += piece
                continue
            self._buffer = rest
            if line:
                return _document(line)

    async def document(self) -> dict[str, Any]:
        """The whole of it, within the time that an answer may take.  Raises AgentLost."""
        try:
            with anyio.fail_after(ANSWER_S):
                while piece := await self._piece():
                    self._buffer += piece
        except TimeoutError as error:
            raise _lost("the answer was cut off") from error
        return _document(self._buffer)

    async def aclose(self) -> None:
        """Take no more of it.  The iterator is driven to its end: one that is left behind would be
        reported when it is collected."""
        with anyio.CancelScope(shield=True), anyio.move_on_after(ANSWER_S):
            await self._response.aclose()
            with suppress(AgentLost, RuntimeError):
                while await self._piece():
                    pass

    async def _piece(self) -> bytes:
        try:
            return await anext(self._pieces, b"")
        except (httpx.TransportError, httpx.StreamError) as error:
            raise _lost(str(error)) from error


def _open_folder(root: str) -> int:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(os.path.join(root, PRIVATE_FOLDER), flags)
    except OSError as error:
        raise NoAgent(
            f"cannot reach an agent of {root!r}: {error.strerror}",
            "start one as the node's owner: lumbridge-compute agent",
        ) from error


def _check_held(folder: int) -> LockHolder:
    """Who holds the agent's lock.  Raises NoAgent where nobody does."""
    try:
        holder = read_lock_holder(AGENT_LOCK_NAME, folder=folder)
    except OSError:
        holder = None
    if holder is None:
        raise NoAgent("no agent is resident on this node", "lumbridge-compute agent")
    return holder


def _stuck(holder: LockHolder) -> AgentStuck:
    return AgentStuck(
        f"the agent (pid {holder.pid}) holds the node and has not answered for {ANSWER_S:g} s",
        "look at its log; to restart it leaves the models as they are",
    )


def _lost(cause: str) -> AgentLost:
    said = f": {cause}" if cause else ""
    return AgentLost(
        f"the agent was lost before it told the outcome{said}", "lumbridge-compute status"
    )


def _document(text: bytes | str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise _strange(str(error)) from error
    if not isinstance(document, dict):
        raise _strange(f"it sent {type(document).__name__}")
    return document


def _value(kind: type[_T], plain: object) -> _T:
    try:
        return from_plain(kind, plain)
    except WireError as error:
        raise _strange(str(error)) from error


def _strange(cause: str) -> AgentLost:
    return AgentLost(
        f"cannot understand the agent's answer: {cause}",
        "restart the agent after an upgrade; lumbridge-compute status",
    )
