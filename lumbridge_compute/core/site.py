"""Where a node lives."""

from __future__ import annotations

from collections.abc import Mapping

from lumbridge_compute.core.values import dataclass, field


@dataclass(frozen=True, slots=True)
class Site:
    """Where the node lives: its root folder, absolute, and the environment for placeholders."""

    root: str
    environ: Mapping[str, str] = field(repr=False)
