"""The real effects: host, store and probe joined behind the seam of effects.py."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

from lumbridge_compute.core.health import Answer, Request
from lumbridge_compute.core.identity import Identity, Process
from lumbridge_compute.core.launch import Launch
from lumbridge_compute.core.values import replace
from lumbridge_compute.core.world import Listener, Memory
from lumbridge_compute.effects import HISTORY_FILE, Effects, Holder, ProcessHandle
from lumbridge_compute.errors import OperatorError, Refused
from lumbridge_compute.host import files, lock, pidfd, procfs, sockets, systemd
from lumbridge_compute.host.left_behind import LeftBehind
from lumbridge_compute.host.programs import find_log_faults, find_start_faults
from lumbridge_compute.host.strangers import describe_holders

if TYPE_CHECKING:
    from lumbridge_compute.host.spawn import Gate

LOG_FOLDER = "logs"
READ_LIMIT_BYTES = 16 * 1024 * 1024
_T = TypeVar("_T")


class HostEffects:
    """Implements Effects for the node at `root`, an absolute path.

    `client_pid` is the command for which an agent takes the lock; `left_behind` is shared by all
    effects of one agent.  Disk effects run in threads and are not cancelled half-way; what reads
    /proc runs inline, since it takes milliseconds.
    """

    def __init__(
        self,
        root: str,
        *,
        client_pid: int | None = None,
        left_behind: LeftBehind | None = None,
    ) -> None:
        self._root = root
        self._left_behind = left_behind or LeftBehind()
        self._private = os.path.join(root, files.PRIVATE_FOLDER)
        self._client_pid = client_pid

    def for_client(self, pid: int | None) -> HostEffects:
        return HostEffects(self._root, client_pid=pid, left_behind=self._left_behind)

    # time

    def now(self) -> float:
        """Seconds on the clock of the running trio loop."""
        import trio

        return trio.current_time()

    def timestamp(self) -> str:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())

    async def sleep(self, seconds: float) -> None:
        import trio

        await trio.sleep(seconds)

    # disk

    def try_lock(self, command: str) -> lock.NodeLock | Holder:
        """Take the node's lock, else tell who holds it.  Raises Refused where neither works."""
        files.make_private_folder(self._root)
        path = os.path.join(self._private, lock.LOCK_NAME)
        try:
            with files.open_private_folder(self._root) as folder:
                found = lock.try_lock(
                    lock.LOCK_NAME, command, folder=folder, client_pid=self._client_pid
                )
        except OSError as error:
            raise Refused(
                f"cannot lock {path!r}: {error.strerror}",
                f"run the command as the owner of {self._root!r}, on a disk that takes writes",
            ) from error
        if isinstance(found, lock.NodeLock):
            return found
        return Holder(found.pid, found.command, found.age_s or 0.0, found.client_pid)

    def lock_holder(self) -> Holder | None:
        """Who holds the node's lock, without taking it; None when nobody does."""
        try:
            with files.open_private_folder(self._root) as folder:
                found = lock.read_lock_holder(lock.LOCK_NAME, folder=folder)
        except OSError:
            return None
        if found is None:
            return None
        return Holder(found.pid, found.command, found.age_s or 0.0, found.client_pid)

    async def read(self, name: str) -> bytes | None:
        """The whole of a file; None when it is missing.  Raises Unreadable, a BadInput."""
        return await _in_thread(lambda: self.read_now(name))

    def read_now(self, name: str) -> bytes | None:
        """As `read`, for a command that waits for nothing."""
        shown = os.path.join(self._private, name)
        try:
            with files.open_private_folder(self._root) as folder:
                return files.read_bounded(name, READ_LIMIT_BYTES, folder=folder, shown=shown)
        except FileNotFoundError:
            return None
        except PermissionError as error:
            raise files.Unreadable(shown, files.Fault.FORBIDDEN) from error
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise files.Unreadable(shown, files.Fault.BROKEN, error.strerror) from error
            cause = f"{self._private!r} is a symbolic link or no folder"
            raise files.Unreadable(shown, files.Fault.SPECIAL, cause) from error

    async def create(self, name: str, data: bytes) -> None:
        await self._in_folder(lambda folder: files.create(folder, name, data), make=True)

    async def fsync(self, name: str) -> None:
        await self._in_folder(lambda folder: files.fsync(folder, name))

    async def rename(self, source: str, target: str) -> None:
        await self._in_folder(lambda folder: files.rename(folder, source, target))

    async def fsync_folder(self) -> None:
        await self._in_folder(os.fsync)

    async def remove(self, name: str) -> None:
        await self._in_folder(lambda folder: files.remove(folder, name))

    async def names(self) -> tuple[str, ...]:
        return await self._in_folder(lambda folder: tuple(sorted(os.listdir(folder))), make=True)

    async def append_history(self, line: bytes) -> None:
        """One more line; the oldest leave when there are too many.  Raises OSError."""
        from lumbridge_compute.store import history

        path = os.path.join(self._private, HISTORY_FILE)
        await _in_thread(lambda: history.append_history(path, line))

    async def trim_log(self, model: str) -> None:
        from lumbridge_compute.store import model_log

        path = self._log_path(model)
        await _in_thread(lambda: model_log.trim_log(path))

    async def log_tail(self, model: str, lines: int) -> tuple[str, ...]:
        from lumbridge_compute.store import model_log

        path = self._log_path(model)
        return await _in_thread(lambda: model_log.start_tail(path, lines))

    # processes

    def boot_id(self) -> str:
        return procfs.read_boot_id()

    def age_s(self, start_ticks: int) -> float:
        return max(0.0, procfs.read_uptime_s() - procfs.ticks_to_seconds(start_ticks))

    def own_pids(self, table: Mapping[int, Process] | None = None) -> frozenset[int]:
        """Those of this process, and of the command that an agent works for."""
        own = procfs.read_own_pids(table=table)
        if self._client_pid is None:
            return own
        return own | procfs.read_own_pids(self._client_pid, table=table)

    def identify(self, pid: int) -> Identity | None:
        return pidfd.identify(pid)

    def process(self, pid: int) -> Process | None:
        return procfs.read_process(pid)

    def processes(self) -> Mapping[int, Process]:
        return procfs.read_processes()

    def carriers(self, tokens: Collection[str]) -> Mapping[str, frozenset[int]]:
        return procfs.read_carriers(tokens)

    def scope_members(self, scopes: Collection[str]) -> Mapping[str, frozenset[int]]:
        return procfs.read_scope_members(scopes)

    def open_process(self, identity: Identity) -> pidfd.HeldProcess | None:
        return pidfd.open_same(identity)

    def keep(self, leader: ProcessHandle) -> None:
        self._left_behind.keep(leader.identity, leader.fileno())

    def left_behind(
        self, leaders: Collection[Identity], table: Mapping[int, Process]
    ) -> Mapping[Identity, frozenset[int]]:
        return self._left_behind.members(leaders, table)

    def permitted(self, identity: Identity) -> bool:
        return pidfd.permitted(identity)

    def restarting_unit(self, pid: int) -> str | None:
        """ "service 'x.service'" or the like; None too where this command sits in the same."""
        theirs = systemd.foreign_unit(procfs.read_cgroup(pid) or "")
        ours = systemd.foreign_unit(procfs.read_cgroup(os.getpid()) or "")
        return None if theirs == ours else theirs

    def new_token(self) -> str:
        return os.urandom(16).hex()

    def new_scope(self, model: str) -> str | None:
        if not systemd.detect_scopes(os.geteuid()):
            return None
        return systemd.scope_name(model, self.new_token())

    def unstartable(self, launch: Launch) -> tuple[str, ...]:
        return (*find_start_faults(launch), *find_log_faults(self._log_path(launch.model)))

    async def spawn(self, launch: Launch) -> Gate:
        """Start `launch` behind its gate, its output in the model's log.  Raises OSError."""
        return await _in_thread(lambda: self._spawn(launch))

    async def run(self, argv: tuple[str, ...], launch: Launch, timeout_s: float) -> str | None:
        """Run `argv` beside the model, its output in the model's log; None when it exits with 0.

        Else a sentence.  What has not ended within `timeout_s`, or when this is cancelled, is
        killed with its group.
        """
        import trio

        try:
            handle = await _in_thread(lambda: self._start(argv, launch))
        except OSError as error:
            return f"cannot run {argv[0]!r}: {error.strerror or error}"
        with handle:
            try:
                with trio.move_on_after(timeout_s):
                    await handle.wait()
            finally:
                in_time = handle.ended
                if not in_time:
                    await _kill(handle)
            cause = handle.exit_cause()
        if not in_time:
            return f"{argv[0]!r} did not end within {timeout_s:g} s and was killed"
        return None if cause == "exit code 0" else f"{argv[0]!r} ended with {cause}"

    # ports and memory

    def listeners(
        self, ports: Collection[int], among: Collection[int] | None = None
    ) -> tuple[Listener, ...]:
        found = sockets.read_listeners(ports, among)
        if among is not None:
            return found
        return tuple(replace(each, who=describe_holders(each)) for each in found)

    async def ask(self, request: Request) -> Answer:
        from lumbridge_compute import probe

        return await probe.ask(request)

    def memory(self) -> Memory | None:
        return procfs.read_memory()

    async def _in_folder(self, work: Callable[[int], _T], *, make: bool = False) -> _T:
        def call() -> _T:
            if make:
                files.make_private_folder(self._root)
            with files.open_private_folder(self._root) as folder:
                return work(folder)

        return await _in_thread(call)

    def _log_path(self, model: str) -> str:
        return os.path.join(self._private, LOG_FOLDER, f"{model}.log")

    @contextmanager
    def _log(self, launch: Launch, header: str) -> Iterator[int]:
        """A descriptor for output of the model, marked by a line.  Raises OSError."""
        from lumbridge_compute.store import model_log

        try:
            files.make_private_folder(self._root)
            os.makedirs(os.path.join(self._private, LOG_FOLDER), mode=0o700, exist_ok=True)
            descriptor = model_log.begin_start(self._log_path(launch.model), header)
        except OperatorError as error:
            # To a start that is under way, this is one more way in which the disk says no.
            raise OSError(error.message) from error
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _spawn(self, launch: Launch) -> Gate:
        from lumbridge_compute.host import spawn

        argv = launch.argv
        if launch.scope is not None:
            argv = systemd.scope_argv(launch.scope, argv)
        with self._log(launch, f"{launch.model} {self.timestamp()}") as log:
            return spawn.start_gated(launch.model, argv, launch.cwd, launch.env, log)

    def _start(self, argv: tuple[str, ...], launch: Launch) -> pidfd.HeldProcess:
        from lumbridge_compute.host import spawn

        with (
            self._log(launch, f"{launch.model} {self.timestamp()}, stop_command") as log,
            open(os.devnull, "rb") as nothing,
        ):
            return spawn.start(argv, launch.cwd, launch.env, nothing.fileno(), log)


async def _in_thread(work: Callable[[], _T]) -> _T:
    import trio

    return await trio.to_thread.run_sync(work)


async def _kill(handle: pidfd.HeldProcess) -> None:
    import signal

    import trio

    with suppress(PermissionError):  # it has become another user's
        handle.signal_group(signal.SIGKILL)
    with trio.CancelScope(shield=True), trio.move_on_after(1):
        await handle.wait()


def _implements(effects: HostEffects) -> Effects:
    """Lets the type checker compare the class with the seam."""
    return effects
