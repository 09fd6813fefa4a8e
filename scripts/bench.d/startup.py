"""CPU of status and of a no-op resume beside `python -c pass`; overhead of a switch."""

from __future__ import annotations

import argparse
import compileall
import os
import resource
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import trio

import lumbridge_compute
from lumbridge_compute.host_effects import HostEffects
from lumbridge_compute.interruption import Interruption
from lumbridge_compute.observe import Site
from lumbridge_compute.orders import Command, Order, run_order
from lumbridge_compute.orders import Node as OrderNode
from lumbridge_compute.store.registry_file import read_registry

PASS = [sys.executable, "-c", "pass"]
COMMAND = [sys.executable, "-m", "lumbridge_compute"]
SERVER = [sys.executable, "-m", "lumbridge_compute.demo.server"]
LIMITS = {"status, 10 models idle": 10.0, "resume, 3 models, no-op": 30.0}
OVERHEAD_LIMIT_S = 0.150


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=11, help="of each command (default: 11)")
    parser.add_argument("--switches", type=int, default=7, help="there and back (default: 7)")
    options = parser.parse_args()
    # Without byte code each start would compile the package, which is not what is measured.
    compileall.compile_dir(Path(lumbridge_compute.__file__).parent, quiet=2)
    with tempfile.TemporaryDirectory() as folder:
        node = Node(Path(folder))
        try:
            held = [
                measure_status(node, options.runs),
                measure_resume(node, options.runs),
                measure_switch(node, options.switches),
            ]
        finally:
            node.run("scene", "deactivate")
    return 0 if all(held) else 1


class Node:
    """A node in `root` with ten models of the embedded server, all of zero delay."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.ports = [free_port() for _ in range(10)]
        server = ", ".join(f'"{word}"' for word in SERVER)
        models = "".join(
            f'  m{i}: {{command: [{server}, --port, "${{port}}", --marker, "${{marker}}"], '
            f"port: {port}, stop: {{grace: 5s}}}}\n"
            for i, port in enumerate(self.ports)
        )
        (root / "compute.yaml").write_text(
            f"version: 1\nmodels:\n{models}"
            "scenes:\n  day: {models: [m0, m1, m2]}\n  night: {models: [m3, m4, m5]}\n"
        )

    def run(self, *args: str) -> None:
        command = [*COMMAND, "--root", str(self.root), "-q", *args]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def cpu_s(command: list[str]) -> float:
    """CPU seconds of one run, user and system."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def measure_ratio(name: str, command: list[str], runs: int) -> bool:
    """Interleaved with `python -c pass`; the ratio of the medians."""
    times = [(cpu_s(PASS), cpu_s(command)) for _ in range(runs)]
    base, ours = (statistics.median(each) for each in zip(*times, strict=True))
    ratio = ours / base
    print(
        f"{name}: {ours * 1000:.0f} ms CPU, python -c pass {base * 1000:.0f} ms: "
        f"ratio {ratio:.1f} (limit {LIMITS[name]:.0f})"
    )
    return ratio <= LIMITS[name]


def measure_status(node: Node, runs: int) -> bool:
    command = [*COMMAND, "--root", str(node.root), "status"]
    return measure_ratio("status, 10 models idle", command, runs)


def measure_resume(node: Node, runs: int) -> bool:
    node.run("scene", "activate", "day")
    command = [*COMMAND, "--root", str(node.root), "-q", "scene", "resume"]
    return measure_ratio("resume, 3 models, no-op", command, runs)


def measure_switch(node: Node, switches: int) -> bool:
    """What a switch of three models takes beyond their own starts and stops, in a process that
    runs already, as in the agent."""
    pairs = []
    for turn in range(2 * switches):
        own_s = own_time_s(node)
        pairs.append((switch_s(node, "night" if turn % 2 == 0 else "day"), own_s))
    overheads = [whole_s - own_s for whole_s, own_s in pairs]
    overhead_s = statistics.median(overheads)
    whole_s, own_s = (statistics.median(each) for each in zip(*pairs, strict=True))
    print(
        f"switch of 3 models: {whole_s * 1000:.0f} ms, their own starts and stops "
        f"{own_s * 1000:.0f} ms: overhead {overhead_s * 1000:.0f} ms "
        f"(limit {OVERHEAD_LIMIT_S * 1000:.0f} ms, worst {max(overheads) * 1000:.0f} ms)"
    )
    return overhead_s <= OVERHEAD_LIMIT_S


def switch_s(node: Node, scene: str) -> float:
    """Seconds of one activation, carried out here."""
    root = str(node.root)
    at = lumbridge_node(root)
    began = time.monotonic()
    outcome = trio.run(run_order, at, Order(Command.ACTIVATE, scene), Interruption())
    if not outcome.ok:
        sys.exit(f"cannot measure a switch: {outcome.error}")
    return time.monotonic() - began


def lumbridge_node(root: str) -> OrderNode:
    return OrderNode(
        HostEffects(root),
        Site(root, os.environ),
        lambda: read_registry(f"{root}/compute.yaml"),
        lambda _event: None,
    )


def own_time_s(node: Node) -> float:
    """Three starts one after another and one stop of all, with nothing between but the servers."""
    servers, began = [], time.monotonic()
    for port in node.ports[6:9]:
        server = subprocess.Popen(
            [*SERVER, "--port", str(port), "--marker", "x"], stdout=subprocess.PIPE
        )
        server.stdout.readline()
        servers.append(server)
    for server in servers:
        server.send_signal(signal.SIGTERM)
    for server in servers:
        server.wait()
        server.stdout.close()
    return time.monotonic() - began


if __name__ == "__main__":
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.exit(main())
