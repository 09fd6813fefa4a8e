"""`agent`: stay resident until SIGTERM."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import trio

from lumbridge_compute.agent import AgentSettings, run_agent
from lumbridge_compute.cli.agent_log import set_up_log
from lumbridge_compute.cli.call import Call
from lumbridge_compute.cli.guard import check_descriptors, check_owner
from lumbridge_compute.cli.node import registry_of
from lumbridge_compute.core.registry import GatewaySpec
from lumbridge_compute.core.units import render_seconds
from lumbridge_compute.errors import BadInput, Busy, Exit, OperatorError, Refused
from lumbridge_compute.host.files import make_private_folder, open_private_folder
from lumbridge_compute.host.lock import AGENT_LOCK_NAME, NodeLock, try_lock
from lumbridge_compute.host.service_manager import take_descriptors
from lumbridge_compute.resident.declared import Overrides

_log = logging.getLogger("lumbridge_compute.agent")


def run_agent_command(call: Call) -> int:
    """0 after SIGTERM or SIGINT.  Raises OperatorError, also where a child of the agent failed."""
    root, overrides = call.root(), _overrides(call)
    check_descriptors()
    check_owner(root, "agent")
    gc.enable()
    set_up_log(call)
    with _agent_lock(root) as lock:
        settings = AgentSettings(
            root,
            call.environ,
            lambda: registry_of(root),
            overrides,
            lambda: _is_in_place(lock, root),
            tuple(take_descriptors()),
        )
        _serve(settings, verbose=call.options.verbose)
    if call.json:
        call.print_document({"ok": True, "exit": int(Exit.DONE)})
    return Exit.DONE


def _serve(settings: AgentSettings, *, verbose: bool) -> None:
    try:
        trio.run(run_agent, settings)
    except BaseException as error:
        failure = _first(error)
        if isinstance(failure, OperatorError) or not isinstance(failure, Exception):
            raise failure from None
        if verbose:
            _log.exception("the agent has failed")
        raise _failed(failure) from error


def _failed(error: Exception) -> OperatorError:
    failure = OperatorError(
        f"the agent has failed and leaves, the models as they are: {type(error).__name__}: {error}",
        "report it, with what `agent -v` says; the service manager starts it again",
    )
    failure.exit = Exit.FAILED_SAFELY
    return failure


def _first(error: BaseException) -> BaseException:
    """The first cause, wherever in the tree it was raised; an operator's matter before others."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    found = [_first(each) for each in error.exceptions]
    return next((each for each in found if isinstance(each, OperatorError)), found[0])


def _overrides(call: Call) -> Overrides:
    """What the options say instead of the registry.  Raises BadInput."""
    listens, upstreams = call.options.listen or [], call.options.upstream or []
    if len(listens) != len(upstreams):
        raise BadInput(
            f"cannot pair {len(listens)} --listen with {len(upstreams)} --upstream",
            "give one --upstream for each --listen, in the same order",
        )
    pairs = zip(listens, upstreams, strict=True)
    specs = tuple(GatewaySpec(listen, upstream) for listen, upstream in pairs)
    return Overrides(specs, call.options.floor)


@contextmanager
def _agent_lock(root: str) -> Iterator[NodeLock]:
    """Be the node's one agent.  Raises Busy with the name of the other, or Refused."""
    make_private_folder(root)
    try:
        with open_private_folder(root) as folder:
            lock = try_lock(AGENT_LOCK_NAME, "agent", folder=folder)
    except OSError as error:
        raise Refused(
            f"cannot lock the agent of {root!r}: {error.strerror}",
            f"run it as the owner of {root!r}, on a disk that takes writes",
        ) from error
    if not isinstance(lock, NodeLock):
        age = f", for {render_seconds(lock.age_s)}" if lock.age_s is not None else ""
        raise Busy(
            f"cannot be the agent of {root!r}: another one is resident (pid {lock.pid}{age})",
            "one agent serves a node: see `lumbridge-compute status`",
        )
    try:
        yield lock
    finally:
        lock.release()


def _is_in_place(lock: NodeLock, root: str) -> bool:
    """Whether who looks for the agent's lock finds `lock`; so where that can't be told now."""
    try:
        with open_private_folder(root) as folder:
            return lock.is_at(AGENT_LOCK_NAME, folder)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
