"""`python -m lumbridge_compute.release`: what scripts/install and scripts/upgrade ask.

Exit codes: 0 holds, 1 does not, 2 bad usage.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress

import trio

from lumbridge_compute.cli.node import read_status
from lumbridge_compute.core.report import living, living_pid
from lumbridge_compute.errors import OperatorError
from lumbridge_compute.release.environment import environment_of_agent
from lumbridge_compute.release.restart import restart_and_prove
from lumbridge_compute.release.self_check import check_node, import_everything
from lumbridge_compute.release.snapshot import read_snapshot, take_snapshot, write_snapshot


def main() -> int:
    """Run one of the parts; its exit code."""
    options = _parse()
    try:
        held: bool = options.part(options)
    except OperatorError as error:
        _say(f"error: {error.message}", *([f"hint: {error.hint}"] if error.hint else []))
        return 1
    except (KeyboardInterrupt, BaseExceptionGroup) as error:
        _say(f"NOT proved: {type(error).__name__}: {error}")
        return 1
    except Exception as error:  # noqa: BLE001 - to the scripts a fault of our own is a failure too
        _say(f"error: unexpected fault of this release: {type(error).__name__}: {error}")
        return 1
    return 0 if held else 1


def _self_check(options: argparse.Namespace) -> bool:
    count, faults = import_everything()
    if options.root is not None and not faults:
        environ = environment_of_agent(options.root)
        faults = check_node(options.root, environ, unchanged=options.unchanged)
    _say(*(f"error: {fault}" for fault in faults))
    if not faults:
        node = "; registry, state and a dry run of resume are right" if options.root else ""
        _say(f"self-check: {count} modules{node}")
    return not faults


def _record(options: argparse.Namespace) -> bool:
    snapshot = take_snapshot(options.root, environment_of_agent(options.root))
    write_snapshot(snapshot, options.file)
    return True


def _restart(options: argparse.Namespace) -> bool:
    before = read_snapshot(options.file)
    proof = trio.run(restart_and_prove, options.root, options.unit, before)
    _say(*(f"proved: {sentence}" for sentence in proof.proved))
    if proof.fault is not None:
        _say(f"NOT proved: {proof.fault}")
    return proof.fault is None


def _models(options: argparse.Namespace) -> bool:
    """One line for each model that lives."""
    status = read_status(options.root, environment_of_agent(options.root))
    if status.state is not None:
        for name in living(status.world, status.state):
            pid = living_pid(status.world.view(name))
            _say(f"{name} (pid {pid})" if pid is not None else name)
    return True


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m lumbridge_compute.release")
    parts = parser.add_subparsers(required=True)
    check = parts.add_parser("self-check", help="import all; with --root try a resume there, dry")
    check.add_argument("--root")
    check.add_argument("--unchanged", action="store_true", help="it must have nothing to do")
    check.set_defaults(part=_self_check)
    record = parts.add_parser("record", help="write down what must be the same after a restart")
    record.set_defaults(part=_record)
    restart = parts.add_parser("restart", help="restart the agent; prove that all else is the same")
    restart.add_argument("--unit", required=True)
    restart.set_defaults(part=_restart)
    models = parts.add_parser("models", help="name the models that live")
    models.set_defaults(part=_models)
    for part in (record, restart, models):
        part.add_argument("--root", required=True)
    for part in (record, restart):
        part.add_argument("--file", required=True)
    return parser.parse_args()


def _say(*lines: str) -> None:
    # A terminal that is gone must not end what goes on.
    with suppress(OSError):
        for line in lines:
            print(line, flush=True)  # noqa: T201 - the scripts' own words


if __name__ == "__main__":
    sys.exit(main())
