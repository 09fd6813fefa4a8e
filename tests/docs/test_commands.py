"""Every command of the documents does what they say, in the order in which a reader meets them."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import pytest

from lumbridge_compute.cli.arguments import parse_arguments
from lumbridge_compute.core.health import HealthName
from lumbridge_compute.errors import OperatorError
from tests.docs.commands import CHECKOUT, DOCUMENTS, Command, all_commands, commands_of
from tests.docs.reader import Reader, check_script, stages_of

COMMANDS = "status|scene|check|schema|logs|history|verify|agent|completion|demo"
# What stands for something else in a sentence, and where two sentences are joined.
_PLACEHOLDERS = re.compile(
    r"[,;:]|\.\.\.|'[MSxy]'|'/x'|pid N|\(x\)|\(exit code N\)|\(SIGKILL\)|\bN\b|40[14]|wanted 2\w\w"
    r"|\bafter\b|\brecord\b|\band the\b"
)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_a_reader_can_type_every_command_of_a_document(document: Path, tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    name = str(document.relative_to(CHECKOUT))
    stages = stages_of(name)
    try:
        if "" in stages:
            stages.pop("")(reader)
        for command in commands_of(document):
            for where in list(stages):
                if command.heading == where or command.text.startswith(where):
                    stages.pop(where)(reader)
            reader.type(command)
        assert not stages, f"{name} has no such place any more: {list(stages)}"
        reader.leave()
    finally:
        reader.close()


def test_it_is_known_how_each_command_is_run() -> None:
    found = all_commands()
    assert len(found) > 50
    assert {command.family for command in found} >= {"node", "agent", "box", "script"}


def test_a_command_that_fits_no_family_is_an_error() -> None:
    command = Command("x.md", "", 1, "frobnicate --now", 0, "")
    with pytest.raises(LookupError, match="frobnicate"):
        _ = command.family


def test_an_option_that_a_script_does_not_have_is_an_error() -> None:
    with pytest.raises(AssertionError):
        check_script(Command("x.md", "", 1, "scripts/deploy-key verify --hard", 0, ""))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_a_command_inside_a_sentence_can_be_parsed(document: Path) -> None:
    text = re.sub(r"```.*?```", "", document.read_text(encoding="utf-8"), flags=re.DOTALL)
    for span in re.findall(r"`([^`]+)`", text):
        if span.startswith("scripts/"):
            check_script(Command(document.name, "", 0, re.sub(r" [A-Z]+\b", "", span), 0, ""))
        words = shlex.split(span.removeprefix("lumbridge-compute ")) if "'" not in span else []
        if words and re.fullmatch(COMMANDS, words[0]) and not re.search(r"[\[|]|\.\.\.|/", span):
            assert _parses(words), f"{document.name}: {span}"


def _parses(words: list[str]) -> bool:
    """Whether the command line is right, or is once a name is added."""
    for more in ([], ["name"], ["activate", "name"]):
        try:
            parse_arguments([word.lower() for word in words] + more)
        except OperatorError:
            continue
        return True
    return False


def test_each_sentence_of_last_error_is_one_that_the_program_says() -> None:
    """The fixed parts of each sentence in the table stand in the source."""
    said = _strings_of_the_package()
    text = (CHECKOUT / "docs" / "operations.md").read_text(encoding="utf-8")
    table = text.partition("### What `last_error` says")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    assert len(rows) > 25
    for row in rows:
        for sentence in re.findall(r"`([^`]+)`", row.split(" | ")[0]):
            for part in _PLACEHOLDERS.split(sentence):
                fixed = part.strip(" ;:,()'")
                assert not re.search(r"\w", fixed) or fixed in said, f"{fixed!r} of {sentence!r}"


def test_troubleshooting_knows_every_refusal_and_every_health() -> None:
    text = (CHECKOUT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z-]+)`", text))
    assert _refusal_codes() <= named
    assert {str(name) for name in HealthName} - {"exact"} <= named


def _refusal_codes() -> set[str]:
    """The codes that a dry run can answer with; a missing fallback is told by its cause."""
    found = set()
    for file in sorted((CHECKOUT / "lumbridge_compute" / "core").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Refusal":
                found.add(ast.literal_eval(node.args[0]))
    assert len(found) > 15
    return found - {"no-fallback"}


def _strings_of_the_package() -> str:
    """Every string of the source; a value put into one is an apostrophe, as most are quoted."""
    found = []
    for file in sorted((CHECKOUT / "lumbridge_compute").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = [p.value if isinstance(p, ast.Constant) else "\0" for p in node.values]
                found.append("".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return "\n".join(found)
