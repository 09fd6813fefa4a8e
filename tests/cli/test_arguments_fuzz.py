"""Whatever is typed: options, a text, or one sentence with a next step."""

from __future__ import annotations

import os
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from lumbridge_compute.cli.arguments import Shown, parse_arguments
from lumbridge_compute.cli.commands import COMMANDS, PID_LIMIT
from lumbridge_compute.errors import BadInput

WORDS = sorted(
    {word for name in COMMANDS for word in name.split()}
    | {name for command in COMMANDS.values() for option in command.options for name in option.names}
    | {"--root", "--json", "-v", "-q", "-vq", "--", "-", "--help", "--version", "", "=", "--pid="}
)
VALUES = [
    *("127.0.0.1:80", "[::1]:80", "[::]:0", "::1:80", "1.2.3:4", "127.0.0.1:99999", "[:80", "a:b"),
    *("3", "3GiB", "0.1", "-1", "1e9", "nan", "inf", "9" * 5000, "٣", "1_0", " 1 ", "0x10"),
    *("a=1", "a=0", "a=", "=1", "a=b=1", "a=" + "9" * 5000, "a=²", f"a={PID_LIMIT}", "a=-1"),
]
typed = st.text(st.characters(exclude_characters="\x00"), max_size=8)
# A byte that is no UTF-8 arrives as half of a surrogate pair.
bytes_typed = st.binary(max_size=6).map(lambda raw: os.fsdecode(raw.replace(b"\0", b"")))
words = st.one_of(st.sampled_from(WORDS), st.sampled_from(VALUES), typed, bytes_typed)
valued = st.sampled_from(["--pid", "--listen", "--upstream", "--floor", "-n", "--gateway"])


def parse_or_refuse(arguments: list[str]) -> None:
    refused = None
    with suppress(Shown):
        try:
            options = parse_arguments(arguments)
        except BadInput as error:
            refused = error
        else:
            assert options.command in COMMANDS
            for _, pid in getattr(options, "pid", None) or ():
                assert 0 < pid < PID_LIMIT
    if refused is not None:
        assert refused.message.startswith("cannot ")
        assert refused.hint


@given(st.lists(words, max_size=6))
def test_any_words(arguments: list[str]) -> None:
    parse_or_refuse(arguments)


@given(st.sampled_from(sorted(COMMANDS)), valued, words, st.lists(words, max_size=2))
def test_any_value_of_an_option(command: str, option: str, value: str, rest: list[str]) -> None:
    parse_or_refuse([*command.split(), option, value, *rest])
    parse_or_refuse([*command.split(), f"{option}={value}", *rest])
