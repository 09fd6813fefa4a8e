"""Imports go downwards only, and what only one module may do is done in no other.

Everything here reads the source; nothing of the package is imported.
"""

from __future__ import annotations

import ast
import graphlib
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = "lumbridge_compute"
ROOT = Path(__file__).parent.parent / PACKAGE
LAYERS = {
    "": 0,
    "errors": 0,
    "core": 1,
    "host": 2,
    "store": 2,
    "effects": 2,  # the seam alone: it speaks of core values only
    "checking": 3,
    "claims": 3,
    "observe": 3,
    "probe": 3,
    "client": 4,
    "control": 4,
    "gateway": 4,
    "host_effects": 4,
    "interruption": 4,
    "journal": 4,
    "looking": 4,
    "orders": 4,
    "resident": 4,
    "resuming": 4,
    "steps": 4,
    "stopping": 4,
    "surroundings": 4,
    "transaction": 4,
    "watchdog": 4,
    "way_back": 4,
    "agent": 5,
    "demo": 5,
    "cli": 6,
    "release": 6,
    "__main__": 6,
}
IMPURE = frozenset(
    {"asyncio", "datetime", "io", "logging", "multiprocessing", "os", "pathlib", "random"}
    | {"secrets", "select", "shutil", "socket", "subprocess", "sys", "tempfile", "threading"}
    | {"time", "trio", "uuid"}
)
SIGNALLERS = frozenset({"kill", "killpg", "pidfd_send_signal", "raise_signal", "send_signal"})
SIGNALLING_MODULES = ("host.pidfd", "host.pidfd_signal")


def modules() -> dict[str, ast.Module]:
    """Every module of the package by its name below the package."""
    found = {}
    for file in sorted(ROOT.rglob("*.py")):
        parts = file.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(file.read_text(encoding="utf-8"), str(file))
    return found


MODULES = modules()


def layer(module: str) -> int:
    top = module.partition(".")[0]
    assert top in LAYERS, f"{module} has no place: give {top!r} a layer in LAYERS"
    return LAYERS[top]


def imported(tree: ast.AST) -> Iterator[str]:
    """Full names of what a module imports, wherever in it the import stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports name the package"
            assert node.module is not None
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imported_own(tree: ast.AST) -> set[str]:
    below = (
        name.removeprefix(PACKAGE).removeprefix(".")
        for name in imported(tree)
        if name.partition(".")[0] == PACKAGE
    )
    return {name for name in below if name in MODULES and name}


@pytest.mark.parametrize("module", MODULES)
def test_imports_go_downwards_only(module: str) -> None:
    upwards = {other for other in imported_own(MODULES[module]) if layer(other) > layer(module)}
    assert not upwards


def test_no_module_imports_itself_by_way_of_others() -> None:
    own = {module: imported_own(tree) for module, tree in MODULES.items()}
    graphlib.TopologicalSorter(own).prepare()


@pytest.mark.parametrize("module", [name for name in MODULES if name.startswith("core")])
def test_core_imports_nothing_that_looks_at_the_world(module: str) -> None:
    roots = {name.partition(".")[0] for name in imported(MODULES[module])}
    assert not roots & IMPURE


@pytest.mark.parametrize(
    "module",
    [name for name in MODULES if name not in SIGNALLING_MODULES and not name.startswith("demo")],
)
def test_signals_leave_from_one_place(module: str) -> None:
    """`pidfd_signal` is what of `pidfd` the sampler of the floor can afford to load.  The demo may
    end what it has started itself: it plays the operator."""
    used = {
        node.attr if isinstance(node, ast.Attribute) else node.id
        for node in ast.walk(MODULES[module])
        if isinstance(node, ast.Attribute | ast.Name)
    } | {name.rpartition(".")[2] for name in imported(MODULES[module])}
    assert not used & SIGNALLERS


def test_the_version_module_imports_nothing() -> None:
    assert not list(imported(MODULES[""]))
