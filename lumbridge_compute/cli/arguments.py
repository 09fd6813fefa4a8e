"""The command line as a value: `parse_arguments` and the sentences about what is wrong with it."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence
from typing import Any, NoReturn

from lumbridge_compute import __version__
from lumbridge_compute.core.nearest import nearest
from lumbridge_compute.errors import BadInput

PROGRAM = "lumbridge-compute"
SHELLS = ("bash", "zsh", "fish")
PID_LIMIT = 2**22
"""No pid reaches this.  Source: proc(5), /proc/sys/kernel/pid_max."""

DEFAULT_LOG_LINES = 100
DEFAULT_HISTORY_LINES = 20
_MAX_LINES = 1_000_000


class Shown(Exception):
    """The command line asks for a text alone: help, or the version."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """The options, with `command` such as "status" or "scene activate".

    Raises Shown for --help and --version, BadInput for everything that is wrong.
    """
    options, unknown = build_parser().parse_known_args(arguments)
    if unknown:
        _refuse(unknown[0], options)
    for name, default in _COMMON_DEFAULTS.items():
        if name not in options:
            setattr(options, name, default)
    if options.verbose and options.quiet:
        raise BadInput("cannot be verbose and quiet at once", "give either -v or -q")
    _check_combinations(options)
    return options


_COMMON_DEFAULTS: dict[str, Any] = {
    "root": None,
    "verbose": False,
    "quiet": False,
    "json": False,
}


_NOT_OPTIONS = {"command", "scene_command", "name", "model", "shell"}


def _refuse(word: str, options: argparse.Namespace) -> NoReturn:
    command = f"{PROGRAM} {options.command}"
    names = {*vars(options), *_COMMON_DEFAULTS} - _NOT_OPTIONS
    known = ["--" + name.replace("_", "-") for name in names]
    kind = "option" if word.startswith("-") else "argument"
    raise BadInput(
        f"cannot understand the {kind} {word!r} of {command!r}",
        _suggestion(word, known) or f"{command} --help",
    )


def _check_combinations(options: argparse.Namespace) -> None:
    if options.command == "status" and options.watch and (options.json or options.check):
        other = "--json" if options.json else "--check"
        raise BadInput(
            f"cannot combine --watch with {other}: it has no end", "leave one of them out"
        )
    if options.command == "logs" and options.follow and options.json:
        raise BadInput("cannot combine -f with --json: it has no end", "leave one of them out")


class _Help(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        raise Shown(parser.format_help())


class _Version(argparse.Action):
    def __call__(self, *_: object) -> NoReturn:
        raise Shown(f"{PROGRAM} {__version__}\n")


class _Formatter(argparse.HelpFormatter):
    """Of a fixed width: to ask for the terminal's, argparse loads shutil (8 ms) each time."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=80)


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that raises BadInput with the nearest word, and never writes or exits."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - as argparse has it
        super().__init__(**settings, add_help=False, allow_abbrev=False, formatter_class=_Formatter)
        self.add_argument(
            "-h", "--help", action=_Help, nargs=0, help="show this text", default=argparse.SUPPRESS
        )

    def error(self, message: str) -> NoReturn:
        missing = message.removeprefix("the following arguments are required: ")
        if missing != message:
            message = f"{missing} is missing after {self.prog!r}"
        raise BadInput(f"cannot understand the command line: {message}", f"{self.prog} --help")

    def _check_value(self, action: argparse.Action, value: Any) -> None:  # noqa: ANN401 - as argparse has it
        choices = list(action.choices or ())
        if choices and value not in choices:
            what = action.metavar if isinstance(action.metavar, str) else "value"
            raise BadInput(
                f"cannot understand {what} {value!r}: wanted one of {', '.join(choices)}",
                _suggestion(str(value), choices) or f"{self.prog} --help",
            )


def _suggestion(word: str, words: Collection[str]) -> str | None:
    near = nearest(word, words)
    return f"did you mean {near!r}?" if near is not None else None


