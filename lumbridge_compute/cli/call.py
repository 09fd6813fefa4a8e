"""One call of the command: what was asked, where the node is, and where the answer goes."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from lumbridge_compute.cli.streams import Stream
from lumbridge_compute.core.values import dataclass, field
from lumbridge_compute.errors import BadInput

if TYPE_CHECKING:
    from lumbridge_compute.effects import Effects

ROOT_VARIABLE = "LUMBRIDGE_COMPUTE_ROOT"
REGISTRY_FILE = "compute.yaml"


def host_effects(root: str) -> Effects:
    """The machine itself, for the node at `root`."""
    from lumbridge_compute.host_effects import HostEffects

    return HostEffects(root)


@dataclass(frozen=True, slots=True)
class Call:
    """`out` takes the result and nothing else; `err` takes everything that is not the result.

    `open_effects` gives what a transaction that this command carries out itself works through.
    """

    options: argparse.Namespace
    environ: Mapping[str, str] = field(repr=False)
    out: Stream
    err: Stream
    open_effects: Callable[[str], Effects] = host_effects

    @property
    def command(self) -> str:
        command: str = self.options.command
        return command

    @property
    def json(self) -> bool:
        return bool(self.options.json)

    def root(self) -> str:
        """The node's root, absolute.  Raises BadInput."""
        return resolve_root(self.options.root, self.environ)

    def print_document(self, document: Mapping[str, Any]) -> None:
        """The one JSON document of this call."""
        import json

        self.out.write(json.dumps(document, indent=2) + "\n")


def resolve_root(given: str | None, environ: Mapping[str, str]) -> str:
    """The root by --root, else by the environment, else the current folder (DESIGN section 3).

    Raises BadInput where none of the three names one, or where it is no folder.
    """
    named = given if given is not None else environ.get(ROOT_VARIABLE)
    try:
        if named:
            return _checked(os.path.abspath(named))
        if given is None and os.path.lexists(REGISTRY_FILE):
            return os.getcwd()
    except (OSError, ValueError) as error:
        raise BadInput(
            f"cannot find the node's root: {getattr(error, 'strerror', None) or error}",
            "lumbridge-compute --root DIR COMMAND",
        ) from error
    raise BadInput(
        f"cannot find the node's root: no --root DIR is given, {ROOT_VARIABLE} is not set, and "
        f"the current folder holds no {REGISTRY_FILE}",
        "lumbridge-compute --root DIR COMMAND",
    )


def _checked(root: str) -> str:
    if not os.path.isdir(root):
        found = "it is not a folder" if os.path.lexists(root) else "no such folder"
        raise BadInput(
            f"cannot use the root {root!r}: {found}", f"give the folder that holds {REGISTRY_FILE}"
        )
    return root
