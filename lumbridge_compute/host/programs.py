"""Can this be run?  Asked before anything is stopped for it."""

from __future__ import annotations

import os
import stat

from lumbridge_compute.core.launch import Launch

_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"  # where a shell looks without PATH


def find_start_faults(launch: Launch) -> tuple[str, ...]:
    """Why `launch` can't be run, a fragment for each reason; empty where it can."""
    if (what := _fault_of_path(launch.cwd)) is not None:
        return (f"its folder {launch.cwd!r} {what}",)
    if not os.path.isdir(launch.cwd):
        return (f"its folder {launch.cwd!r} is not a folder",)
    faults = []
    if not os.access(launch.cwd, os.X_OK, effective_ids=True):
        faults.append(f"its folder {launch.cwd!r} may not be entered: permission denied")
    if (fault := _program_fault(launch)) is not None:
        faults.append(fault)
    return tuple(faults)


def find_log_faults(path: str) -> tuple[str, ...]:
    """Why output can't be appended to `path`, a file that need not exist yet; empty where it can.

    A link is none of ours, and never followed.
    """
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        folder = os.path.dirname(path)
        while not os.path.lexists(folder):
            folder = os.path.dirname(folder)
        if os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK, effective_ids=True):
            return ()
        return (f"its log {path!r} can't be made in {folder!r}",)
    except OSError as error:
        return (f"its log {path!r} can't be opened: {(error.strerror or str(error)).lower()}",)
    if not stat.S_ISREG(mode):
        found = "a symbolic link" if stat.S_ISLNK(mode) else "no regular file"
        return (f"its log {path!r} is {found}",)
    if not os.access(path, os.W_OK, effective_ids=True):
        return (f"its log {path!r} may not be written",)
    return ()


def _program_fault(launch: Launch) -> str | None:
    program = launch.argv[0]
    if "/" in program:
        path = os.path.join(launch.cwd, program)
        if (what := _fault_of_path(path)) is not None:
            return f"program {program!r} {what}"
        return None if _runs(path) else f"program {program!r} is not an executable file"
    search = launch.env.get("PATH", _DEFAULT_PATH)
    paths = [os.path.join(launch.cwd, folder, program) for folder in search.split(":")]
    if any(_runs(path) for path in paths):
        return None
    return f"no executable program {program!r} in the folders of PATH ({search})"


def _fault_of_path(path: str) -> str | None:
    """Why nothing is found at `path`: also a folder on the way, or where a link leads, that this
    user may not enter."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return "does not exist"
    except OSError as error:
        return f"can't be reached: {(error.strerror or str(error)).lower()}"
    return None


def _runs(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK, effective_ids=True)
