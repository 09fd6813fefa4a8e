"""The guided tour: a whole node with built-in model servers, step by step, each step checked."""

from __future__ import annotations

import json
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

import trio

from lumbridge_compute.core.identity import Identity
from lumbridge_compute.core.state import Bound
from lumbridge_compute.demo.resident import (
    ChatStream,
    LateClient,
    Resident,
    gateway_words,
    start_agent,
)
from lumbridge_compute.demo.script import Screen, Script, check, open_tasks
from lumbridge_compute.demo.stage import (
    LIFE_S,
    SERVER,
    DemoFailed,
    Server,
    Stage,
    find_free_port,
    kill,
    open_stage,
)
from lumbridge_compute.errors import Exit

BOUND_S = 90.0
_LATE_S = 20.0
TOKENS, TOKEN_DELAY_S = 100, 0.04
"""A stream lasts four seconds: on a busy machine a command needs one to begin."""

SMALL, LARGE, WRONG, VOICE = "qwen3-8b", "qwen3-32b", "qwen3-14b", "kokoro-82m"

_REGISTRY = """\
version: 1
models:
  small:
    command: &server [{server}, --port, "${{port}}", --marker, "${{marker}}", --life, {life},
                      --tokens, {tokens}, --token-delay, {token_delay}]
    port: {port}
    marker: qwen3-8b
  large:
    command: *server
    port: {port}
    marker: qwen3-32b
  mistaken:
    command: [{server}, --port, "${{port}}", --marker, Qwen3-14B, --life, {life}]
    port: {port}
    marker: qwen3-14b
    health: {{timeout: 2s}}
  voice:
    command: *server
    port: {voice_port}
    marker: kokoro-82m
scenes:
  quick: {{models: [small, voice]}}
  clever: {{models: [large, voice]}}
  wrong: {{models: [mistaken, voice]}}
"""


def run_tour(environ: Mapping[str, str], screen: Screen, *, coloured: bool) -> None:
    """Show the tour on `screen`, which the commands of the tour write to as well.

    Takes about 16 seconds.  Whatever ends it, no process and no file is left.  Raises DemoFailed
    for a step that did not do what it says, OSError where there is no place for the node, and
    KeyboardInterrupt after a SIGINT, SIGTERM or SIGHUP.
    """
    script = Script(screen, coloured)
    if not trio.run(_until_interrupted, lambda: _play(environ, script)):
        raise KeyboardInterrupt


async def _until_interrupted(play: Callable[[], Awaitable[None]]) -> bool:
    """False when a signal ended `play`; any further one waits until all is cleaned up."""
    hangup = {signal.SIGHUP} if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN else set()
    with (
        trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, *hangup) as signals,
        trio.CancelScope() as scope,
    ):
        # Not a task of a nursery: it goes on while `play` cleans up, and wraps no error of it.
        trio.lowlevel.spawn_system_task(_cancel_on_signal, signals, scope)
        await play()
    return not scope.cancelled_caught


async def _cancel_on_signal(signals: AsyncIterator[int], scope: trio.CancelScope) -> None:
    async for _ in signals:
        scope.cancel()


async def _play(environ: Mapping[str, str], script: Script) -> None:
    with trio.move_on_after(BOUND_S) as bound:
        async with open_stage(environ, script.screen.fileno()) as stage:
            await Tour(stage, script).run()
    if bound.cancelled_caught:
        raise DemoFailed(f"cannot finish the demo: it takes more than {BOUND_S:.0f} s")
    script.step("Done", "Every step did what it says. The folder is gone, and no process is left.")


