"""One server for the tests of a module, a fresh repository and a fresh node for each."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy_key.server import SSHD, Clone, Server, clone, open_server


@pytest.fixture(scope="module")
def _server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if SSHD is None:
        pytest.skip("sshd is missing (package openssh-server)")
    if shutil.which("ssh") is None:
        pytest.skip("ssh is missing (package openssh-client)")
    opened = open_server(tmp_path_factory.mktemp("server"))
    try:
        server = opened.__enter__()
    except OSError as why:
        pytest.skip(f"no sshd runs here: {why}")
    yield server
    opened.__exit__(None, None, None)


@pytest.fixture
def server(_server: Server) -> Server:
    _server.fresh()
    return _server


@pytest.fixture
def node(tmp_path: Path, server: Server) -> Clone:
    return clone(tmp_path / "home", server)
