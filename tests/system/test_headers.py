"""The headers that a model is asked with: sent, and neither shown, logged nor stored."""

from __future__ import annotations

from tests.system.node import SystemNode

KEY = "s3cret-of-the-operator"


def test_a_header_that_is_written_out_is_stored_nowhere(node: SystemNode) -> None:
    """Neither a restart of the command nor a way back may need it from the state file."""
    node.env["THE_KEY"] = KEY
    health = {"timeout": "20s", "headers": {"Authorization": f"Bearer {KEY}"}}
    port = node.model("locked", "--require-key", "${env:THE_KEY}", health=health)
    node.model("broken", "--die-on-start", "7", port=port)
    node.scene("day", "locked")
    node.scene("bad", "broken")
    node.write()
    said = [node.ok("scene", "activate", "day", "--json", "-v")]
    assert node.status()["verdict"] == "exact"
    # Now the process runs another definition than the declared one, and is put back as that.
    node.models["locked"]["env"] = {"NEW": "1"}
    node.write()
    assert node.status()["verdict"] == "exact"
    said += [node.run("scene", "activate", "bad", "--json", "-v")]
    assert said[-1].exit == 1, said[-1]
    assert said[-1].json["restored"] is True
    assert node.status()["verdict"] == "exact"
    said += [node.ok(*words) for words in (("status", "--json"), ("history", "--json"))]
    files = [path for path in (node.root / ".kuda").iterdir() if path.is_file()]
    stored = "".join(path.read_text() for path in files)
    assert KEY not in stored + "".join(ran.out + ran.err for ran in said)
