from __future__ import annotations

import shutil
from pathlib import Path

from lumbridge_compute.core.world import Listener
from lumbridge_compute.host.procfs import read_name
from lumbridge_compute.host.strangers import describe_holders, describe_process, describe_user
from tests.host.zoo import Zoo, until


def test_a_holder_is_named_by_pid_and_program(zoo: Zoo) -> None:
    child = zoo.sleeper()
    until(lambda: read_name(child.pid) == "sleep", "the exec")
    listener = Listener("127.0.0.1", 1, 2, 0, frozenset({child.pid}))
    assert describe_holders(listener) == f"pid {child.pid} (sleep)"


def test_a_name_that_the_kernel_has_cut_is_told_whole(zoo: Zoo, tmp_path: Path) -> None:
    program = tmp_path / "a-server-with-a-long-name"
    shutil.copy("/bin/sleep", program)
    child = zoo.start(str(program), "1000")
    until(lambda: read_name(child.pid) == "a-server-with-a", "the exec")
    assert describe_process(child.pid) == f"pid {child.pid} (a-server-with-a-long-name)"


def test_only_a_cut_name_loads_psutil(zoo: Zoo) -> None:
    child = zoo.python(
        "import sys, os\n"
        "from lumbridge_compute.host.strangers import describe_process\n"
        "print(describe_process(int(sys.argv[1])), 'psutil' in sys.modules)\n",
        str(zoo.sleeper().pid),
    )
    assert zoo.output(child).endswith("(sleep) False")


def test_many_holders_are_counted() -> None:
    listener = Listener("127.0.0.1", 1, 2, 0, frozenset(range(1 << 25, (1 << 25) + 5)))
    base = 1 << 25
    assert describe_holders(listener) == f"pid {base}, pid {base + 1}, pid {base + 2} and 2 more"


def test_a_hidden_holder_is_named_by_the_user_of_its_socket() -> None:
    assert describe_holders(Listener("127.0.0.1", 1, 2, 0)) == "user root (uid 0)"
    assert describe_user(987654) == "uid 987654"
