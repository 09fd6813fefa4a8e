"""What must be the same before and after the agent is restarted, and how it compares."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from lumbridge_compute.cli.node import read_status
from lumbridge_compute.core.identity import Ownership
from lumbridge_compute.core.report import NodeStatus, Verdict, judge
from lumbridge_compute.core.report_status import render_status
from lumbridge_compute.core.state import Bound
from lumbridge_compute.errors import BadInput, Refused
from lumbridge_compute.host.files import read_bounded
from lumbridge_compute.host.procfs import read_boot_id

VERIFY_S = 60
_LIMIT_BYTES = 1024 * 1024
_AT_REST = (Verdict.EXACT, Verdict.IDLE)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A node at rest.  `models` are boot, pid and start ticks of each; `equal` are the gateways in
    front of which the same models were named as behind them."""

    boot_id: str
    verdict: str
    active_scene: str | None
    models: dict[str, list[str | int]]
    gateways: list[str]
    equal: list[str]


def take_snapshot(root: str, environ: Mapping[str, str]) -> Snapshot:
    """The node as it is.  Raises Refused unless it is whole, or idle, and at rest."""
    status = read_status(root, environ)
    if status.holder is not None:
        raise Refused(
            f"cannot restart the agent now: {status.holder} is at work", "repeat when it has ended"
        )
    verdict = judge(status)
    if verdict not in _AT_REST:
        line, *more = render_status(status)
        hint = next((each[6:] for each in more if each.startswith("hint: ")), None)
        raise Refused(f"cannot prove a restart on a node that is not whole: {line}", hint)
    return _snapshot(root, environ, status)


def _snapshot(root: str, environ: Mapping[str, str], status: NodeStatus) -> Snapshot:
    gateways = [str(each.spec.listen) for each in status.gateways]
    return Snapshot(
        read_boot_id(),
        judge(status).value,
        status.state.active_scene if status.state is not None else None,
        identities(status),
        gateways,
        [each for each in gateways if is_equal(root, environ, each)],
    )


def identities(status: NodeStatus) -> dict[str, list[str | int]]:
    """Boot, pid and start ticks of each process that is ours and lives."""
    records = status.state.processes if status.state is not None else {}
    return {
        name: [record.identity.boot_id, record.identity.pid, record.identity.start_ticks]
        for name, record in records.items()
        if isinstance(record, Bound) and status.world.view(name).ownership is Ownership.OWNED
    }


def is_equal(root: str, environ: Mapping[str, str], gateway: str) -> bool:
    """Whether `verify` finds the same models behind and in front of `gateway`."""
    command = [sys.executable, "-I", "-m", "lumbridge_compute", "--root", root, "verify"]
    ended = subprocess.run(
        [*command, "--gateway", gateway],
        env=dict(environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=VERIFY_S,
        check=False,
    )
    return ended.returncode == 0


def differences(before: Snapshot, status: NodeStatus) -> Iterable[str]:
    """What a wait won't mend: another process in the place of one that ran before."""
    if before.boot_id != read_boot_id():
        return
    now = identities(status)
    for name in sorted({*before.models, *now}):
        was, found = before.models.get(name), now.get(name)
        if was != found:
            yield f"{name!r} was {_shown(was)} and is {_shown(found)}"


def unsettled(before: Snapshot, status: NodeStatus) -> str | None:
    """What is not as before yet, and may become so."""
    verdict = judge(status)
    active = status.state.active_scene if status.state is not None else None
    if verdict.value != before.verdict or active != before.active_scene:
        scene = f"Scene {before.active_scene!r}" if before.active_scene else "nothing active"
        return f"wanted {scene} and {before.verdict}, found {render_status(status)[0]}"
    return None


def _shown(identity: list[str | int] | None) -> str:
    return f"pid {identity[1]}, started at tick {identity[2]}" if identity else "not recorded"


def write_snapshot(snapshot: Snapshot, path: str) -> None:
    """Replace the file at `path`.  Raises OSError."""
    unfinished = f"{path}.new"
    with open(unfinished, "w", encoding="utf-8") as file:
        json.dump(asdict(snapshot), file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(unfinished, path)


def read_snapshot(path: str) -> Snapshot:
    """The snapshot in the file at `path`.  Raises BadInput."""
    try:
        return Snapshot(**json.loads(read_bounded(path, _LIMIT_BYTES) or b""))
    except (OSError, ValueError, TypeError) as error:
        raise BadInput(f"cannot read what {path!r} says of before: {error}", None) from error
