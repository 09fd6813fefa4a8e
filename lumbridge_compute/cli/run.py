"""Run one command, and turn whatever comes of it into an exit code and a sentence."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from lumbridge_compute.cli.call import Call, host_effects
from lumbridge_compute.cli.failure import interrupted, own_fault, system_fault, tell_failure
from lumbridge_compute.cli.streams import STDERR, STDOUT, Stream, fill_standard_descriptors
from lumbridge_compute.errors import Exit, OperatorError

if TYPE_CHECKING:
    from lumbridge_compute.effects import Effects

COMPLETE = "__complete"
"""The hidden command that completion scripts call."""


def run(
    arguments: Sequence[str],
    environ: Mapping[str, str],
    open_effects: Callable[[str], Effects] = host_effects,
) -> int:
    """The exit code of the command line `arguments`.  Raises KeyboardInterrupt alone.

    `open_effects` stands between a transaction and the machine.
    """
    fill_standard_descriptors()
    out, err = Stream(STDOUT), Stream(STDERR)
    if arguments[:1] == [COMPLETE]:
        from lumbridge_compute.cli.completion import complete

        return complete(arguments[1:], environ, out)
    call = partial(Call, environ=environ, out=out, err=err, open_effects=open_effects)
    code = _run(arguments, call, out, err)
    if out.fault is not None and code == Exit.DONE:
        err.write(f"error: cannot write the result: {out.fault.strerror}\n")
        return Exit.FAILED_SAFELY
    return code


def _run(
    arguments: Sequence[str],
    call_for: Callable[[argparse.Namespace], Call],
    out: Stream,
    err: Stream,
) -> int:
    from lumbridge_compute.cli.arguments import Shown, parse_arguments

    # Asked of the words themselves, since what can't be parsed must be told in this way too.
    json = "--json" in arguments
    verbose = not {"-v", "--verbose"}.isdisjoint(arguments)
    try:
        options = parse_arguments(arguments)
        return handler(options)(call_for(options))
    except Shown as shown:
        _show(shown.text, out, json=json)
        return Exit.DONE
    except OperatorError as error:
        failure = error
    except KeyboardInterrupt:
        failure = interrupted()
    except (OSError, UnicodeError, MemoryError) as error:
        failure = system_fault(error)
    except Exception as error:  # noqa: BLE001 - no traceback for a person who did not ask for one
        failure = own_fault(error, Exit.FAILED_SAFELY, err, verbose=verbose)
    return tell_failure(failure, out, err, json=json)


def _show(text: str, out: Stream, *, json: bool) -> None:
    if json:
        from json import dumps

        text = dumps({"text": text}) + "\n"
    out.write(text)


def _heed_signals() -> None:
    """SIGTERM as Ctrl-C, SIGHUP as nothing, as the transaction will have them: loading it takes
    long enough to be hit.  What whoever started us wants ignored stays so."""
    import signal

    if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:
        signal.signal(signal.SIGHUP, lambda *_: None)


Handler = Callable[[Call], int]


def handler(options: argparse.Namespace) -> Handler:
    """What carries out the command; its module is loaded now and no other."""
    command: str = options.command
    if command == "status":
        from lumbridge_compute.cli.status import run_status

        return run_status
    if command in ("scene list", "scene show"):
        from lumbridge_compute.cli.scenes import run_list, run_show

        return run_list if command == "scene list" else run_show
    if command.startswith("scene "):
        _heed_signals()
        from lumbridge_compute.cli.transact import run_transaction

        return run_transaction
    if command == "agent":
        from lumbridge_compute.cli.begin_agent import begin_agent

        return begin_agent
    return _other(command)


def _other(command: str) -> Handler:
    if command in ("check", "schema"):
        from lumbridge_compute.cli.check import run_check, run_schema

        return run_check if command == "check" else run_schema
    if command == "logs":
        from lumbridge_compute.cli.logs import run_logs

        return run_logs
    if command == "history":
        from lumbridge_compute.cli.history import run_history

        return run_history
    if command == "verify":
        from lumbridge_compute.cli.verify import run_verify

        return run_verify
    if command == "demo":
        from lumbridge_compute.cli.demo import run_demo

        return run_demo
    from lumbridge_compute.cli.completion import run_completion

    return run_completion
