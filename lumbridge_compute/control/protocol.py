"""What both sides of the control socket agree on."""

from __future__ import annotations

PROTOCOL = 1
"""Rises with every change that an older side would misread."""

SOCKET_NAME = "agent.sock"
VERSION_HEADER = "Lumbridge-Compute-Version"
PROTOCOL_HEADER = "Lumbridge-Compute-Protocol"
ORDER_HEADER = "Lumbridge-Compute-Order"
"""The number by which POST /cancel names an order that is under way or waits."""

ANSWER_S = 2.0
"""An agent that has not begun its answer by then is stuck, and its client has left."""

FRESH_S = 1.5
"""An order that was asked for longer ago is not taken: nothing happens behind a client that was
told that its agent is stuck."""

MAX_BODY_BYTES = 64 * 1024
PULSE_S = 5.0
"""A stream that has nothing to tell sends an empty line this often."""
