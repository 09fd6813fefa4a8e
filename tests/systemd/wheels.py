"""Wheels of what this environment has installed, so that pip needs no package index in the box."""

from __future__ import annotations

import re
import tomllib
import zipfile
from importlib.metadata import Distribution, distribution
from pathlib import Path

_NOT_IN_A_WHEEL = frozenset({"INSTALLER", "REQUESTED", "direct_url.json"})
_NAME = re.compile(r"[A-Za-z0-9._-]+")


def pack_wheels(folder: Path, pyproject: Path) -> None:
    """A wheel in `folder` of all that the project of `pyproject` needs to be built and run."""
    folder.mkdir(parents=True)
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))
    wanted = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    packed: set[str] = set()
    while wanted:
        requirement = wanted.pop()
        name = _NAME.match(requirement)
        if name is None or name[0].lower() in packed or "extra ==" in requirement:
            continue
        packed.add(name[0].lower())
        package = _installed(name[0])
        if package is not None:
            _pack(package, folder)
            wanted += package.requires or []


def _installed(name: str) -> Distribution | None:
    """None for what this interpreter does not need."""
    try:
        return distribution(name)
    except ModuleNotFoundError:
        return None


def _pack(package: Distribution, folder: Path) -> None:
    """Its files, as its RECORD lists them.  Source: the binary distribution format (PyPA)."""
    lines = (package.read_text("WHEEL") or "").splitlines()
    tags = [line.removeprefix("Tag: ").split("-") for line in lines if line.startswith("Tag: ")]
    tag = "-".join(".".join(dict.fromkeys(part)) for part in zip(*tags, strict=True))
    name = re.sub(r"[-.]", "_", package.name)
    path = folder / f"{name}-{package.version}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as wheel:  # it is read once
        for file in package.files or ():
            if file.parts[0] != ".." and file.suffix != ".pyc" and file.name not in _NOT_IN_A_WHEEL:
                wheel.write(str(file.locate()), str(file))
