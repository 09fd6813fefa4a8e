"""What went wrong, said once: as lines on stderr, with --json as the one document too."""

from __future__ import annotations

from lumbridge_compute.cli.streams import Stream
from lumbridge_compute.errors import Exit, OperatorError


def tell_failure(error: OperatorError, out: Stream, err: Stream, *, json: bool) -> int:
    """Write `error`; its exit code."""
    if json:
        from json import dumps

        from lumbridge_compute.core.report_outcome import outcome_document, outcome_of

        out.write(dumps(outcome_document(outcome_of(error)), indent=2) + "\n")
    lines = [f"error: {error.message}"]
    err.write_lines([*lines, f"hint: {error.hint}"] if error.hint else lines)
    return int(error.exit)


def interrupted() -> OperatorError:
    """A command that changes nothing was interrupted."""
    return _failure("interrupted", None, Exit.INTERRUPTED)


def system_fault(error: OSError | UnicodeError | MemoryError) -> OperatorError:
    """The system refused something to a command that changes nothing."""
    return _failure(f"cannot go on: {_cause(error)}", "lumbridge-compute check", Exit.FAILED_SAFELY)


def own_fault(error: Exception, code: Exit, err: Stream, *, verbose: bool) -> OperatorError:
    """A fault of our own; its traceback is written where `verbose` asks for it.

    `code` is 1 for a command that changes nothing, 4 for one that may have.
    """
    if verbose:
        from traceback import format_exception

        err.write("".join(format_exception(error)))
    message = f"unexpected fault of lumbridge-compute itself: {type(error).__name__}: {error}"
    return _failure(message, "report it, with what the same command says with -v", code)


def _failure(message: str, hint: str | None, code: Exit) -> OperatorError:
    failure = OperatorError(message, hint)
    failure.exit = code
    return failure


def _cause(error: OSError | UnicodeError | MemoryError) -> str:
    if isinstance(error, MemoryError):
        return "out of memory"
    if isinstance(error, OSError) and error.strerror:
        where = f" ({error.filename!r})" if error.filename is not None else ""
        return f"{error.strerror.lower()}{where}"
    return str(error)
