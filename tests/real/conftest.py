"""Model servers as they are, with tiny models; skipped where scripts/test-real did not start it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.system.conftest import node

__all__ = ["node"]
TINY = Path(__file__).with_name("tiny.py")


@pytest.fixture(scope="session")
def servers() -> Path:
    """The virtual environment in which the servers are installed."""
    folder = os.environ.get("LUMBRIDGE_COMPUTE_SERVERS")
    if not folder:
        pytest.skip("scripts/test-real installs the model servers and runs this")
    return Path(folder)


@pytest.fixture(scope="session")
def llama_server(servers: Path) -> Path:
    """The program of llama.cpp."""
    installed = servers / "bin" / "llama-server-vulkan"
    found = installed if installed.exists() else shutil.which("llama-server")
    if found is None:
        pytest.skip("no llama-server for this machine: neither in the package index nor on PATH")
    return Path(found)


@pytest.fixture(scope="session")
def tiny(servers: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tiny models that the installed packages can make."""
    folder = tmp_path_factory.mktemp("models")
    kinds = {"llm": "llm.gguf"}
    if (servers / "bin" / "faster-whisper-server").exists():
        kinds |= {"voice": "voice.onnx", "recogniser": "recogniser"}
    for kind, name in kinds.items():
        subprocess.run([servers / "bin" / "python", TINY, kind, folder / name], check=True)
    return folder
