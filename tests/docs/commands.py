"""The commands in the project's documents, and how each family of them is run by the tests.

A fenced block `sh` holds commands, a block `console` holds them behind "$ ".  A command is one
line, longer where it ends in a backslash or has a here-document.  A comment "exits with N" is part
of what is promised.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
DOCUMENTS = [CHECKOUT / "README.md", *sorted((CHECKOUT / "docs").glob("*.md"))]

FAMILIES = {
    # Executed in a prepared node: a home folder of its own, embedded model servers behind the names
    # of real ones, free ports in place of the written ones.
    "node": r"lumbridge-compute (?!agent|completion)|cat |cd |cp |curl |grep |mkdir |rm |ln -s ",
    # Executed there, waited for until it serves, ended with SIGINT at the end of the document.
    "agent": r"lumbridge-compute agent",
    # The script is made, and read by its shell where that is installed.
    "completion": r".*lumbridge-compute completion (bash|zsh|fish)",
    # Executed in a private systemd: tests/systemd/inside/test_documents.py.
    "box": r"(sudo )?(systemctl|journalctl) ",
    # Every word that is an option or a subcommand stands in the script's --help.
    "script": r"(sudo )?scripts/(?!deploy-key)",
    # Executed against a real sshd: test_deploy_key.py.
    "deploy-key": r"scripts/deploy-key ",
}
"""Each family's beginning.  A command that fits none, or several, fails the tests."""


@dataclass(frozen=True)
class Command:
    """One command: `text` as it is given to a shell, `heading` the section that it stands in."""

    document: str
    heading: str
    line: int
    text: str
    exit: int
    comment: str

    @property
    def family(self) -> str:
        """Raises: LookupError where nothing says how it is run, or two families claim it."""
        fitting = [name for name, begin in FAMILIES.items() if re.match(begin, self.text)]
        if len(fitting) != 1:
            raise LookupError(f"{self}: families {fitting}; see FAMILIES")
        return fitting[0]

    def __str__(self) -> str:
        return f"{self.document}:{self.line}: {self.text.splitlines()[0]}"


def commands_of(document: Path) -> list[Command]:
    """All commands of the document, in order."""
    name = str(document.relative_to(CHECKOUT))
    return list(_commands(name, document.read_text(encoding="utf-8")))


def all_commands() -> list[Command]:
    return [command for document in DOCUMENTS for command in commands_of(document)]


def _commands(document: str, text: str) -> Iterator[Command]:
    heading = ""
    language: str | None = None
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        if line.startswith("```"):
            language = None if language is not None else line[3:].strip()
        elif language is None and line.startswith("#"):
            heading = line.lstrip("# ")
        elif language in ("sh", "console", "bash", "shell"):
            prompt = "$ " if language == "console" else ""
            typed = line.removeprefix(prompt)
            if line.startswith(prompt) and typed.strip() and not typed.startswith("#"):
                yield _whole(document, heading, number, typed, lines)


def _whole(
    document: str, heading: str, number: int, line: str, lines: Iterator[tuple[int, str]]
) -> Command:
    text, _, comment = line.partition("  # ")
    text = text.rstrip()
    while text.endswith("\\"):
        text += "\n" + next(lines)[1]
    if (mark := re.search(r"<<'?(\w+)'?", text)) is not None:
        while not text.endswith(f"\n{mark[1]}"):
            text += "\n" + next(lines)[1]
    code = re.search(r"exits with (\d+)", comment)
    return Command(document, heading, number, text, int(code[1]) if code else 0, comment.strip())
