"""The command line as a value: `parse_arguments` and the sentences about what is wrong with it."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NoReturn

from lumbridge_compute import __version__
from lumbridge_compute.cli.commands import (
    COMMANDS,
    COMMON,
    SHELLS,
    Command,
    Option,
    command_of,
    plain_words,
)
from lumbridge_compute.errors import BadInput

PROGRAM = "lumbridge-compute"
_METAVARS = {"scene": "NAME", "record": "MODEL", "model": "MODEL", "shell": "SHELL"}


class Shown(Exception):
    """The command line asks for a text alone: help, or the version."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """The options, with `command` such as "status" or "scene activate".

    The command's one argument is in `name`.  Raises Shown for --help and --version, BadInput for
    everything that is wrong.
    """
    named = command_of(plain_words(arguments))[0]
    if named in COMMANDS and not {"-h", "--help"} & {*arguments}:
        # To build the parsers of all other commands costs 4 ms of CPU.
        try:
            return _parsed(build_parser([named]), arguments)
        except BadInput:
            pass  # said again by the whole parser, which knows the other commands
    return _parsed(build_parser(COMMANDS), arguments)


def _parsed(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        _refuse(unknown[0], options.command)
    for option in COMMON:
        name = option.names[-1].removeprefix("--")
        if name not in options:
            setattr(options, name, None if option.metavar else False)
    if options.verbose and options.quiet:
        raise BadInput("cannot be verbose and quiet at once", "give either -v or -q")
    _check_combinations(options)
    return options


def _refuse(word: str, command: str) -> NoReturn:
    known = [name for option in (*COMMON, *COMMANDS[command].options) for name in option.names]
    kind = "option" if word.startswith("-") else "argument"
    raise BadInput(
        f"cannot understand the {kind} {word!r} of '{PROGRAM} {command}'",
        _suggestion(word, known) or f"{PROGRAM} {command} --help",
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
    from lumbridge_compute.core.nearest import nearest

    near = nearest(word, words)
    return f"did you mean {near!r}?" if near is not None else None


def build_parser(names: Iterable[str]) -> Parser:
    """A parser of the commands `names` of the table."""
    parser = Parser(
        prog=PROGRAM,
        description="Switch this machine between Scenes of model servers, as transactions.",
    )
    parser.add_argument(
        "--version", action=_Version, nargs=0, default=argparse.SUPPRESS, help="show the version"
    )
    _add_common(parser)
    commands, scenes = _subcommands(parser), None
    for name in names:
        group, _, last = name.rpartition(" ")
        if group and scenes is None:
            scene = commands.add_parser(group, help="list and switch Scenes")
            _add_common(scene)
            scenes = _subcommands(scene)
        _add_command(scenes if group else commands, last, name, COMMANDS[name])
    return parser


_Subcommands = Any  # argparse names the class with an underscore


def _subcommands(parser: Parser) -> _Subcommands:
    return parser.add_subparsers(
        metavar="COMMAND", required=True, parser_class=Parser, title="commands"
    )


def _add_command(group: _Subcommands, last: str, name: str, command: Command) -> None:
    parser: Parser = group.add_parser(last, help=command.help, description=command.help)
    parser.set_defaults(command=name)
    if command.takes is not None:
        choices = SHELLS if command.takes == "shell" else None
        parser.add_argument("name", metavar=_METAVARS[command.takes], choices=choices)
    for option in command.options:
        _add_option(parser, option, option.default)
    _add_common(parser)


def _add_common(parser: Parser) -> None:
    """What is accepted before and after the command; absent ones leave no trace, else the
    default of an inner parser would undo what an outer one has read."""
    group = parser.add_argument_group("common options")
    for option in COMMON:
        _add_option(group, option, argparse.SUPPRESS)


def _add_option(parser: argparse._ActionsContainer, option: Option, default: Any) -> None:  # noqa: ANN401 - of any option
    if option.metavar is None:
        off = default if default is argparse.SUPPRESS else False
        parser.add_argument(*option.names, action="store_true", default=off, help=option.help)
        return
    parser.add_argument(
        *option.names,
        metavar=option.metavar,
        type=option.read,
        action="append" if option.repeated else "store",
        default=default,
        help=option.help,
    )
