"""The same machine seen by somebody who is not root."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lumbridge_compute.host.pidfd import identify
from lumbridge_compute.host.procfs import read_process, read_processes
from tests.host.zoo import Zoo, until

NOBODY = 65534

# Everything is loaded before root is given up: the interpreter may lie where nobody may read.
AS_NOBODY = """
import ctypes, os, signal, sys
import lumbridge_compute.host.spawn, lumbridge_compute.host.strangers, lumbridge_compute.probe
import lumbridge_compute.store.model_log, encodings.idna, pwd, psutil, shlex, subprocess, trio
from lumbridge_compute.core.identity import Identity
from lumbridge_compute.core.launch import Launch
from lumbridge_compute.errors import OperatorError
from lumbridge_compute.host.pidfd import identify, open_same
from lumbridge_compute.host_effects import HostEffects
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
ctypes.CDLL(None).prctl(4, 1)  # PR_SET_DUMPABLE, which a change of user takes away
effects = HostEffects(sys.argv[1])
def refusal(call):
    try:
        return call()
    except OperatorError as error:
        return error.message
"""


@pytest.fixture
def root() -> Iterator[str]:
    """A node's root that belongs to nobody; not below tmp_path, which pytest keeps to root."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    with tempfile.TemporaryDirectory() as path:
        os.chown(path, NOBODY, NOBODY)
        yield path


def test_what_is_another_users_may_not_be_signalled(zoo: Zoo, root: str) -> None:
    victim = zoo.sleeper()
    script = AS_NOBODY + (
        "identity = identify(int(sys.argv[2]))\n"
        "print(effects.permitted(identity))\n"
        "with open_same(identity) as process:\n"
        "    for send in (process.signal, process.signal_group):\n"
        "        try:\n"
        "            print(send(signal.SIGKILL))\n"
        "        except PermissionError:\n"
        "            print('refused')\n"
    )
    child = zoo.python(script, root, str(victim.pid))
    assert zoo.output(child).split() == ["False", "refused", "refused"]
    assert victim.poll() is None
    assert identify(victim.pid) is not None


# Leads a group as nobody, with a member that stayed root's.
MIXED_GROUP = """
import os
if os.fork() == 0:
    os.execv("/bin/sleep", ["sleep", "1000"])
os.setgid(65534)
os.setuid(65534)
os.execv("/bin/sleep", ["sleep", "1000"])
"""


def test_a_member_of_another_user_is_found_before_anything_is_changed(zoo: Zoo, root: str) -> None:
    leader = zoo.python(MIXED_GROUP)
    until(lambda: (row := read_process(leader.pid)) is not None and row.group == leader.pid, "it")
    until(lambda: sum(p.group == leader.pid for p in read_processes().values()) == 2, "its member")
    until(lambda: os.stat(f"/proc/{leader.pid}").st_uid == NOBODY, "its user")
    script = AS_NOBODY + (
        "from lumbridge_compute.claims import judge_record, may_signal, read_scan\n"
        "from lumbridge_compute.core.state import Legacy\n"
        "record = Legacy(int(sys.argv[2]))\n"
        "scan = read_scan(effects, {'': record})\n"
        "claim, now = judge_record(effects, scan, record)\n"
        "print(effects.permitted(now), len(claim.members), may_signal(effects, scan, claim))\n"
    )
    assert zoo.output(zoo.python(script, root, str(leader.pid))) == "True 2 False"


def test_the_holder_of_another_users_port_is_named_by_its_user(zoo: Zoo, root: str) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = str(server.getsockname()[1])
        script = AS_NOBODY + (
            "(found,) = effects.listeners({int(sys.argv[2])})\n"
            "print(sorted(found.pids), found.uid, found.who)\n"
        )
        child = zoo.python(script, root, port)
        assert zoo.output(child) == "[] 0 user root (uid 0)"


def test_another_users_environment_is_passed_over(zoo: Zoo, root: str) -> None:
    zoo.sleeper()
    script = AS_NOBODY + "print(effects.carriers({sys.argv[2]})[sys.argv[2]] <= {os.getpid()})\n"
    assert zoo.output(zoo.python(script, root, zoo.token)) == "True"


def test_an_ordinary_user_runs_a_node(zoo: Zoo, root: str) -> None:
    script = AS_NOBODY + (
        "async def main():\n"
        "    lock = effects.try_lock('scene activate a')\n"
        "    await effects.create('new', b'state')\n"
        "    await effects.rename('new', 'state.yaml')\n"
        "    launch = Launch('qwen', ('sleep', '1000'), sys.argv[1], dict(os.environ))\n"
        "    gate = await effects.spawn(launch)\n"
        "    pid = gate.handle.identity.pid\n"
        "    with open(f'/proc/{pid}/oom_score_adj') as file:\n"
        "        print(int(file.read()) >= 300)\n"
        "    print(effects.permitted(gate.handle.identity))\n"
        "    gate.release()\n"
        "    with trio.fail_after(30):\n"
        "        gate.handle.signal_group(signal.SIGTERM)\n"
        "        await gate.handle.wait()\n"
        "    print(gate.handle.exit_cause())\n"
        "    gate.handle.close()\n"
        "    lock.release()\n"
        "    print(effects.new_scope('qwen'))\n"
        "trio.run(main)\n"
    )
    child = zoo.python(script, root)
    assert zoo.output(child).splitlines() == ["True", "True", "killed by SIGTERM", "None"]


def test_what_belongs_to_root_is_refused_in_words(zoo: Zoo, root: str) -> None:
    private = Path(root) / ".kuda"
    private.mkdir(mode=0o700)
    (private / "state.yaml").write_text("{}")
    script = AS_NOBODY + (
        "print(refusal(lambda: effects.read_now('state.yaml')))\n"
        "print(refusal(lambda: effects.try_lock('scene resume')))\n"
        "print(effects.lock_holder())\n"
        "print(refusal(lambda: HostEffects('/usr').try_lock('scene resume')))\n"
    )
    assert zoo.output(zoo.python(script, root)).splitlines() == [
        f"cannot read '{private}/state.yaml': permission denied",
        f"cannot lock '{private}/lock': Permission denied",
        "None",
        "cannot make the folder '/usr/.kuda': Permission denied",
    ]