def build_parser() -> Parser:
    """The parser of the whole command line."""
    parser = Parser(
        prog=PROGRAM,
        description="Switch this machine between Scenes of model servers, as transactions.",
    )
    parser.add_argument(
        "--version", action=_Version, nargs=0, default=argparse.SUPPRESS, help="show the version"
    )
    _add_common(parser)
    commands = _subcommands(parser, "command")
    _add_status(commands)
    _add_scene(commands)
    _command(commands, "check", "validate compute.yaml; print all faults and warnings")
    _command(commands, "schema", "print the JSON Schema of compute.yaml, for editors")
    logs = _command(commands, "logs", "show the output of a model")
    logs.add_argument("model", metavar="MODEL")
    logs.add_argument("-f", "--follow", action="store_true", help="go on until Ctrl-C")
    _add_lines(logs, DEFAULT_LOG_LINES)
    _add_lines(
        _command(commands, "history", "show the transactions of the past, newest last"),
        DEFAULT_HISTORY_LINES,
    )
    verify = _command(commands, "verify", "compare the markers behind and in front of a gateway")
    verify.add_argument(
        "--gateway", metavar="ADDR", help="HOST:PORT of one gateway (default: all declared)"
    )
    completion = _command(commands, "completion", "print a completion script for a shell")
    completion.add_argument("shell", metavar="SHELL", choices=SHELLS, help=", ".join(SHELLS))
    return parser


_Commands = Any  # argparse names its class of subcommands with an underscore


def _add_status(commands: _Commands) -> None:
    status = _command(commands, "status", "show what is wanted, what runs and how healthy it is")
    status.add_argument("--watch", action="store_true", help="show it again on every change")
    status.add_argument(
        "--check", action="store_true", help="exit 4 unless all is as wanted, or idle"
    )


def _add_scene(commands: _Commands) -> None:
    scene = commands.add_parser("scene", help="list and switch Scenes")
    _add_common(scene)
    scenes = _subcommands(scene, "scene_command")
    _command(scenes, "list", "name the declared Scenes", under="scene")
    show = _command(scenes, "show", "show one Scene with its models", under="scene")
    show.add_argument("name", metavar="NAME")
    adopt = _command(scenes, "adopt", "bind a Scene that already runs", under="scene")
    adopt.add_argument("name", metavar="NAME")
    adopt.add_argument(
        "--pid",
        metavar="MODEL=PID",
        action="append",
        type=_pid_pair,
        default=[],
        help="the process that serves MODEL; may be given for each model",
    )
    activate = _command(scenes, "activate", "switch to a Scene", under="scene")
    activate.add_argument("name", metavar="NAME")
    resume = _command(scenes, "resume", "make the desired Scene true again", under="scene")
    resume.add_argument("--force", action="store_true", help="also after three failures in a row")
    deactivate = _command(scenes, "deactivate", "stop everything that is ours", under="scene")
    for parser in (activate, resume, deactivate):
        parser.add_argument("--dry-run", action="store_true", help="show the plan, change nothing")
        parser.add_argument(
            "--wait", action="store_true", help="wait for another transaction to end"
        )
    forget = _command(
        scenes, "forget", "drop the record of a model; signals nothing", under="scene"
    )
    forget.add_argument("model", metavar="MODEL")


def _subcommands(parser: Parser, destination: str) -> _Commands:
    return parser.add_subparsers(
        dest=destination, metavar="COMMAND", required=True, parser_class=Parser, title="commands"
    )


def _command(commands: _Commands, name: str, text: str, *, under: str = "") -> Parser:
    parser: Parser = commands.add_parser(name, help=text, description=text)
    parser.set_defaults(command=f"{under} {name}".strip())
    _add_common(parser)
    return parser


def _add_common(parser: Parser) -> None:
    """What is accepted before and after the command; absent ones leave no trace, else the
    default of an inner parser would undo what an outer one has read."""
    group = parser.add_argument_group("common options")
    group.add_argument(
        "--root", metavar="DIR", default=argparse.SUPPRESS, help="the folder with compute.yaml"
    )
    for flags, text in (
        (("-v", "--verbose"), "say more"),
        (("-q", "--quiet"), "say nothing but the result and errors"),
        (("--json",), "print exactly one JSON document"),
    ):
        group.add_argument(*flags, action="store_true", default=argparse.SUPPRESS, help=text)


def _add_lines(parser: Parser, default: int) -> None:
    parser.add_argument(
        "-n", "--lines", metavar="N", type=_count, default=default, help=f"default: {default}"
    )


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 9):
        raise BadInput(f"cannot understand -n {text!r}: wanted a number of lines", "-n 20")
    return min(int(text), _MAX_LINES)


def _pid_pair(text: str) -> tuple[str, int]:
    model, separator, pid = text.partition("=")
    if not model or not separator:
        raise BadInput(f"cannot understand --pid {text!r}: wanted MODEL=PID", "--pid qwen=4242")
    if not (pid.isascii() and pid.isdecimal() and len(pid) <= 7 and 0 < int(pid) < PID_LIMIT):
        raise BadInput(
            f"cannot understand --pid {text!r}: {pid!r} is not the pid of a process",
            f"wanted a whole number from 1 to {PID_LIMIT - 1}",
        )
    return model, int(pid)
