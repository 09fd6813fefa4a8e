"""Can this be run?  Asked before anything is stopped for it."""

from __future__ import annotations

import os

from lumbridge_compute.core.launch import Launch

_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"  # where a shell looks without PATH


def find_start_faults(launch: Launch) -> tuple[str, ...]:
    """Why `launch` can't be run, a fragment for each reason; empty where it can."""
    if not os.path.isdir(launch.cwd):
        what = "is not a folder" if os.path.exists(launch.cwd) else "does not exist"
        return (f"its folder {launch.cwd!r} {what}",)
    faults = []
    if not os.access(launch.cwd, os.X_OK, effective_ids=True):
        faults.append(f"its folder {launch.cwd!r} may not be entered: permission denied")
    if (fault := _program_fault(launch)) is not None:
        faults.append(fault)
    return tuple(faults)


def _program_fault(launch: Launch) -> str | None:
    program = launch.argv[0]
    if "/" in program:
        path = os.path.join(launch.cwd, program)
        if not os.path.exists(path):
            return f"program {program!r} does not exist"
        return None if _runs(path) else f"program {program!r} is not an executable file"
    search = launch.env.get("PATH", _DEFAULT_PATH)
    paths = [os.path.join(launch.cwd, folder, program) for folder in search.split(":")]
    if any(_runs(path) for path in paths):
        return None
    return f"no executable program {program!r} in the folders of PATH ({search})"


def _runs(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK, effective_ids=True)
