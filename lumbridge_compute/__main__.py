"""The command `lumbridge-compute`."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line of this process; its exit code (DESIGN section 9)."""
    try:
        import os

        from lumbridge_compute.cli.run import run

        return run(sys.argv[1:], os.environ)
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
