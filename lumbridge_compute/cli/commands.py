"""The commands and their options, as a table: the parser and the completion are made from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lumbridge_compute.core.values import dataclass
from lumbridge_compute.errors import BadInput

PID_LIMIT = 2**22
"""No pid reaches this.  Source: proc(5), /proc/sys/kernel/pid_max."""

SHELLS = ("bash", "zsh", "fish")
_LONGEST_NUMBER = 9


@dataclass(frozen=True, slots=True)
class Option:
    """One option: a flag, or one that takes the value named `metavar`, read by `read`."""

    names: tuple[str, ...]
    help: str
    metavar: str | None = None
    read: Callable[[str], Any] = str
    default: Any = None
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class Command:
    """One command; `takes` says of what kind its one argument is: its name for the parser, which
    completion also goes by."""

    help: str
    options: tuple[Option, ...] = ()
    takes: str | None = None


def _read_count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= _LONGEST_NUMBER):
        raise BadInput(f"cannot understand -n {text!r}: wanted a number of lines", "-n 20")
    return int(text)


def _read_pid_pair(text: str) -> tuple[str, int]:
    model, separator, pid = text.partition("=")
    if not model or not separator:
        raise BadInput(f"cannot understand --pid {text!r}: wanted MODEL=PID", "--pid qwen=4242")
    number = int(pid) if pid.isascii() and pid.isdecimal() and len(pid) <= _LONGEST_NUMBER else 0
    if not 0 < number < PID_LIMIT:
        raise BadInput(
            f"cannot understand --pid {text!r}: {pid!r} is not the pid of a process",
            f"wanted a whole number from 1 to {PID_LIMIT - 1}",
        )
    return model, number


ROOT = Option(("--root",), "the folder with compute.yaml", "DIR")
COMMON = (
    ROOT,
    Option(("-v", "--verbose"), "say more"),
    Option(("-q", "--quiet"), "say nothing but the result and errors"),
    Option(("--json",), "print exactly one JSON document"),
)
_DRY_RUN = Option(("--dry-run",), "show the plan, change nothing")
_WAIT = Option(("--wait",), "wait for another transaction to end")
_PID = Option(
    ("--pid",), "the process that serves MODEL", "MODEL=PID", _read_pid_pair, repeated=True
)
_LINES = Option(("-n", "--lines"), "how many lines", "N", _read_count)

COMMANDS: dict[str, Command] = {
    "status": Command(
        "show what is wanted, what runs and how healthy it is",
        (
            Option(("--watch",), "show it again on every change"),
            Option(("--check",), "exit 4 unless all is as wanted, or idle"),
        ),
    ),
    "scene list": Command("name the declared Scenes"),
    "scene show": Command("show one Scene with its models", takes="scene"),
    "scene adopt": Command("bind a Scene that already runs", (_PID,), "scene"),
    "scene activate": Command("switch to a Scene", (_DRY_RUN, _WAIT), "scene"),
    "scene resume": Command(
        "make the desired Scene true again",
        (Option(("--force",), "also after three failures in a row"), _DRY_RUN, _WAIT),
    ),
    "scene deactivate": Command("stop everything that is ours", (_DRY_RUN, _WAIT)),
    "scene forget": Command("drop the record of a model; signals nothing", takes="record"),
    "check": Command("validate compute.yaml; print all faults and warnings"),
    "schema": Command("print the JSON Schema of compute.yaml, for editors"),
    "logs": Command(
        "show the output of a model",
        (Option(("-f", "--follow"), "go on until Ctrl-C"), _LINES),
        "model",
    ),
    "history": Command("show the transactions of the past, newest last", (_LINES,)),
    "verify": Command(
        "compare the markers behind and in front of a gateway",
        (Option(("--gateway",), "one gateway alone, by default all declared", "HOST:PORT"),),
    ),
    "demo": Command("a guided tour of a whole node in a temporary folder; leaves nothing behind"),
    "completion": Command("print a completion script for a shell", takes="shell"),
}

_VALUED = frozenset(
    name
    for option in (*COMMON, *(each for command in COMMANDS.values() for each in command.options))
    if option.metavar is not None
    for name in option.names
)


def takes_value(word: str) -> bool:
    """True when `word` is an option whose value is the next word."""
    return word in _VALUED


def plain_words(words: Sequence[str]) -> list[str]:
    """`words` without options and their values."""
    return [
        word
        for index, word in enumerate(words)
        if not word.startswith("-") and not (index > 0 and takes_value(words[index - 1]))
    ]


def command_of(plain: Sequence[str]) -> tuple[str, Sequence[str]]:
    """The command that `plain` begins with ("scene" alone begins one), and the rest of them."""
    count = 2 if plain[:1] == ["scene"] else 1
    return " ".join(plain[:count]), plain[count:]
