"""The public client under trio and asyncio, against the agent of a real node."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import anyio
import pytest

from lumbridge_compute.client import (
    AgentLost,
    AgentStuck,
    Event,
    EventKind,
    Exit,
    NoAgent,
    Node,
    Outcome,
)
from tests.system.agent import Agent, start_agent
from tests.system.node import SystemNode, until

BACKENDS = ("trio", "asyncio")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[SystemNode]:
    """Two Scenes that share a port; `slow` never comes up."""
    made = SystemNode(tmp_path)
    port = made.model("small")
    made.model("large", port=port)
    made.model("sloth", "--slow-start", "60")
    made.scene("day", "small")
    made.scene("night", "large")
    made.scene("slow", "sloth")
    made.write()
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def agent(node: SystemNode) -> Agent:
    return start_agent(node)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_app_switches_scenes_and_sees_the_steps(agent: Agent, backend: str) -> None:
    root, steps = agent.node.root, list[Event]()

    async def main() -> tuple[Outcome, Outcome, Outcome, list[str]]:
        async with Node(root) as node:
            day = await node.activate("day", on_event=steps.append)
            plan = await node.plan("night")
            night = await node.activate("night")
            history = [entry["command"] for entry in await node.history(2)]
            assert (await node.agent())["transaction"] is None
            status = await node.status()
            assert (status["verdict"], status["state"]["active_scene"]) == ("exact", "night")
            assert [each["health"] for each in status["models"] if each["pid"]] == ["exact"]
            return day, plan, night, history

    day, plan, night, history = anyio.run(main, backend=backend)
    assert day.ok
    assert day.active_scene == "day"
    assert steps[0].kind is EventKind.PLANNED
    assert steps[-1].kind is EventKind.COMMITTED
    assert plan.plan is not None
    assert night.active_scene == "night"
    assert history == ["activate", "activate"]
    assert agent.node.status()["verdict"] == "exact"


@pytest.mark.parametrize("backend", BACKENDS)
def test_cancel_ends_what_the_app_itself_has_asked_for(agent: Agent, backend: str) -> None:
    async def main() -> Outcome:
        outcomes: list[Outcome] = []
        async with (
            Node(agent.node.root) as node,
            Node(agent.node.root) as other,
            anyio.create_task_group() as tasks,
        ):
            loading = anyio.Event()

            def hear(event: Event) -> None:
                if event.kind is EventKind.LOADING:
                    loading.set()

            async def switch() -> None:
                outcomes.append(await node.activate("slow", on_event=hear))

            tasks.start_soon(switch)
            await loading.wait()
            assert await other.cancel() is False
            assert (await other.deactivate()).exit is Exit.BUSY
            assert await node.cancel()
        return outcomes[0]

    outcome = anyio.run(main, backend=backend)
    assert outcome.exit is Exit.INTERRUPTED


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_app_that_leaves_early_leaves_the_transaction_to_the_agent(
    agent: Agent, backend: str
) -> None:
    async def main() -> None:
        with anyio.CancelScope() as scope:
            async with Node(agent.node.root) as node:
                await node.activate("day", on_event=lambda _: scope.cancel())

    anyio.run(main, backend=backend)
    until(lambda: agent.node.status()["verdict"] == "exact", "the agent went on")


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_app_hears_of_what_others_do(agent: Agent, backend: str) -> None:
    async def main() -> list[Event]:
        heard: list[Event] = []
        async with Node(agent.node.root) as node, anyio.create_task_group() as tasks:

            async def listen() -> None:
                async with aclosing(node.events()) as events:
                    async for event in events:
                        heard.append(event)
                        if event.kind is EventKind.COMMITTED:
                            break

            tasks.start_soon(listen)
            for scene in ("day", "night", "day", "night"):
                async with Node(agent.node.root) as other:
                    assert (await other.activate(scene)).ok
                if heard:
                    break
        return heard

    assert anyio.run(main, backend=backend)[-1].kind is EventKind.COMMITTED


@pytest.mark.parametrize("backend", BACKENDS)
def test_without_an_agent_the_client_says_so(node: SystemNode, backend: str) -> None:
    async def main() -> None:
        async with Node(node.root):
            pass

    with pytest.raises(NoAgent, match="agent"):
        anyio.run(main, backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_agent_that_does_not_answer_is_stuck(agent: Agent, backend: str) -> None:
    async def main() -> None:
        async with Node(agent.node.root) as node:
            agent.send(signal.SIGSTOP)
            try:
                await node.deactivate()
            finally:
                agent.send(signal.SIGCONT)

    with pytest.raises(AgentStuck, match="has not answered for 2 s"):
        anyio.run(main, backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_agent_that_dies_in_the_middle_is_lost(agent: Agent, backend: str) -> None:
    def kill(event: Event) -> None:
        if event.kind is EventKind.LOADING:
            agent.send(signal.SIGKILL)

    async def main() -> None:
        async with Node(agent.node.root) as node:
            await node.activate("slow", on_event=kill)

    with pytest.raises(AgentLost):
        anyio.run(main, backend=backend)


def test_the_example_switches_and_says_what_is_missing(agent: Agent) -> None:
    example = Path(__file__).parent.parent / "examples" / "switch_scene.py"
    command = [sys.executable, str(example), str(agent.node.root)]
    done = subprocess.run([*command, "day"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done
    assert "small: starting" in done.stdout
    assert done.stdout.endswith("active now: day\n")
    unknown = subprocess.run([*command, "dya"], capture_output=True, text=True, check=False)
    assert unknown.returncode == Exit.BAD_INPUT
    assert "hint: did you mean 'day'?" in unknown.stderr
    agent.leave()
    missing = subprocess.run([*command, "day"], capture_output=True, text=True, check=False)
    assert missing.returncode == NoAgent.exit
    assert missing.stderr.startswith("error: no agent is resident")
