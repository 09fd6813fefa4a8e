"""The node's state on disk through the effects: memory follows disk, never leads it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import trio

from lumbridge_compute.core.state import NodeState
from lumbridge_compute.core.withheld import without_literals
from lumbridge_compute.effects import STATE_FILE, Effects
from lumbridge_compute.errors import BadInput, OperatorError, Refused
from lumbridge_compute.store.state_file import parse_state, render_state

_TEMPORARY = ".tmp"


class NotWritten(OSError):
    """The state could not be written; `strerror` says why.

    `kept` is True where the file was read again and is as it was before.
    """

    def __init__(self, cause: str, *, kept: bool) -> None:
        super().__init__(None, cause)
        self.kept = kept


def cause_of(error: OSError) -> str:
    """What an effect that failed means for the work, as a sentence."""
    what = "write the state" if isinstance(error, NotWritten) else "look at the machine"
    return f"cannot {what}: {error.strerror or error}"


class Journal:
    """Reads and replaces state.yaml.  `state` is always what was last read from or proved on disk.

    Only the holder of the node's lock may call anything but `load`.
    """

    def __init__(self, effects: Effects) -> None:
        self._effects = effects
        self._writing = trio.Lock()
        self._in_doubt = False
        self.state = NodeState()

    async def load(self) -> NodeState:
        """Read the file again.  Raises BadInput when it can't be read as a state."""
        self.state = parse_state(await self._effects.read(STATE_FILE))
        return self.state

    async def update(self, change: Callable[[NodeState], NodeState]) -> None:
        """Replace the file durably by what `change` makes of the state; no-op when that is equal
        and the write before it has not failed: what is in the file then may not outlast the power.

        One write at a time: `change` sees every write before it.  Raises NotWritten when a step of
        the write failed: `state` is then what the file really holds, old or new.
        Source: the write protocol of DESIGN section 5; rename(2), fsync(2).
        """
        async with self._writing:
            # Memory is as the disk will be, so that a write that failed can be told by comparing.
            state = without_literals(change(self.state))
            if state == self.state and not self._in_doubt:
                return
            self._in_doubt = True
            try:
                # A cancellation between rename and sync would leave memory behind the disk.
                with trio.CancelScope(shield=True):
                    await self._replace(render_state(state))
            except (OSError, OperatorError) as error:
                # A folder or a text that can't be used is one more way in which a write fails: to
                # a transaction under way it must look like all others, or nobody puts things back.
                cause = error.strerror if isinstance(error, OSError) else error.message
                raise NotWritten(cause or str(error), kept=await self._reread()) from error
            self.state, self._in_doubt = state, False

    async def _reread(self) -> bool:
        """True when the file holds what `state` was; else `state` is what it holds, where it can
        be read."""
        # A disk that can't be read either, or a file that somebody took away, leaves what was last
        # proved: nothing on disk never means no processes.  The write's error tells.
        with contextlib.suppress(OSError, BadInput):
            data = await self._effects.read(STATE_FILE)
            if data is None:
                return self.state == NodeState()
            before, self.state = self.state, parse_state(data)
            return self.state == before
        return False

    async def prove_writable(self) -> None:
        """Write, sync and remove a file of the state's size before anything depends on it, and
        clear what interrupted writes left.  Raises Refused with the cause."""
        try:
            for name in await self._effects.names():
                if name.startswith(STATE_FILE) and name.endswith(_TEMPORARY):
                    await self._effects.remove(name)
            name = self._temporary()
            await self._effects.create(name, render_state(self.state))
            await self._effects.fsync(name)
            await self._effects.remove(name)
        except OSError as error:
            message = f"cannot write the state: {error.strerror or error}"
            raise Refused(message, "make room on the disk or mend its permissions") from error

    async def _replace(self, data: bytes) -> None:
        name = self._temporary()
        await self._effects.create(name, data)
        await self._effects.fsync(name)
        await self._effects.rename(name, STATE_FILE)
        await self._effects.fsync_folder()

    def _temporary(self) -> str:
        return f"{STATE_FILE}.{self._effects.new_token()[:12]}{_TEMPORARY}"
