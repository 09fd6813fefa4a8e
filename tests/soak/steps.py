"""What may happen to a node, each a step: it acts, and then says what must be so."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.soak.soaked import GOOD, SLOW, WRONG, Soaked, Violation
from tests.system.node import alive

LATEST_S = 1.5
"""A switch is disturbed within this time, from its start."""

_INTERRUPTED = (0, 1, 130)
_LOST = (0, 1, 4, 5)


@dataclass(frozen=True, slots=True)
class Step:
    """`needs` is "agent", "none" or "either"; one that `ends` the agent leaves the node without or
    with a new one."""

    run: Callable[[Soaked, random.Random], None]
    weight: int
    needs: str = "either"
    ends: bool = False


def switch(soaked: Soaked, pick: random.Random) -> None:
    scene = pick.choice(GOOD)
    soaked.command("scene", "activate", scene)
    soaked.rest("exact")
    if soaked.state().active_scene != scene:
        raise Violation(f"{scene!r} was activated, active is {soaked.state().active_scene!r}")


def failing_switch(soaked: Soaked, pick: random.Random) -> None:
    before = soaked.state().active_scene
    soaked.command("scene", "activate", pick.choice(WRONG), allowed=(1,))
    soaked.rest()
    if soaked.state().active_scene != before:
        raise Violation(f"a failed switch from {before!r} left {soaked.state().active_scene!r}")


def deactivate(soaked: Soaked, _pick: random.Random) -> None:
    soaked.command("scene", "deactivate")
    soaked.rest("idle")


def resume(soaked: Soaked, _pick: random.Random) -> None:
    before = soaked.pids()
    soaked.command("scene", "resume")
    soaked.rest()
    if soaked.pids() != before:
        raise Violation("a resume at rest changed the processes")


def dry_run(soaked: Soaked, pick: random.Random) -> None:
    before = (soaked.node.root / ".kuda" / "state.yaml").read_bytes()
    soaked.command("scene", "activate", pick.choice((*GOOD, *WRONG)), "--dry-run")
    soaked.rest()
    if (soaked.node.root / ".kuda" / "state.yaml").read_bytes() != before:
        raise Violation("a dry run wrote the state")


def adopt(soaked: Soaked, _pick: random.Random) -> None:
    """Servers that were started by hand become the Scene's, and nothing is started."""
    soaked.command("scene", "deactivate")
    pids = {}
    for name in ("small", "voice"):
        port = soaked.node.models[name]["port"]
        pids[name] = soaked.node.stranger("--tokens", "40", port=port, marker=name).pid
    given = [word for name, pid in pids.items() for word in ("--pid", f"{name}={pid}")]
    soaked.command("scene", "adopt", "day", *given)
    soaked.rest("exact")
    if soaked.pids() != pids:
        raise Violation(f"adopted {pids}, recorded are {soaked.pids()}")


def kill_model(soaked: Soaked, pick: random.Random) -> None:
    """A model dies of SIGKILL; then it is resumed, replaced or forgotten."""
    soaked.command("scene", "activate", pick.choice(GOOD))
    name = _kill_one(soaked, pick)
    soaked.no_orphan()
    soaked.rest("degraded")
    remedy = pick.choice(("resume", "switch", "forget", "deactivate"))
    if remedy == "forget":
        # Refused while a child of the dead one lives on.
        soaked.command("scene", "forget", name, allowed=(0, 3))
    if remedy == "switch":
        soaked.command("scene", "activate", pick.choice(GOOD))
    elif remedy == "deactivate":
        soaked.command("scene", "deactivate")
    else:
        soaked.command("scene", "resume")
    soaked.rest()


def kill_command(soaked: Soaked, pick: random.Random) -> None:
    """SIGKILL for the command in mid-switch: an agent goes on, else a resume puts things right."""
    scenes = GOOD if soaked.agent is not None else (*GOOD, *WRONG, SLOW)
    command = soaked.node.start("scene", "activate", pick.choice(scenes))
    _wait_a_moment(command, pick)
    command.kill()
    command.communicate()
    if soaked.agent is not None:
        agent = soaked.agent
        soaked.until(lambda: agent.told()["transaction"] is None, "the agent finishes alone")
        soaked.rest()
    soaked.converge()


