"""systemd as seen from here: scopes for models, and whose unit a process sits in.

Source: systemd-run(1), systemd.unit(5), systemd.scope(5).
"""

from __future__ import annotations

import os
import re
import string
from collections.abc import Sequence

from lumbridge_compute.host.procfs import parse_cgroup_paths

SLICE = "lumbridge-compute.slice"
_BOOTED = "/run/systemd/system"
_SYSTEMD_RUN = "/usr/bin/systemd-run"
_UNIT_LETTERS = frozenset(string.ascii_letters + string.digits + ":_.-")
_OWN_UNITS = "lumbridge-compute"
_CONTAINER_SCOPE = re.compile(r"(docker|libpod|cri-containerd|crio|nerdctl)-.+\.scope")
_CONTAINER_FOLDER = re.compile(r"(libpod-)?[0-9a-f]{64}")
_FIRST_WITH_EXPANSION = 254  # the version of systemd-run that began to look at `$` in arguments


def detect_scopes(euid: int, booted: str = _BOOTED, systemd_run: str = _SYSTEMD_RUN) -> bool:
    """True where a model can be given a scope of its own: systemd is PID 1, and we are root.

    Source: sd_booted(3).
    """
    return euid == 0 and os.path.isdir(booted) and os.access(systemd_run, os.X_OK)


def scope_name(model: str, token: str) -> str:
    """A unit name for one start of `model`, unique by its random `token`."""
    return f"lumbridge-compute-{_escape(model)}-{_escape(token)[:16]}.scope"


def scope_argv(scope: str, argv: Sequence[str]) -> tuple[str, ...]:
    """`argv` behind systemd-run, which moves itself into `scope` and then becomes `argv`.

    The pid stays.  Looks at the version of systemd-run where an argument holds a `$`.
    """
    words = [
        _SYSTEMD_RUN,
        "--quiet",
        "--scope",
        "--collect",
        f"--slice={SLICE}",
        f"--unit={scope}",
        "--property=MemoryAccounting=yes",
    ]
    if any("$" in word for word in argv) and _read_version() >= _FIRST_WITH_EXPANSION:
        words.append("--expand-environment=no")
    return (*words, "--", *argv)


def foreign_unit(cgroup: str) -> str | None:
    """The service or container that a process sits in, whose restart policy may bring it back.

    `cgroup` is the text of /proc/PID/cgroup.  None for login sessions, for the applications of a
    desktop and for what is ours.
    """
    for path in parse_cgroup_paths(cgroup):
        if SLICE in path:
            return None
    for path in parse_cgroup_paths(cgroup):
        if (unit := _unit_of(path)) is not None:
            return unit
    return None


def _unit_of(path: Sequence[str]) -> str | None:
    for name in reversed(path):
        if _CONTAINER_SCOPE.fullmatch(name) or _CONTAINER_FOLDER.fullmatch(name):
            return f"container {name!r}"
        if name.endswith(".scope"):
            return f"machine {name!r}" if "machine.slice" in path else None
        if name.endswith(".service"):
            own = name.startswith((_OWN_UNITS, "user@", "app-"))
            return None if own else f"service {name!r}"
    return None


def _escape(text: str) -> str:
    """`text` with all that a unit name can't hold as \\xNN.

    Source: systemd.unit(5), "String Escaping for Inclusion in Unit Names".
    """
    return "".join(
        chr(byte) if chr(byte) in _UNIT_LETTERS else f"\\x{byte:02x}" for byte in text.encode()
    )


def _read_version() -> int:
    """The version of systemd-run; 0 where it does not tell."""
    import subprocess

    try:
        result = subprocess.run(
            [_SYSTEMD_RUN, "--version"], capture_output=True, text=True, timeout=5, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.match(r"systemd (\d+)", result.stdout)
    return int(found[1]) if found else 0
