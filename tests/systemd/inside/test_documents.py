"""The commands of the documents that need root and a service manager, typed in a box."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

from tests.docs.commands import CHECKOUT, Command, all_commands
from tests.systemd.service import Service, eventually

# systemctl edit wants a terminal and an editor; this one writes what the document tells to write.
EDITOR = """#!/bin/sh
printf '[Service]\\n%s\\n' "$TOLD" >"$1"
"""


async def test_the_commands_that_need_a_service_manager_do_what_the_documents_say(
    service: Service,
) -> None:
    await service.start("day")
    await service.systemctl("enable", "--quiet")  # as scripts/install --enable does
    prepare()
    commands = [command for command in all_commands() if command.family == "box"]
    assert len(commands) > 5

    async def serves() -> bool:
        return await service.show("ActiveState") == "active"

    for command in commands:
        type_in_a_terminal(command)
        # `systemctl reload` returns once the signal is sent, the agent reloads after that.
        await eventually(serves, f"active after {command}")
    if any(" edit " in command.text for command in commands):
        assert "LUMBRIDGE_COMPUTE_ROOT=/srv/node" in await service.show("Environment")


def prepare() -> None:
    """The programs that the commands use, and the node that the documents name."""
    other = Path("/srv/node")
    other.mkdir()
    (other / "compute.yaml").write_text("version: 1\nmodels: {}\nscenes: {}\n")
    for name, text in (("sudo", '#!/bin/sh\nexec "$@"\n'), ("told-editor", EDITOR)):
        program = Path("/usr/local/bin") / name
        program.write_text(text)
        program.chmod(0o755)


def type_in_a_terminal(command: Command) -> None:
    env = {**os.environ, "SYSTEMD_EDITOR": "told-editor", "TOLD": command.comment}
    env |= {"SYSTEMD_PAGER": "cat", "SYSTEMD_COLORS": "0"}
    outside, inside = pty.openpty()
    process = subprocess.Popen(
        ["bash", "-c", command.text],
        cwd=CHECKOUT,
        env=env,
        stdin=inside,
        stdout=inside,
        stderr=inside,
        start_new_session=True,
    )
    os.close(inside)
    said = b""
    while True:
        try:
            said += os.read(outside, 4096)
        except OSError:  # the last writer has gone
            break
    os.close(outside)
    assert process.wait() == command.exit, f"{command}: {said.decode()}"