def interrupt(soaked: Soaked, pick: random.Random) -> None:
    """Ctrl-C or SIGTERM in mid-switch, once or twice."""
    twice = pick.random() < 0.3
    command = soaked.node.start("scene", "activate", pick.choice((*GOOD, *WRONG, SLOW)))
    # Before that it is Python that begins, and the signal itself ends it.
    soaked.until(lambda: _takes_term(command.pid) or not alive(command.pid), "it takes signals")
    _wait_a_moment(command, pick)
    command.send_signal(pick.choice((signal.SIGINT, signal.SIGTERM)))
    if twice:
        _wait_a_moment(command, pick)
        command.send_signal(signal.SIGINT)
    soaked.ended(command, (*_INTERRUPTED, 4) if twice else _INTERRUPTED)
    if not twice:
        soaked.rest()
    agent = soaked.agent
    if agent is not None:
        soaked.until(lambda: agent.told()["transaction"] is None, "the agent has put things back")
    soaked.converge()


def two_at_once(soaked: Soaked, pick: random.Random) -> None:
    """Two commands in the same moment: one is busy, or they come one after the other."""
    node = soaked.node
    both = [node.start("scene", "activate", pick.choice(GOOD)) for _ in range(2)]
    codes = [soaked.ended(each, (0, 5)).exit for each in both]
    if codes == [5, 5]:
        raise Violation("of two commands none was carried out")
    soaked.rest("exact")


