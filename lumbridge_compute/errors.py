"""Every error that an operator can meet, with its exit code."""

from __future__ import annotations

import enum


class Exit(enum.IntEnum):
    """The exit codes of the command (DESIGN section 9)."""

    DONE = 0
    FAILED_SAFELY = 1
    BAD_INPUT = 2
    REFUSED = 3
    DEGRADED = 4
    BUSY = 5
    INTERRUPTED = 130


class OperatorError(Exception):
    """Something that an operator can cause and mend.

    `message` is one sentence that says what, which model and why; `hint` is the one next step.
    """

    exit = Exit.REFUSED

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class BadInput(OperatorError):
    """Bad usage, a bad registry, or a state file that can't be read."""

    exit = Exit.BAD_INPUT


class Refused(OperatorError):
    """Refused before any change."""

    exit = Exit.REFUSED


class Busy(OperatorError):
    """Another transaction, or another agent, holds its lock."""

    exit = Exit.BUSY
