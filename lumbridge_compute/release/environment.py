"""The environment of the node's own agent: probes may need the secrets that its unit is given."""

from __future__ import annotations

import os
from collections.abc import Mapping

from lumbridge_compute.cli.node import read_agent
from lumbridge_compute.host.procfs import PROC, read_file


def environment_of_agent(root: str) -> Mapping[str, str]:
    """What the resident agent was started with, else this process's own environment."""
    pid = read_agent(root).pid
    data = read_file(f"{PROC}/{pid}/environ") if pid is not None else None
    if not data:
        return os.environ
    pairs = (os.fsdecode(each).partition("=") for each in data.split(b"\0") if b"=" in each)
    return {name: value for name, _, value in pairs}
