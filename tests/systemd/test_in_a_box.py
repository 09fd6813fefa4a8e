"""Runs each test of inside/ in a box of its own: a private systemd with nothing else in it."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CHECKOUT = HERE.parents[1]
BOX = HERE / "box"
MEMORY_BYTES = {"test_out_of_memory.py": 768 * 1024 * 1024}
BOUND_S = 600
_CAN_NOT_RUN = 77


def ids_in(file: Path) -> list[str]:
    """The pytest ids of the tests in `file`, which is not imported."""
    return [
        f"{file.relative_to(CHECKOUT)}::{node.name}"
        for node in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name[:5] == "test_"
    ]


INSIDE = [
    test
    for file in (*sorted(HERE.glob("inside/test_*.py")), CHECKOUT / "tests/host/test_scopes.py")
    for test in ids_in(file)
]


def shown(more: Sequence[Path]) -> list[str]:
    """The options that show what the tests need and what is not on the file system of /."""
    needed = {str(CHECKOUT), sys.prefix, sys.base_prefix, *map(str, more)}
    device = os.stat("/").st_dev
    return [f"--show={each}" for each in sorted(needed) if os.stat(each).st_dev != device]


@pytest.mark.parametrize("test", INSIDE, ids=lambda test: test.rpartition("/")[2])
def test_inside(test: str) -> None:
    run_inside(test)


def run_inside(test: str, show: Sequence[Path] = ()) -> None:
    """Run the test in a box, where `show` is to be seen; it fails, or is skipped, as that one."""
    memory = MEMORY_BYTES.get(test.partition("::")[0].rpartition("/")[2])
    limit = [f"--memory={memory}"] if memory else []
    pytest_argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", test]
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(CHECKOUT)}
    ended = subprocess.run(
        [BOX, *shown(show), *limit, "--", *pytest_argv],
        cwd=CHECKOUT,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=BOUND_S,
        text=True,
        check=False,
    )
    if ended.returncode == _CAN_NOT_RUN:
        pytest.skip(ended.stdout.strip())
    assert ended.returncode == 0, ended.stdout
    assert "skipped" not in ended.stdout, ended.stdout
