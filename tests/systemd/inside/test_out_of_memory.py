"""Memory runs out in the box, for real: the kernel takes a model and leaves the agent."""

from __future__ import annotations

import contextlib
import sys
from functools import partial
from pathlib import Path
from subprocess import PIPE

import trio

from tests.system.node import alive
from tests.systemd.service import Service, are_same, eventually

ALLOCATED_MIB = 300
# Takes memory, 8 MiB at a time, until it is told to stop.
_HOG = """
import sys
taken = []
for _ in sys.stdin:
    taken.append(bytearray(b"x" * (8 << 20)))
    print(flush=True)
"""


async def test_a_model_that_the_kernel_ends_is_recorded_and_the_agent_serves_on(
    service: Service,
) -> None:
    service.node.models["small"]["command"] += ["--allocate", str(ALLOCATED_MIB)]
    service.node.write()
    pids = await service.start("day")
    before = await service.main_pid()
    assert alive(pids["small"])
    await fill_memory_until_it_dies(pids["small"])

    async def recorded() -> bool:
        return "killed by SIGKILL" in (service.node.state()["last_error"] or "")

    await eventually(recorded, "the death is recorded")
    assert "small" in service.node.state()["last_error"]
    assert await service.main_pid() == before
    assert await service.show("ActiveState") == "active"
    assert are_same({"voice": pids["voice"]})


def choose_for_the_kernel(pid: int) -> None:
    """Let the kernel take `pid`, and not the hog, when memory runs out."""
    Path(f"/proc/{pid}/oom_score_adj").write_text("1000")


async def fill_memory_until_it_dies(pid: int) -> None:
    """Take memory until the kernel ends `pid` to find some."""
    choose_for_the_kernel(pid)
    start = partial(
        trio.run_process, [sys.executable, "-c", _HOG], stdin=PIPE, stdout=PIPE, check=False
    )
    async with trio.open_nursery() as nursery:
        hog: trio.Process = await nursery.start(start)
        assert hog.stdin is not None
        assert hog.stdout is not None
        # The hog may be next, while `pid` is still on its way out.
        with trio.fail_after(60), contextlib.suppress(trio.BrokenResourceError):
            while alive(pid):
                await hog.stdin.send_all(b"\n")
                if not await hog.stdout.receive_some():
                    break
        hog.kill()

    async def gone() -> bool:
        return not alive(pid)

    await eventually(gone, "the kernel's choice")
