"""The installed command, forked from a process that has loaded it already.

To load Python, trio and the package takes 0.3 to 0.5 s of CPU, and the tests run the command a
thousand times.  What is tested of its first moments, its signals and its death starts it as it is
installed: `SystemNode.start`.
"""

from __future__ import annotations

import atexit
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cache

_REQUEST_BYTES = 1 << 20
_NULL, _OUT, _ERR, _STATUS = range(4)


def run_forked(
    arguments: Sequence[str], environ: Mapping[str, str], bound_s: float
) -> tuple[int, bytes, bytes]:
    """Exit code, standard output and standard error of the command with these arguments.

    The exit code is as subprocess gives it, but for a death by a signal, which is -1.  Raises
    subprocess.TimeoutExpired.
    """
    null = os.open(os.devnull, os.O_RDONLY)
    pipes = [os.pipe() for _ in (_OUT, _ERR, _STATUS)]
    given = [null, *(write for _, write in pipes)]
    request = json.dumps([list(arguments), dict(environ), os.getcwd()]).encode()
    socket.send_fds(_parent(), [request], given)
    for descriptor in given:
        os.close(descriptor)
    out, err, status = _read_all([read for read, _ in pipes], bound_s, arguments)
    _pid, _, code = status.partition(b" ")
    return int(code) if code else -1, out, err


def _read_all(descriptors: list[int], bound_s: float, arguments: Sequence[str]) -> list[bytes]:
    """What comes from each up to its end."""
    end = time.monotonic() + bound_s
    data = {descriptor: bytearray() for descriptor in descriptors}
    with selectors.DefaultSelector() as selector:
        for descriptor in descriptors:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(max(0.0, end - time.monotonic()))
            if not ready:
                pid = int(bytes(data[descriptors[-1]]).partition(b" ")[0] or b"0")
                if pid > 0:
                    os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(list(arguments), bound_s)
            for key, _ in ready:
                piece = os.read(key.fd, 1 << 16)
                data[key.fd] += piece
                if not piece:
                    selector.unregister(key.fd)
                    os.close(key.fd)
    return [bytes(each) for each in data.values()]


@cache
def _parent() -> socket.socket:
    """The socket of the process that is forked from, one for each process of tests."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    here.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _REQUEST_BYTES)
    with there:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.system.forked", str(there.fileno())],
            pass_fds=[there.fileno()],
            stdin=subprocess.DEVNULL,
        )
    atexit.register(_end, here, process)
    return here


def _end(here: socket.socket, process: subprocess.Popen[bytes]) -> None:
    here.close()
    process.wait()


def _serve(requests: socket.socket) -> None:
    """Fork for each request until nobody is left to ask."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # none is waited for: its status tells its end
    while True:
        data, descriptors, _, _ = socket.recv_fds(requests, _REQUEST_BYTES, 4)
        if not data:
            return
        if os.fork() == 0:
            requests.close()
            _become(json.loads(data), descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _become(request: list[object], descriptors: list[int]) -> None:
    """Be the command; never returns."""
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        arguments, environ, folder = request
        for number, descriptor in enumerate(descriptors[:_STATUS]):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.set_inheritable(descriptors[_STATUS], False)  # noqa: FBT003 - it has no other form
        os.write(descriptors[_STATUS], f"{os.getpid()} ".encode())
        os.chdir(str(folder))
        os.environ.clear()
        os.environ.update(environ)  # type: ignore[call-overload]
        sys.argv = ["lumbridge-compute", *arguments]  # type: ignore[misc]
        from lumbridge_compute.__main__ import main

        code = main()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os.write(descriptors[_STATUS], str(code).encode())
        os._exit(code)


def _load() -> None:
    """All that a command may load later."""
    import gc
    import importlib
    import pkgutil

    import lumbridge_compute.cli

    for module in pkgutil.iter_modules(lumbridge_compute.cli.__path__):
        importlib.import_module(f"lumbridge_compute.cli.{module.name}")
    for name in ("host_effects", "orders", "client", "probe"):
        importlib.import_module(f"lumbridge_compute.{name}")
    gc.freeze()


if __name__ == "__main__":
    _load()
    _serve(socket.socket(fileno=int(sys.argv[1])))
