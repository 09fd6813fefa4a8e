"""The documents' commands on the deploy key, typed against a real sshd."""

from __future__ import annotations

import contextlib
import shlex
from pathlib import Path

import pytest

from tests.deploy_key.server import SSHD, Clone, Server, clone, open_server
from tests.docs.commands import Command, all_commands


def test_the_deploy_key_commands_do_what_the_documents_say(tmp_path: Path) -> None:
    if SSHD is None:
        pytest.skip("sshd is missing (package openssh-server)")
    commands = [command for command in all_commands() if command.family == "deploy-key"]
    assert len(commands) > 3
    (tmp_path / "server").mkdir()
    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(open_server(tmp_path / "server"))
        except OSError as why:
            pytest.skip(f"no sshd runs here: {why}")
        node = clone(tmp_path / "home", server)
        for command in commands:
            ran = node.run(*words_here(command, node, server))
            assert ran.exit == command.exit, (command, ran)
            if " init " in command.text:
                server.register(node.public(), "read")


def words_here(command: Command, node: Clone, server: Server) -> list[str]:
    """The words of the command, with this server in place of the written one."""
    words = shlex.split(command.text)[1:]
    if words[0] != "init":
        return words
    options = [server.fingerprint() if word.startswith("SHA256:") else word for word in words[1:-2]]
    return node.init_words(*options)
