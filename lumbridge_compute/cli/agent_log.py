"""The log of the agent on stderr: one line an entry, `fixed phrase key=value`."""

from __future__ import annotations

import logging
import os

from lumbridge_compute.cli.call import Call
from lumbridge_compute.cli.streams import STDERR, Stream

_PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
_DEBUG = 7


def set_up_log(call: Call) -> None:
    """Warnings with -q, the agent's doings by default, everything with -v."""
    level = logging.WARNING if call.options.quiet else logging.INFO
    ours = logging.getLogger("lumbridge_compute")
    ours.setLevel(logging.DEBUG if call.options.verbose else level)
    handler = _Handler(call.err)
    handler.setFormatter(_Formatter(journal=_to_journal(call), traces=call.options.verbose))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.raiseExceptions = False


class _Handler(logging.Handler):
    def __init__(self, stream: Stream) -> None:
        super().__init__()
        self._stream = stream

    def emit(self, record: logging.LogRecord) -> None:
        self._stream.write_lines([self.format(record)])


class _Formatter(logging.Formatter):
    """The journal has its own time and takes the level as a prefix of each line.

    Source: sd-daemon(3).
    """

    def __init__(self, *, journal: bool, traces: bool) -> None:
        super().__init__(datefmt="%Y-%m-%dT%H:%M:%S%z")
        self._journal, self._traces = journal, traces

    def format(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text += f" cause={record.exc_info[1]!r}"
            if self._traces:
                text += "\n" + self.formatException(record.exc_info)
        if not self._journal:
            return f"{self.formatTime(record, self.datefmt)} {record.levelname.lower()} {text}"
        prefix = f"<{_priority(record.levelno)}>"
        return "\n".join(prefix + line for line in text.splitlines())


def _priority(level: int) -> int:
    """Source: syslog(3), "Values for level"."""
    return next((priority for floor, priority in _PRIORITIES if level >= floor), _DEBUG)


def _to_journal(call: Call) -> bool:
    """Source: systemd.exec(5), "$JOURNAL_STREAM"."""
    stream = call.environ.get("JOURNAL_STREAM")
    if not stream:
        return False
    status = os.fstat(STDERR)
    return stream == f"{status.st_dev}:{status.st_ino}"
