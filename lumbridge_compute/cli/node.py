"""Look at a node without changing anything: what `status` and its like read."""

from __future__ import annotations

import os
from collections.abc import Mapping

from lumbridge_compute.cli.call import REGISTRY_FILE
from lumbridge_compute.core.registry import Registry
from lumbridge_compute.core.report import AgentView, NodeStatus
from lumbridge_compute.core.site import Site
from lumbridge_compute.host.files import PRIVATE_FOLDER
from lumbridge_compute.host.lock import AGENT_LOCK_NAME
from lumbridge_compute.looking import Look, read_holder, state_of
from lumbridge_compute.store.registry_file import read_registry

__all__ = ["has_agent", "private_path", "read_agent", "read_status", "registry_of", "state_of"]


def registry_of(root: str) -> Registry:
    """What compute.yaml says.  Raises BadInput with every fault."""
    return read_registry(os.path.join(root, REGISTRY_FILE))


def private_path(root: str, name: str) -> str:
    """The path of a file in the node's private folder."""
    return os.path.join(root, PRIVATE_FOLDER, name)


def read_status(root: str, environ: Mapping[str, str]) -> NodeStatus:
    """The node as it is now; what can't be read is a problem in it, not an error."""
    look = Look(Site(root, environ), lambda: registry_of(root))
    while look.again():
        if look.pending:
            import trio

            trio.run(look.ask)
    return look.status(read_agent(root))


def read_agent(root: str) -> AgentView:
    """The resident agent: who holds its lock, and what that one tells."""
    holder = read_holder(root, AGENT_LOCK_NAME)
    if holder is None:
        return AgentView()
    from lumbridge_compute.cli.ask_agent import ask_agent

    told = ask_agent(root)
    if told is None and read_holder(root, AGENT_LOCK_NAME) is None:
        return AgentView()  # it has left meanwhile
    version = told["version"] if told is not None else None
    return AgentView(running=True, pid=holder.pid, version=version, told=told)


def has_agent(root: str) -> bool:
    """Whether an agent is resident, whatever state it is in."""
    return read_holder(root, AGENT_LOCK_NAME) is not None
