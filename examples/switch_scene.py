#!/usr/bin/env python3
"""Switch a node's Scene from an app of one's own, and show the steps.

    examples/switch_scene.py /srv/node voice-laguna

Wants a resident agent (`lumbridge-compute agent`).  Ctrl-C puts the old Scene back.
"""

from __future__ import annotations

import signal
import sys

import anyio

from lumbridge_compute.client import Event, NoAgent, Node, Outcome


def show(event: Event) -> None:
    """One line a step."""
    subject = f"{event.model}: " if event.model is not None else ""
    print(f"{subject}{event.kind} {event.detail or ''}".rstrip())


async def cancel_on_interrupt(node: Node) -> None:
    """Each Ctrl-C asks the agent: the first to put things back, a second to leave at once."""
    with anyio.open_signal_receiver(signal.SIGINT) as received:
        async for _ in received:
            await node.cancel()


async def switch(root: str, scene: str) -> Outcome:
    """Activate `scene`.  The agent does it, and would go on if this app ended."""
    async with Node(root) as node, anyio.create_task_group() as tasks:
        tasks.start_soon(cancel_on_interrupt, node)
        outcome = await node.activate(scene, on_event=show)
        tasks.cancel_scope.cancel()
    return outcome


def main(root: str, scene: str) -> int:
    """The exit code of the switch."""
    try:
        outcome = anyio.run(switch, root, scene)
    except NoAgent as missing:
        print(f"error: {missing}\nhint: {missing.hint}", file=sys.stderr)
        return int(missing.exit)
    if outcome.error is not None:
        print(f"error: {outcome.error}\nhint: {outcome.hint}", file=sys.stderr)
    print(f"active now: {outcome.active_scene}")
    return int(outcome.exit)


if __name__ == "__main__":
    if len(sys.argv) != 3 or "--help" in sys.argv:
        sys.exit("usage: switch_scene.py ROOT SCENE")
    sys.exit(main(*sys.argv[1:]))
