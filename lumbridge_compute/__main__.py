"""The command `lumbridge-compute`."""

from __future__ import annotations

import gc
import os
import sys

# Nothing slower is imported here: a Ctrl-C meanwhile would be a traceback.


def main() -> int:
    """Run the command line of this process; its exit code (DESIGN section 9)."""
    try:
        # What a short command makes is needed to its end: collections are time lost.  A command
        # that goes on for long enables them again.
        gc.disable()
        from lumbridge_compute.cli.run import run

        return run(sys.argv[1:], os.environ)
    except KeyboardInterrupt:
        return 130


def command() -> None:
    """Run it, and leave without the interpreter's tear-down, which takes a tenth of a `status`.

    Nothing of ours is buffered, and what else is buffered could at most fail to be written.
    """
    os._exit(main())


if __name__ == "__main__":
    command()
