"""Disks that are full, read-only, or take files of a bounded size: each answer is kept, and what
an operator mends, a resume brings back."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.proof.plays import PLAYS, Seen, build, render_broken, strike
from tests.system.node import COMMAND, Ran, SystemNode

_DISK_BYTES = 512 * 1024
_PAGE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Full:
    """A disk with room for so many more pages while the command runs."""

    pages: int

    def run(self, node: SystemNode, *args: str) -> Ran:
        filler = node.root / "filler"
        free = os.statvfs(node.root).f_bavail
        with filler.open("wb") as file:
            file.write(bytes((free - self.pages) * _PAGE_BYTES))
        try:
            return node.run(*args)
        finally:
            filler.unlink()


@dataclass(frozen=True, slots=True)
class SmallFiles:
    """No file may grow beyond so many bytes by what the command or its models write."""

    limit_bytes: int

    def run(self, node: SystemNode, *args: str) -> Ran:
        return node.run(*args, command=["prlimit", f"--fsize={self.limit_bytes}", "--", *COMMAND])


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk, and a read-only view of it beside: `disk/of` and `disk/view`.

    Both are mounted for one process alone and seen through it, so they end with it.
    """
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("a disk of our own needs root and unshare")
    made, view = tmp_path / "of", tmp_path / "view"
    made.mkdir()
    view.mkdir()
    script = (
        f"mount -t tmpfs -o mode=755,size={_DISK_BYTES} disk '{made}' && "
        f"mount --bind '{made}' '{view}' && mount -o remount,bind,ro '{view}' && "
        "echo mounted && exec sleep 1000"
    )
    words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]
    holder = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        if holder.stdout.readline() != "mounted\n":
            pytest.skip("no tmpfs can be mounted here")
        yield Path(f"/proc/{holder.pid}/root{tmp_path}")
    finally:
        holder.kill()
        holder.communicate()


@pytest.fixture
def stage(disk: Path) -> Iterator[SystemNode]:
    node = build(disk / "of")
    try:
        yield node
    finally:
        node.close()


@pytest.mark.parametrize("play", ["switch", "deactivate"])
def test_a_disk_with_little_or_no_room(stage: SystemNode, play: str) -> None:
    for pages in (0, 1, 3):
        ran, broken = strike(stage, PLAYS[play], Full(pages))
        assert not broken, render_broken(stage, play, f"with {pages} free pages", ran, broken)
        assert ran.exit == 3 or pages
        assert ran.exit in (0, 1, 3, 4)


def test_a_root_that_is_read_only_refuses_all_that_would_change_it(stage: SystemNode) -> None:
    stage.ok("scene", "activate", "day")
    before = Seen.of(stage)
    view = replace(stage, root=stage.root.with_name("view"))
    for order in (["activate", "night"], ["deactivate"], ["adopt", "day"], ["forget", "voice"]):
        ran = view.run("scene", *order, "--json")
        assert ran.exit == 3, (order, ran)
        assert "Read-only file system" in ran.json["error"]
        assert Seen.of(stage) == before
    assert view.status()["verdict"] == "exact"
    assert view.run("scene", "activate", "night", "--dry-run").exit == 3  # no log can be made
    view.ok("scene", "activate", "day", "--dry-run")


def test_files_that_may_not_grow(tmp_path: Path) -> None:
    node = build(tmp_path)
    try:
        for limit_bytes, code in ((0, 3), (500, 1), (1000, 1), (4000, 0)):
            ran, broken = strike(node, PLAYS["activate"], SmallFiles(limit_bytes))
            said = f"with files of {limit_bytes} bytes"
            assert not broken, render_broken(node, "activate", said, ran, broken)
            assert ran.exit == code, ran
    finally:
        node.close()
