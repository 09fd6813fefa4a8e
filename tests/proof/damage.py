"""What may become of state.yaml without us."""

from __future__ import annotations

from lumbridge_compute.core.state import Legacy, without_records
from lumbridge_compute.store.state_file import render_state
from tests.proof.facts import parsed

DAMAGES = ("flip", "cut", "zeros", "line-lost", "legacy", "empty", "record-lost")


def damaged(data: bytes, kind: str, part: float) -> bytes | None:
    """`data` damaged at `part` of its length, 0 to 1; None where it can't be in this way."""
    at = min(int(part * len(data)), max(0, len(data) - 1))
    if kind == "flip":
        bit = 1 << int(part * 7919) % 8
        return data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :] if data else None
    if kind == "cut":
        return data[:at]
    if kind == "zeros":
        return data[:at] + bytes(len(data) - at)
    if kind == "line-lost":
        lines = data.splitlines(keepends=True)
        lost = int(part * len(lines))
        return b"".join(lines[:lost] + lines[lost + 1 :])
    if kind == "empty":
        return b""
    return _as_predecessor(data) if kind == "legacy" else _without_a_record(data, part)


def _without_a_record(data: bytes, part: float) -> bytes | None:
    """As an older copy of the file would be: it can be read, and knows less."""
    state = parsed(data)
    if state is None or not state.processes:
        return None
    names = sorted(state.processes)
    return render_state(without_records(state, [names[int(part * len(names))]]))


def _as_predecessor(data: bytes) -> bytes | None:
    """The same node in the predecessor's form: bare PIDs."""
    state = parsed(data)
    if state is None:
        return None
    pids = {
        n: r.pid if isinstance(r, Legacy) else r.identity.pid for n, r in state.processes.items()
    }
    lines = [
        f"{field}: {getattr(state, field) or 'null'}"
        for field in ("desired_scene", "active_scene", "last_known_good_scene")
    ]
    lines.append("processes:" if pids else "processes: {}")
    return "\n".join([*lines, *(f"  {name}: {pid}" for name, pid in pids.items()), ""]).encode()
