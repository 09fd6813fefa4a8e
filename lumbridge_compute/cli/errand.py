"""What a mutating command carries with it, wherever it is carried out."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lumbridge_compute.core.events import Event
from lumbridge_compute.interruption import Interruption
from lumbridge_compute.orders import Order


@dataclass(frozen=True, slots=True)
class Errand:
    """An order for the node at `root`; `tell` is told each step.

    `interruption` counts the signals in `caught` from before the loop listens.
    """

    root: str
    order: Order
    tell: Callable[[Event], None]
    interruption: Interruption
    caught: Sequence[signal.Signals]
