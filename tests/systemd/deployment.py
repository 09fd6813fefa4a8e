"""A checkout with an upstream, the scripts of it, and a node that they install and upgrade."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.systemd.service import CHECKOUT, PATIENCE_S
from tests.systemd.wheels import pack_wheels

PREFIX = Path("/opt/lumbridge-compute")
COMMAND = Path("/usr/local/bin/lumbridge-compute")
BUILD_S = 3 * PATIENCE_S
_PARTS = ("lumbridge_compute", "scripts", "units", "examples")
_FILES = ("pyproject.toml", "constraints.txt", "README.md", "LICENSE")
_GIT = ("git", "-c", "user.name=Test", "-c", "user.email=test@example.org", "-c", "gc.auto=0")
# Kills the script and all that it has started before its command number KILL_AT, and counts them.
_KILLER = """
set -T
_count() {
    ((++_commands != KILL_AT)) || kill -KILL 0
    ((KILL_AT)) || echo "$_commands" >"$COUNT_IN"
}
trap _count DEBUG
"""


class Deployment:
    """`upstream` is where others commit, `checkout` the operator's clone of it."""

    def __init__(self, folder: Path, *, with_packages: bool = True) -> None:
        self.transcript: list[str] = []
        self.upstream, self.checkout = folder / "upstream", folder / "checkout"
        self._wheels, self._count = folder / "wheels", folder / "count"
        if with_packages:
            pack_wheels(self._wheels, CHECKOUT / "pyproject.toml")
        self.upstream.mkdir()
        for part in _PARTS:
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(CHECKOUT / part, self.upstream / part, ignore=ignore)
        for file in _FILES:
            shutil.copy(CHECKOUT / file, self.upstream)
        git(self.upstream, "init", "--quiet", "--initial-branch=main")
        self.commit("first")
        git(folder, "clone", "--quiet", str(self.upstream), str(self.checkout))
        self._killer = folder / "killer.sh"
        self._killer.write_text(_KILLER)

    def revision(self) -> str:
        """The release that the checkout makes."""
        return f"0.1.0+{git(self.checkout, 'rev-parse', '--short=12', 'HEAD')}"

    def commit(self, message: str) -> str:
        """Commit all that is in the upstream; the name of the release that it makes."""
        git(self.upstream, "add", "--all")
        git(self.upstream, "commit", "--quiet", "--allow-empty", "--message", message)
        return f"0.1.0+{git(self.upstream, 'rev-parse', '--short=12', 'HEAD')}"

    def edit(self, file: str, old: str, new: str) -> None:
        """Change a file of the upstream."""
        path = self.upstream / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))

    def script(self, name: str, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        """The script, run to its end; nobody is there to answer it."""
        return self._run(f"scripts/{name}", words, env)

    def command(self, *words: str) -> str:
        """What the installed command says; it fails the test unless it works."""
        ended = self._run(str(COMMAND), words, {})
        assert ended.returncode == 0, ended.stdout
        return ended.stdout

    def _run(
        self, program: str, words: Sequence[str], env: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        ended = subprocess.run(
            [self.checkout / program, *words],
            cwd="/",
            env={**self._environment(), **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=BUILD_S,
            check=False,
        )
        self.note("$", program, *words)
        self.note(f"{ended.stdout}[exit {ended.returncode}]\n")
        assert "Traceback" not in ended.stdout
        return ended

    def ok(self, name: str, *words: str, **env: str) -> str:
        """What the script says; it fails the test unless it works."""
        ended = self.script(name, *words, **env)
        assert ended.returncode == 0, ended.stdout
        return ended.stdout

    def note(self, *words: object) -> None:
        """Keep a line for the person who reads why a test has failed."""
        self.transcript.append(" ".join(map(str, words)))

    def killed(self, name: str, *words: str, at: int, after_s: float | None = None) -> bool:
        """Run the script and kill it before its command number `at`, or after a time; whether it
        was: else it has ended by itself."""
        process = subprocess.Popen(
            [self.checkout / "scripts" / name, *words],
            cwd="/",
            env={**self._environment(), **self._killing(at)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            process.wait(after_s or BUILD_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
        self.note("$", f"scripts/{name}", *words)
        self.note(f"[killed at {after_s or at}: {process.returncode}]\n")
        return process.returncode < 0

    def commands_of(self, name: str, *words: str) -> int:
        """How many commands the script runs; it must work."""
        self.ok(name, *words, **self._killing(0))
        return int(self._count.read_text())

    def _killing(self, at: int) -> dict[str, str]:
        return {
            "BASH_ENV": str(self._killer),
            "KILL_AT": str(at),
            "COUNT_IN": str(self._count),
        }

    def _environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("LUMBRIDGE", "PYTHON"))}
        return {**kept, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self._wheels)}


def git(folder: Path, *words: str) -> str:
    """What git prints in `folder`; it fails the test unless it works."""
    ended = subprocess.run(
        [*_GIT, "-C", str(folder), *words], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


def current() -> str:
    """The release that is current."""
    return (PREFIX / "current").readlink().name


def releases() -> set[str]:
    return {each.name for each in (PREFIX / "releases").iterdir()}


def tree(*folders: Path) -> dict[str, tuple[int, int, str]]:
    """Everything below `folders`: mode, time of change and where a link leads."""
    found = {}
    for folder in folders:
        for path in (folder, *folder.rglob("*")) if folder.exists() else ():
            status = path.lstat()
            leads = os.readlink(path) if path.is_symlink() else ""
            found[str(path)] = (status.st_mode, status.st_mtime_ns, leads)
    return found
