"""What a checkout must be like, whatever machine it is on."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import lumbridge_compute

ROOT = Path(__file__).parent.parent
SCRIPTS = [
    ROOT / ".ci" / "run",
    ROOT / "tests" / "systemd" / "box",
    *sorted(path for path in (ROOT / "scripts").iterdir() if path.is_file()),
]
SHELL_SCRIPTS = [path for path in SCRIPTS if path.read_bytes().startswith(b"#!/usr/bin/env bash\n")]
PIN = re.compile(r"([a-z0-9-]+)==[0-9][0-9a-z.]*")
# A folder that belongs to one machine or person; /srv, /data and /etc are an operator's, and one in
# /opt is where we are installed.
MACHINE_PATH = re.compile(r"/(?:home|root|work|Users|mnt|opt(?!/lumbridge-compute\b))/[\w.-]+")


def pins() -> list[str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def tracked() -> Iterator[Path]:
    """Every file that belongs to the project."""
    for name in ("lumbridge_compute", "scripts", ".ci", "docs", "examples", "units"):
        for path in sorted((ROOT / name).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path
    yield from (path for path in sorted(ROOT.iterdir()) if path.suffix in {".md", ".toml", ".txt"})


def test_constraints_pin_a_version_each_and_name_no_host() -> None:
    assert pins()
    for line in pins():
        assert PIN.fullmatch(line), line


def test_constraints_name_each_package_once_and_in_order() -> None:
    names = [line.partition("==")[0] for line in pins()]
    assert names == sorted(set(names))


def test_every_declared_dependency_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    declared = [
        *project["project"]["dependencies"],
        *project["project"]["optional-dependencies"]["dev"],
        *project["build-system"]["requires"],
    ]
    names = {re.split(r"[<>=!~ ;\[]", each)[0].lower() for each in declared}
    assert names <= {line.partition("==")[0] for line in pins()}


def test_no_index_is_named() -> None:
    for name in ("pyproject.toml", "constraints.txt"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert not re.search(r"https?://|--(extra-)?index-url|--find-links|--trusted-host", text)


@pytest.mark.parametrize("path", list(tracked()), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_machine_is_named(path: Path) -> None:
    assert not MACHINE_PATH.search(path.read_text(encoding="utf-8"))


def test_the_version_is_written_in_one_place() -> None:
    version = lumbridge_compute.__version__
    assert re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9]+", version)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "version" in project["project"]["dynamic"]
    naming = [
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "lumbridge_compute").rglob("*.py")
        if f'"{version}"' in path.read_text(encoding="utf-8")
    ]
    assert naming == ["lumbridge_compute/__init__.py"]


def test_the_changelog_knows_the_version() -> None:
    headings = re.findall(
        r"^## \[?([^\]\s]+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert lumbridge_compute.__version__ in headings


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_every_script_can_be_run_and_explains_itself_from_anywhere(
    script: Path, tmp_path: Path
) -> None:
    assert os.access(script, os.X_OK)
    shown = subprocess.run(
        [script, "--help"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"]},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.startswith("usage: ")
    assert script.name in shown.stdout.splitlines()[0]
    assert shown.stderr == ""
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("script", SHELL_SCRIPTS, ids=lambda path: path.name)
def test_every_shell_script_stops_at_the_first_failure(script: Path) -> None:
    assert script.read_text(encoding="utf-8").splitlines()[1] == "set -euo pipefail"


# How the scripts find a Python: everything here ends before a virtual environment is made.


@pytest.fixture
def bare_path(tmp_path: Path) -> Path:
    """A PATH with the few programs that the scripts use, and no Python."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for program in ("bash", "cat", "cut", "dirname", "env", "flock", "ls", "mkdir", "sha256sum"):
        found = shutil.which(program)
        assert found is not None
        (folder / program).symlink_to(found)
    return folder


def set_up(bare_path: Path, venv: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ROOT / "scripts" / "test"],
        env={"PATH": str(bare_path), "LUMBRIDGE_COMPUTE_VENV": str(venv), **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def test_set_up_without_a_python_says_what_to_install(bare_path: Path, tmp_path: Path) -> None:
    ended = set_up(bare_path, tmp_path / "venv")
    assert ended.returncode == 1
    assert "cannot find Python 3.11 or newer" in ended.stderr
    assert "hint: on Debian: apt-get install python3 python3-venv" in ended.stderr
    assert not (tmp_path / "venv").exists()


def test_set_up_without_ensurepip_names_the_package(bare_path: Path, tmp_path: Path) -> None:
    python = bare_path / "python3"
    python.write_text(
        "#!/usr/bin/env bash\n[[ $* != *ensurepip* ]] || exit 1\n"
        f'exec {shlex.quote(sys.executable)} "$@"\n'
    )
    python.chmod(0o755)
    ended = set_up(bare_path, tmp_path / "venv")
    assert ended.returncode == 1
    assert "python3 has no module ensurepip" in ended.stderr
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert f"apt-get install python{version}-venv" in ended.stderr


def test_set_up_removes_nothing_that_is_not_its_own(bare_path: Path, tmp_path: Path) -> None:
    precious = tmp_path / "venv" / "precious"
    precious.parent.mkdir()
    precious.touch()
    ended = set_up(bare_path, precious.parent, LUMBRIDGE_COMPUTE_PYTHON=sys.executable)
    assert ended.returncode == 1
    assert "something that is no virtual environment is there" in ended.stderr
    assert precious.exists()


def test_set_up_with_a_python_that_is_too_old_says_so(bare_path: Path, tmp_path: Path) -> None:
    old = bare_path / "python-old"
    old.write_text("#!/usr/bin/env bash\nexit 1\n")
    old.chmod(0o755)
    ended = set_up(bare_path, tmp_path / "venv", LUMBRIDGE_COMPUTE_PYTHON="python-old")
    assert ended.returncode == 1
    assert "cannot find Python 3.11 or newer: tried python-old" in ended.stderr