class Tour:
    """The steps, in order."""

    def __init__(self, stage: Stage, script: Script) -> None:
        self._stage = stage
        self._script = script
        self._port = self._voice_port = 0
        self._running: dict[str, Identity] = {}

    async def run(self) -> None:
        await self._start_by_hand()
        await self._adopt()
        await self._preview()
        await self._switch()
        await self._fail()
        await self._lose_a_model()
        agent = await self._start_agent()
        await self._switch_under_a_stream(agent)
        await self._end_agent(agent)
        await self._deactivate()

    async def _start_by_hand(self) -> None:
        self._script.step(
            "Two model servers that somebody has started by hand",
            "They are small stand-ins that speak as an OpenAI server does. Once they are\n"
            "described in compute.yaml, with the Scenes they belong to, this folder is a node.",
        )
        small, voice = await self._by_hand(SMALL), await self._by_hand(VOICE)
        self._port, self._voice_port = small.port, voice.port
        self._running = {"small": small.identity, "voice": voice.identity}
        server = ", ".join(json.dumps(word) for word in SERVER)
        registry = _REGISTRY.format(
            server=server,
            port=small.port,
            voice_port=voice.port,
            life=LIFE_S,
            tokens=TOKENS,
            token_delay=TOKEN_DELAY_S,
        )
        self._stage.write_registry(registry)
        self._script.command(f"cat {self._stage.root}/compute.yaml")
        self._script.write(registry)
        await self._command("check")

    async def _by_hand(self, marker: str) -> Server:
        self._script.command(f"python {' '.join(SERVER[1:])} --port 0 --marker {marker} &")
        server = await self._stage.start_by_hand(marker)
        self._script.seen(f"pid {server.identity.pid} serves {marker!r} on port {server.port}")
        return server

    async def _adopt(self) -> None:
        self._script.step(
            "Adopt what runs",
            "Nothing is started or stopped: each process is checked, by its exact marker and\n"
            "by the owner of its port, and its identity is written down.",
        )
        pids = (f"--pid={name}={each.pid}" for name, each in self._running.items())
        await self._command("scene", "adopt", "quick", *pids)
        await self._command("status", "--check")
        await self._expect("quick", SMALL, kept=("small", "voice"))

    async def _preview(self) -> None:
        self._script.step(
            "Look before the switch",
            "Scene 'clever' has the same voice as 'quick', and a large model that wants the\n"
            "port of the small one. The dry run shows the plan and changes nothing.",
        )
        before = self._stage.state()
        await self._command("scene", "activate", "clever", "--dry-run")
        check(self._stage.state() == before, "the dry run has changed the state")
        await self._expect("quick", SMALL, kept=("small", "voice"))

    async def _switch(self) -> None:
        self._script.step(
            "Switch",
            "One transaction: the small model stops, the large one takes its port, and the\n"
            "switch counts only once all of the Scene answers by exact name. The voice stays.",
        )
        await self._command("scene", "activate", "clever")
        await self._expect("clever", LARGE, kept=("voice",))

    async def _fail(self) -> None:
        self._script.step(
            "A switch that fails",
            "The model of Scene 'wrong' calls itself 'Qwen3-14B', not 'qwen3-14b': close is\n"
            "not equal. The switch is undone, and 'restored' is said only after a check.",
        )
        await self._command("scene", "activate", "wrong", exits=Exit.FAILED_SAFELY)
        await self._expect("clever", LARGE, kept=("voice",))

    async def _lose_a_model(self) -> None:
        self._script.step(
            "A model dies, and the Scene is resumed",
            "It is killed behind our back. What is missing is started again, what runs is\n"
            "kept; the same command brings the node back after a crash or a reboot.",
        )
        large = self._running["large"]
        self._script.command(f"kill -9 {large.pid}")
        kill(large)
        await self._command("status", "--check", exits=Exit.DEGRADED)
        await self._command("scene", "resume")
        await self._expect("clever", LARGE, kept=("voice",))
        check(self._running["large"] != large, "the large model was not started again")

    async def _start_agent(self) -> Resident:
        self._script.step(
            "A resident agent",
            "It keeps the node from here on, and the commands go through it. Its gateway gives\n"
            "clients one address that stays, in front of the port that the models share.",
        )
        port = find_free_port()
        words = gateway_words(port, self._port)
        self._script.command(f"{self._stage.shown(*words)} &")
        agent = start_agent(self._stage, port, self._port)
        await agent.resumed()
        await self._command("status", "--check")
        await self._expect("clever", LARGE, kept=("large", "voice"), at=port)
        return agent

    async def _switch_under_a_stream(self, agent: Resident) -> None:
        self._script.step(
            "A switch while a client streams",
            "A stream that runs may finish before its model stops; it ends whole or by a reset,\n"
            "never cleanly in its middle. Who comes meanwhile waits, and gets the new model.",
        )
        stream, late = ChatStream(agent.port), LateClient(agent)
        async with open_tasks() as tasks:
            tasks.start_soon(stream.run)
            await stream.begun.wait()
            check(stream.markers == {LARGE}, f"{stream.markers} streams, wanted {LARGE!r}")
            self._script.seen(f"a client streams from {LARGE!r} through port {agent.port}")
            tasks.start_soon(late.run)
            await self._command("scene", "activate", "quick")
            await self._both_served(stream, late)
        await self._expect("quick", SMALL, kept=("voice",), at=agent.port)
        told = await agent.resumed()
        check(told["gateways"][0]["refused"] == 0, "the gateway has refused a client")

    async def _both_served(self, stream: ChatStream, late: LateClient) -> None:
        await stream.ended.wait()
        with trio.move_on_after(_LATE_S):
            await late.ended.wait()
        check(stream.whole or stream.was_reset, "the stream came to a clean end in its middle")
        check(stream.markers == {LARGE}, f"one stream has tokens of {stream.markers}")
        ending = "[DONE]" if stream.whole else "a reset"
        self._script.seen(f"the stream had {stream.tokens} tokens of {LARGE!r}, then {ending}")
        check(late.running > 0, "the stream had ended before the switch began")
        check(late.was_held, "the client that came during the switch was not held")
        found = late.answer.get("model")
        check(found == SMALL, f"the client that waited was answered by {found!r}")
        self._script.seen(
            f"a client that came during the switch waited {late.waited_s:.1f} s, without an error, "
            f"and was answered by {SMALL!r}"
        )

    async def _end_agent(self, agent: Resident) -> None:
        self._script.step(
            "The agent leaves",
            "The models run on as they are. The next agent, or a command without one, knows them\n"
            "by what is written down.",
        )
        self._script.command(f"kill {agent.pid}")
        ended = await agent.leave()
        check(ended == "exit code 0", f"the agent ended with {ended}, wanted exit code 0")
        self._script.seen(f"the agent has ended with {ended}")
        await self._expect("quick", SMALL, kept=("small", "voice"))

    async def _deactivate(self) -> None:
        self._script.step("Stop everything", "All that is ours stops, in reverse order.")
        await self._command("scene", "deactivate")
        await self._command("history")
        for port in (self._port, self._voice_port):
            marker = await self._stage.marker(port)
            check(marker is None, f"port {port} still answers as {marker!r}")
            self._script.seen(f"port {port} is closed")

    async def _command(self, *words: str, exits: Exit = Exit.DONE) -> None:
        self._script.command(self._stage.shown(*words))
        code = await self._stage.command(*words)
        check(code == exits, f"'{' '.join(words)}' exits with {code}, wanted {int(exits)}")
        if code:
            self._script.seen(f"exit code {code}")

    async def _expect(
        self, scene: str, marker: str, kept: tuple[str, ...], at: int | None = None
    ) -> None:
        """`scene` is active, its two ports and the gateway `at` a port answer by exact name, and
        what is `kept` is the same."""
        state = self._stage.state()
        check(state.active_scene == scene, f"{state.active_scene!r} is active, wanted {scene!r}")
        shown = at or self._port
        for port, wanted in ((self._port, marker), (self._voice_port, VOICE), (shown, marker)):
            found = await self._stage.marker(port)
            check(found == wanted, f"port {port} answers as {found!r}, wanted {wanted!r}")
        records = state.processes.items()
        running = {name: each.identity for name, each in records if isinstance(each, Bound)}
        for name in kept:
            check(running.get(name) == self._running[name], f"{name!r} is another process now")
        self._running = running
        same = " and ".join(f"{name!r} is still pid {running[name].pid}" for name in kept)
        self._script.seen(f"port {shown} answers as {marker!r}; {same}")