def damage(soaked: Soaked, pick: random.Random) -> None:
    """A state file that can't be read is refused and left as it is; put back, all goes on."""
    file = soaked.node.root / ".kuda" / "state.yaml"
    good, pids = file.read_bytes(), soaked.pids()
    bad = pick.choice((b"", b"\0" * len(good), good[: len(good) // 2] + b"\xff", b"[1, 2]\n"))
    file.write_bytes(bad)
    for words in (["activate", pick.choice(GOOD)], ["resume"], ["deactivate"]):
        soaked.command("scene", *words, allowed=(2,))
    if file.read_bytes() != bad:
        raise Violation("a state file that can't be read was written")
    if soaked.command("status", "--json", allowed=(2,)).json["verdict"] != "unknown":
        raise Violation("a state file that can't be read has a verdict")
    file.write_bytes(good)
    soaked.command("scene", "resume")
    soaked.rest()
    if soaked.pids() != pids:
        raise Violation("a damaged state file cost a process")


def stranger_on_the_port(soaked: Soaked, pick: random.Random) -> None:
    """Whoever else holds a port is refused, never signalled."""
    soaked.command("scene", "deactivate")
    name = pick.choice(("small", "large"))
    stranger = soaked.node.stranger(port=soaked.node.models[name]["port"], marker=name)
    soaked.command("scene", "activate", "day", allowed=(3,))
    soaked.command("scene", "resume")
    if stranger.poll() is not None:
        raise Violation(f"the stranger on a port ended: {stranger.returncode}")
    with soaked.clients.killing():
        stranger.kill()
        stranger.wait()
    soaked.rest("idle")


def edit(soaked: Soaked, pick: random.Random) -> None:
    """compute.yaml changes: broken it is refused, mended it is taken."""
    file, agent = soaked.node.root / "compute.yaml", soaked.agent
    file.write_text("version: 1\nmodles: {}\n")
    soaked.command("check", allowed=(2,))
    if agent is not None:
        for _ in range(pick.randint(1, 20)):
            agent.send(signal.SIGHUP)
        soaked.until(lambda: agent.told()["registry_fault"] is not None, "the fault is told")
    model = soaked.node.models[pick.choice(("small", "large", "voice"))]
    model["env"] = {"EDITED": str(pick.randrange(10**6))}
    soaked.node.write()
    soaked.command("check")
    if agent is not None:
        agent.send(signal.SIGHUP)
        soaked.until(lambda: agent.told()["registry_fault"] is None, "compute.yaml is taken again")
    soaked.rest()


def storm_of_reloads(soaked: Soaked, pick: random.Random) -> None:
    """SIGHUP again and again while a Scene is switched."""
    assert soaked.agent is not None
    command = soaked.node.start("scene", "activate", pick.choice(GOOD))
    while command.poll() is None:
        soaked.agent.send(signal.SIGHUP)
        with contextlib.suppress(subprocess.TimeoutExpired):
            command.wait(0.02)
    soaked.ended(command, (0,))
    soaked.rest("exact")


def stuck_agent(soaked: Soaked, _pick: random.Random) -> None:
    """An agent that does not answer: exit 5, and nothing happens behind it later."""
    assert soaked.agent is not None
    before = soaked.pids()
    soaked.agent.send(signal.SIGSTOP)
    soaked.command("scene", "deactivate", allowed=(5,))
    soaked.agent.send(signal.SIGCONT)
    soaked.until(soaked.agent.serves, "it answers again")
    soaked.rest()
    if soaked.pids() != before:
        raise Violation("an order was carried out behind a client that was told otherwise")


def begin_agent(soaked: Soaked, _pick: random.Random) -> None:
    before = soaked.pids()
    soaked.start_agent()
    soaked.rest()
    if soaked.pids() != before:
        raise Violation("an agent that began at rest changed the processes")


def end_agent(soaked: Soaked, _pick: random.Random) -> None:
    """SIGTERM at rest: exit 0, models untouched."""
    assert soaked.agent is not None
    before = soaked.pids()
    soaked.agent.send(signal.SIGTERM)
    soaked.agent_gone((0,))
    soaked.rest()
    if soaked.pids() != before:
        raise Violation("the agent's end changed the processes")


def end_agent_early(soaked: Soaked, pick: random.Random) -> None:
    """SIGTERM while the agent begins: until Python runs, the signal itself ends it."""
    before = soaked.pids()
    with (soaked.node.root / "agent.log").open("ab") as log:
        early = soaked.node.start("agent", stdout=subprocess.DEVNULL, stderr=log)
    with contextlib.suppress(subprocess.TimeoutExpired):
        early.wait(pick.uniform(0, 0.8))
    early.terminate()
    if (code := early.wait(20)) not in (0, -signal.SIGTERM):
        raise Violation(f"an agent that was ended while it began exited with {code}")
    if "Traceback" in (soaked.node.root / "agent.log").read_text():
        raise Violation("an agent that was ended while it began showed a traceback")
    soaked.rest()
    if soaked.pids() != before:
        raise Violation("an agent that was ended while it began changed the processes")


def end_agent_in_a_switch(soaked: Soaked, pick: random.Random) -> None:
    """SIGTERM or SIGKILL for the agent in mid-switch; the next one, or a command, resumes."""
    assert soaked.agent is not None
    number = pick.choice((signal.SIGTERM, signal.SIGKILL))
    again = pick.random() < 0.7
    command = soaked.node.start("scene", "activate", pick.choice((*GOOD, *WRONG, SLOW)))
    _wait_a_moment(command, pick)
    soaked.agent.send(number)
    soaked.agent_gone((0,) if number == signal.SIGTERM else (-number,))
    soaked.no_orphan()
    if again:
        soaked.start_agent()
    elif command.poll() is None and pick.random() < 0.7:
        command.kill()
    # A command whose agent was lost before it had the order carries it out by itself; an agent
    # that was told to end puts back what it was at, and says so.
    interrupted = (130,) if number == signal.SIGTERM else ()
    soaked.ended(command, (*_LOST, *interrupted, -signal.SIGKILL))
    soaked.converge()


STEPS: dict[str, Step] = {
    "switch": Step(switch, 8),
    "failing switch": Step(failing_switch, 4),
    "deactivate": Step(deactivate, 1),
    "resume": Step(resume, 2),
    "dry run": Step(dry_run, 1),
    "adopt": Step(adopt, 2),
    "kill a model": Step(kill_model, 4),
    "kill the command": Step(kill_command, 4),
    "interrupt": Step(interrupt, 4),
    "two at once": Step(two_at_once, 2),
    "damaged state": Step(damage, 2),
    "stranger on a port": Step(stranger_on_the_port, 1),
    "edit and reload": Step(edit, 2),
    "storm of reloads": Step(storm_of_reloads, 2, "agent"),
    "stuck agent": Step(stuck_agent, 1, "agent"),
    "begin an agent": Step(begin_agent, 12, "none"),
    "end an agent early": Step(end_agent_early, 3, "none"),
    "end the agent": Step(end_agent, 3, "agent", ends=True),
    "end the agent in a switch": Step(end_agent_in_a_switch, 5, "agent", ends=True),
}


def _kill_one(soaked: Soaked, pick: random.Random) -> str:
    """SIGKILL for a model; its name.  An agent has recorded it by the end of this."""
    name = pick.choice(sorted(soaked.pids()))
    pid = soaked.pids()[name]
    with soaked.clients.killing():
        os.kill(pid, signal.SIGKILL)
        soaked.until(lambda: not alive(pid), "the model is dead")
    if soaked.agent is not None:
        soaked.until(lambda: soaked.state().active_scene is None, "the death is recorded")
    return name


def _takes_term(pid: int) -> bool:
    """True once SIGTERM is caught there.  Source: proc(5), SigCgt in /proc/PID/status."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return False
    caught = next(int(line.split()[1], 16) for line in lines if line.startswith("SigCgt:"))
    return bool(caught >> (signal.SIGTERM - 1) & 1)


def _wait_a_moment(command: subprocess.Popen[bytes], pick: random.Random) -> None:
    """Some time of a command's way; less when it ends before."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        command.wait(pick.uniform(0, LATEST_S))
