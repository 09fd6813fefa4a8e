"""Every registry that the documentation or `examples/` shows can be used as it stands."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```yaml\n(version: 1\n.*?)^```$", re.MULTILINE | re.DOTALL)


def shown() -> dict[str, str]:
    """Each whole registry by where it stands."""
    found = {
        f"examples/{path.name}": path.read_text() for path in (ROOT / "examples").glob("*.yaml")
    }
    for path in sorted((ROOT / "docs").glob("*.md")):
        blocks = BLOCK.findall(path.read_text(encoding="utf-8"))
        found |= {f"docs/{path.name} {number}": block for number, block in enumerate(blocks, 1)}
    return dict(sorted(found.items()))


@pytest.mark.parametrize("where", list(shown()))
def test_a_registry_that_is_shown_has_no_fault(where: str, tmp_path: Path) -> None:
    (tmp_path / "compute.yaml").write_text(shown()[where], encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "lumbridge_compute",
        "--root",
        str(tmp_path),
        "check",
        "--json",
    ]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    told = json.loads(ran.stdout)
    assert (ran.returncode, told["faults"]) == (0, []), ran
    # What is missing here is the operator's: programs, folders, memory.
    amiss = [warning for warning in told["warnings"] if not re.search(EXPECTED, warning)]
    assert amiss == []


EXPECTED = r"(?i)^cannot start '.*': (no executable )?program |memory|needs .* the machine has"


def test_the_servers_page_shows_one_for_each_server() -> None:
    assert len([where for where in shown() if where.startswith("docs/servers.md")]) == 4
