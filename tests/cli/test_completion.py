"""What Tab offers."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from lumbridge_compute.cli.commands import COMMANDS
from lumbridge_compute.cli.completion import SCRIPTS, candidates
from tests.system.node import COMMAND, SystemNode


def offered(node: SystemNode, line: str) -> list[str]:
    """What the hidden command answers to the words of `line`, the last one being typed."""
    words = ["--root", str(node.root), *line.split(" ")]
    done = subprocess.run(
        [*COMMAND, "__complete", *words], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("sta", ["status"]),
        ("scene ", ["list", "show", "adopt", "activate", "resume", "deactivate", "forget"]),
        ("scene activate ", ["day", "night"]),
        ("scene activate n", ["night"]),
        ("scene activate day ", []),
        ("scene show --json ", ["day", "night"]),
        ("scene adopt day --pid ", ["small=", "large=", "voice="]),
        ("logs v", ["voice"]),
        ("scene forget ", []),
        ("completion ", ["bash", "zsh", "fish"]),
        ("scene resume --", ["--root", "--verbose", "--quiet", "--json", "--force", "--dry-run"]),
        ("--root ", []),
        ("nonsense ", []),
    ],
)
def test_commands_options_scenes_and_models_are_offered(
    node: SystemNode, line: str, expected: list[str]
) -> None:
    found = offered(node, line)
    assert found[: len(expected)] == expected
    assert expected or found == []


def test_a_recorded_model_can_be_forgotten_also_when_it_is_no_longer_declared(
    node: SystemNode,
) -> None:
    private = node.root / ".kuda"
    private.mkdir(mode=0o700)
    (private / "state.yaml").write_text("processes: {old: 999999}\n")
    assert offered(node, "scene forget ") == ["old"]
    assert offered(node, "logs o") == ["old"]


@pytest.mark.parametrize("text", ["{", "", "version: 2\n"])
def test_a_node_that_can_not_be_read_offers_nothing_and_says_nothing(
    node: SystemNode, text: str
) -> None:
    (node.root / "compute.yaml").write_text(text)
    assert offered(node, "scene activate ") == []
    assert offered(node, "scene act") == ["activate"]


def test_completion_writes_nothing_into_the_node(node: SystemNode) -> None:
    offered(node, "scene activate ")
    assert [path.name for path in node.root.iterdir()] == ["compute.yaml"]


def test_every_command_is_offered_at_the_first_word() -> None:
    first = dict.fromkeys(name.split(" ")[0] for name in COMMANDS)
    assert [*candidates([], "", {})] == [*first]


def on_path(tmp_path: Path) -> dict[str, str]:
    """An environment in which `lumbridge-compute` is a program."""
    program = tmp_path / "bin" / "lumbridge-compute"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {" ".join(COMMAND)} "$@"\n')
    program.chmod(0o755)
    checkout = Path(__file__).parents[2]
    path = f"{program.parent}:/usr/bin:/bin"
    return {"PATH": path, "PYTHONPATH": str(checkout), "HOME": str(tmp_path)}


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["scene", "activate", ""], ["day", "night"]),
        (["--root", "=", "ROOT", "scene", "activate", "n"], ["night"]),
        (["scene", "adopt", "day", "--pid", "v"], ["voice="]),
        (["status", "--w"], ["--watch"]),
    ],
)
def test_bash_offers_the_same(
    node: SystemNode, tmp_path: Path, words: list[str], expected: list[str]
) -> None:
    script = """
        source <(lumbridge-compute completion bash)
        COMP_WORDS=(lumbridge-compute "$@"); COMP_CWORD=$#
        compopt() { :; }
        _lumbridge_compute lumbridge-compute
        [[ ${#COMPREPLY[@]} -eq 0 ]] || printf '%s\\n' "${COMPREPLY[@]}"
        complete -p lumbridge-compute >&2
    """
    words = [str(node.root) if word == "ROOT" else word for word in words]
    done = subprocess.run(
        ["bash", "-euc", script, "bash", *words],
        env=on_path(tmp_path),
        cwd=node.root,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == expected
    assert done.stderr.startswith("complete ")


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_offers_the_same(node: SystemNode, tmp_path: Path) -> None:
    script = """
        lumbridge-compute completion fish | source
        complete -C "lumbridge-compute scene activate "
        complete -C "lumbridge-compute scene adopt day --pid v"
    """
    done = subprocess.run(
        ["fish", "--no-config", "-c", script],
        env=on_path(tmp_path),
        cwd=node.root,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["day", "night", "voice="]


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_offers_the_same(node: SystemNode, tmp_path: Path) -> None:
    script = """
        compdef() { : }
        compadd() { while [[ $1 != -- ]]; do shift; done; shift; print -l -- "$@" }
        source <(lumbridge-compute completion zsh)
        words=(lumbridge-compute scene activate ""); CURRENT=4; _lumbridge_compute
        words=(lumbridge-compute scene adopt day --pid v); CURRENT=6; _lumbridge_compute
    """
    done = subprocess.run(
        ["zsh", "-fc", script],
        env=on_path(tmp_path),
        cwd=node.root,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["day", "night", "voice="]


@pytest.mark.parametrize("shell", SCRIPTS)
def test_the_script_of_each_shell_is_right_for_it(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    subprocess.run([shell, "-n"], input=SCRIPTS[shell], text=True, check=True)
