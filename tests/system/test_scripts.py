"""What the scripts of an installation refuse, and that refusing changes nothing."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.systemd.deployment import Deployment, git, tree

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


class Place:
    """A prefix of its own, in which `release` counts as installed."""

    def __init__(self, folder: Path) -> None:
        self.deployment = Deployment(folder, with_packages=False)
        self.checkout, self.upstream = self.deployment.checkout, self.deployment.upstream
        self.prefix = folder / "prefix"
        self.release = self.deployment.revision()
        (self.prefix / "releases" / self.release).mkdir(parents=True)
        (self.prefix / "releases" / self.release / "release.txt").touch()
        (self.prefix / "current").symlink_to(f"releases/{self.release}")
        (self.prefix / "lock").touch()

    def refused(self, name: str, *words: str) -> str:
        """What the script says when it refuses; it has changed nothing."""
        before = tree(self.prefix)
        ended = self.run(name, *words)
        assert ended.returncode == 1
        assert kept(before) == kept(tree(self.prefix))
        return ended.stdout

    def run(self, name: str, *words: str) -> subprocess.CompletedProcess[str]:
        return self.deployment.script(name, *words, "--prefix", str(self.prefix))


def kept(found: dict[str, tuple[int, int, str]]) -> dict[str, tuple[int, str]]:
    """Without times: what is unfinished is looked for, and a folder is touched by that."""
    return {path: (mode, leads) for path, (mode, _, leads) in found.items()}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def edit(folder: Path) -> None:
    (folder / "README.md").write_text("changed\n")


def test_a_checkout_with_changes_is_not_upgraded(place: Place) -> None:
    place.deployment.commit("second")
    edit(place.checkout)
    said = place.refused("upgrade")
    assert "has changes that are not committed" in said
    assert "hint: git status shows them" in said


def test_a_file_that_git_does_not_know_is_no_change(place: Place) -> None:
    (place.checkout / "notes").touch()
    assert place.run("upgrade").returncode == 0


def test_a_checkout_with_commits_of_its_own_is_not_upgraded(place: Place) -> None:
    edit(place.checkout)
    git(place.checkout, "commit", "--quiet", "--all", "--message", "mine")
    assert "has commits that origin/main lacks" in place.refused("upgrade")
    assert "has commits that origin/main lacks" in place.refused("upgrade", "--dry-run")


def test_a_checkout_that_follows_nothing_is_not_upgraded(place: Place) -> None:
    git(place.checkout, "branch", "--unset-upstream")
    assert "the checkout follows no branch" in place.refused("upgrade")


def test_an_upstream_that_is_gone_is_told(place: Place) -> None:
    place.upstream.rename(place.upstream.with_name("elsewhere"))
    assert "cannot fetch from origin" in place.refused("upgrade")


def test_a_dry_run_names_what_is_upstream_and_fetches_nothing(place: Place) -> None:
    second = place.deployment.commit("second")
    before = tree(place.checkout, place.prefix)
    ended = place.run("upgrade", "--dry-run")
    assert ended.returncode == 0
    assert (
        f"would switch from {place.release} to {second.replace('0.1.0', 'VERSION')}" in ended.stdout
    )
    assert tree(place.checkout, place.prefix) == before


def test_an_unknown_revision_is_told(place: Place) -> None:
    assert "there is no revision 'v9'" in place.refused("upgrade", "--to", "v9")


def test_a_revision_can_be_named(place: Place) -> None:
    second = place.deployment.commit("second")
    git(place.upstream, "tag", "v2")
    place.deployment.commit("third")
    git(place.checkout, "fetch", "--quiet", "--tags")
    ended = place.run("upgrade", "--to", "v2", "--dry-run")
    assert ended.returncode == 0
    assert f"would switch from {place.release} to {second}" in ended.stdout


def test_what_runs_already_is_not_built_again(place: Place) -> None:
    ended = place.run("upgrade")
    assert ended.returncode == 0
    assert f"release {place.release} runs already" in ended.stdout


def test_there_may_be_nothing_to_go_back_to(place: Place) -> None:
    assert "there is no release to go back to" in place.refused("upgrade", "--back")
    assert "two ways" in place.refused("upgrade", "--back", "--to", "main")


def test_without_an_installation_there_is_no_upgrade(place: Place) -> None:
    (place.prefix / "current").unlink()
    assert "nothing is installed in" in place.refused("upgrade")


def test_one_at_a_time(place: Place) -> None:
    with (place.prefix / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for name in ("install", "upgrade", "uninstall"):
            assert "goes on" in place.refused(name)


def test_a_checkout_with_changes_is_not_installed(place: Place) -> None:
    (place.prefix / "current").unlink()
    edit(place.checkout)
    assert "has changes that are not committed" in place.refused("install")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--root", "/srv/my node"], "cannot use the root '/srv/my node'"),
        (["--listen", "here;there"], "cannot use --listen 'here;there'"),
        (["--floor"], "--floor wants a value"),
        (["--frobnicate"], "unexpected argument '--frobnicate'"),
    ],
    ids=["root", "listen", "floor", "unknown"],
)
def test_what_can_not_be_meant_is_refused(place: Place, words: list[str], says: str) -> None:
    ended = place.deployment.script("install", "--prefix", str(place.prefix), *words)
    assert ended.returncode == 1
    assert says in ended.stdout


def test_an_upgrade_that_can_not_build_leaves_nothing(place: Place) -> None:
    place.deployment.commit("second")
    said = place.refused("upgrade")
    assert "cannot install the pinned packages: pip failed" in said
