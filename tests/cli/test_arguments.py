"""What is typed, and what is said when it can't be understood."""

from __future__ import annotations

import pytest

from lumbridge_compute import __version__
from lumbridge_compute.cli.arguments import Shown, build_parser, parse_arguments
from lumbridge_compute.cli.commands import COMMANDS, plain_words
from lumbridge_compute.errors import BadInput


@pytest.mark.parametrize(
    "line",
    ["--root r -v status --json", "status --json --root r -v", "--json status -v --root=r"],
)
def test_common_options_may_stand_before_and_after_the_command(line: str) -> None:
    options = parse_arguments(line.split())
    assert (options.command, options.root, options.verbose, options.json, options.quiet) == (
        "status",
        "r",
        True,
        True,
        False,
    )


@pytest.mark.parametrize("line", ["--root a scene --json show x", "scene show --json x --root a"])
def test_they_may_stand_between_the_words_of_a_command_too(line: str) -> None:
    options = parse_arguments(line.split())
    assert (options.command, options.name, options.root, options.json) == (
        "scene show",
        "x",
        "a",
        True,
    )


def test_the_pids_of_an_adoption_are_pairs() -> None:
    options = parse_arguments(
        ["scene", "adopt", "day", "--pid", "qwen=42", "--pid", "voice=4194303"]
    )
    assert options.pid == [("qwen", 42), ("voice", 4194303)]


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ("stauts", "COMMAND 'stauts'", "did you mean 'status'?"),
        ("scene activat x", "COMMAND 'activat'", "did you mean 'activate'?"),
        ("scene", "COMMAND is missing after 'lumbridge-compute scene'", "--help"),
        ("", "COMMAND is missing after 'lumbridge-compute'", "--help"),
        ("scene activate", "NAME is missing", "scene activate --help"),
        ("status --jsn", "option '--jsn' of 'lumbridge-compute status'", "did you mean '--json'?"),
        ("scene resume --forec", "option '--forec'", "did you mean '--force'?"),
        ("status --che", "option '--che'", "did you mean '--check'?"),
        ("status extra", "argument 'extra'", "status --help"),
        ("status --json=3", "--json", "--help"),
        ("--root", "--root", "--help"),
        ("status -v -q", "verbose and quiet", "-v or -q"),
        ("status --watch --json", "--watch with --json", "leave one"),
        ("status --check --watch", "--watch with --check", "leave one"),
        ("logs x -f --json", "-f with --json", "leave one"),
        ("logs x -n -1", "-n '-1'", "-n 20"),
        ("logs x -n many", "-n 'many'", "-n 20"),
        ("history -n 99999999999999", "'99999999999999'", "-n 20"),
        ("completion tcsh", "SHELL 'tcsh'", "completion --help"),
        ("completion bahs", "SHELL 'bahs'", "did you mean 'bash'?"),
        ("scene adopt x --pid qwen", "'qwen'", "--pid qwen=4242"),
        ("scene adopt x --pid =1", "'=1'", "--pid qwen=4242"),
        ("scene adopt x --pid q=0", "'0' is not the pid", "4194303"),
        ("scene adopt x --pid q=-1", "'-1' is not the pid", "4194303"),
        ("scene adopt x --pid q=4194304", "'4194304' is not the pid", "4194303"),
        ("scene adopt x --pid q=99999999999999999999", "is not the pid", "4194303"),
        ("scene adopt x --pid q=\u0664", "is not the pid", "4194303"),
    ],
)
def test_what_can_not_be_understood_is_named_with_a_next_step(
    line: str, message: str, hint: str
) -> None:
    with pytest.raises(BadInput) as caught:
        parse_arguments(line.split())
    assert message in caught.value.message
    assert caught.value.hint is not None
    assert hint in caught.value.hint


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["status", "--help"], ["scene", "-h"]])
def test_help_is_a_text_and_not_an_end(words: list[str]) -> None:
    with pytest.raises(Shown) as shown:
        parse_arguments(words)
    assert shown.value.text.startswith("usage: lumbridge-compute")
    assert max(map(len, shown.value.text.splitlines())) <= 80


def test_help_lists_every_command() -> None:
    texts = []
    for words in (["--help"], ["scene", "--help"]):
        with pytest.raises(Shown) as shown:
            parse_arguments(words)
        texts.append(shown.value.text)
    assert all(name.split()[-1] in "".join(texts) for name in COMMANDS)


def test_the_version_needs_no_command() -> None:
    with pytest.raises(Shown, match=__version__):
        parse_arguments(["--version"])


@pytest.mark.parametrize("name", COMMANDS)
def test_the_small_parser_reads_every_command_as_the_whole_one_does(name: str) -> None:
    argument = {"shell": ["bash"], None: []}.get(COMMANDS[name].takes, ["x"])
    words = [*name.split(), *argument]
    assert build_parser([name]).parse_args(words) == build_parser(COMMANDS).parse_args(words)


def test_a_value_of_an_option_is_not_taken_for_the_command() -> None:
    assert plain_words(["--root", "status", "scene", "-v", "list"]) == ["scene", "list"]
