"""The relays that are compared: how each is started, and what it costs the machine.

Each listens on 127.0.0.1, relays to one upstream port, and ends with the `Relay`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

START_S = 10.0
STOP_S = 2.0
PROXYD = "/usr/lib/systemd/systemd-socket-proxyd"
NGINX_STREAM = "/usr/lib/nginx/modules/ngx_stream_module.so"


class Relay:
    """One running relay; `port` is where it listens, `pid` its main process (0: there is none)."""

    def __init__(self, name: str, port: int, process: subprocess.Popen[bytes] | None) -> None:
        self.name = name
        self.port = port
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    def cpu_s(self) -> float:
        """CPU time of all its processes so far."""
        total_ns = 0
        for pid in self._pids():
            with contextlib.suppress(OSError):
                for task in Path(f"/proc/{pid}/task").iterdir():
                    total_ns += int((task / "schedstat").read_text().split()[0])
        return total_ns / 1e9

    def rss_bytes(self) -> int:
        """Resident memory of all its processes that is theirs alone (shared pages by share)."""
        total = 0
        for pid in self._pids():
            with contextlib.suppress(OSError):
                text = Path(f"/proc/{pid}/smaps_rollup").read_text()
                total += int(text.partition("\nPss:")[2].split()[0]) * 1024
        return total

    def stop(self) -> None:
        """End its processes."""
        if self._process is None:
            return
        self._process.terminate()  # a main process that reaps its children does so now
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # noqa: TID251 - a group that we started
        self._process.wait()

    def _pids(self) -> list[int]:
        if not self.pid:
            return []
        return [self.pid, *_descendants(self.pid)]


def start(name: str, upstream: int, folder: Path) -> Relay | None:
    """The relay called `name` before the port `upstream`; None where its program is missing."""
    if name == "direct":
        return Relay(name, upstream, None)
    command, environment = STARTERS[name](upstream, folder)
    if command is None:
        return None
    port = int(environment["BENCH_PORT"])
    log = (folder / f"{name}.log").open("wb")
    process = subprocess.Popen(
        command,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
    log.close()
    relay = Relay(name, port, process)
    try:
        _wait_until_it_listens(relay, process, folder / f"{name}.log")
    except BaseException:
        relay.stop()
        raise
    return relay


Starter = Callable[[int, Path], tuple[list[str] | None, dict[str, str]]]


def _lumbridge(upstream: int, _folder: Path, *more: str) -> tuple[list[str], dict[str, str]]:
    port = _free_port()
    serve = str(Path(__file__).with_name("serve.py"))
    environment = {"BENCH_PORT": str(port), "PYTHONPATH": str(Path(__file__).parents[3])}
    return [sys.executable, serve, str(port), str(upstream), *more], environment


def _lumbridge_busy(upstream: int, folder: Path) -> tuple[list[str], dict[str, str]]:
    return _lumbridge(upstream, folder, "--busy")


def _haproxy(upstream: int, folder: Path, *options: str) -> tuple[list[str] | None, dict[str, str]]:
    port = _free_port()
    config = folder / f"haproxy-{port}.cfg"
    lines = [
        "global",
        "  maxconn 4000",
        "  nbthread 1",
        "defaults",
        "  mode tcp",
        "  timeout connect 10s",
        "  timeout client 1h",
        "  timeout server 1h",
        *(f"  option {option}" for option in options),
        "listen relay",
        f"  bind 127.0.0.1:{port} backlog 4096",
        f"  server upstream 127.0.0.1:{upstream}",
        "",
    ]
    config.write_text("\n".join(lines))
    return _found("haproxy", "-db", "-f", str(config)), {"BENCH_PORT": str(port)}


def _haproxy_splice(upstream: int, folder: Path) -> tuple[list[str] | None, dict[str, str]]:
    return _haproxy(upstream, folder, "splice-request", "splice-response")


def _nginx(upstream: int, folder: Path) -> tuple[list[str] | None, dict[str, str]]:
    port = _free_port()
    config = folder / "nginx.conf"
    config.write_text(f"""
        load_module {NGINX_STREAM};
        daemon off; worker_processes 1; worker_rlimit_nofile 20000;
        pid {folder}/nginx.pid; error_log {folder}/nginx-error.log;
        events {{ worker_connections 16000; }}
        stream {{
            server {{
                listen 127.0.0.1:{port} backlog=4096;
                proxy_pass 127.0.0.1:{upstream}; proxy_timeout 1h; tcp_nodelay on;
            }}
        }}
    """)
    if not Path(NGINX_STREAM).exists():
        return None, {}
    return _found("nginx", "-c", str(config), "-p", str(folder)), {"BENCH_PORT": str(port)}


def _socat(upstream: int, _folder: Path) -> tuple[list[str] | None, dict[str, str]]:
    port = _free_port()
    listen = f"TCP-LISTEN:{port},bind=127.0.0.1,reuseaddr,fork,backlog=4096,nodelay"
    return _found("socat", listen, f"TCP:127.0.0.1:{upstream},nodelay"), {"BENCH_PORT": str(port)}


def _proxyd(upstream: int, _folder: Path) -> tuple[list[str] | None, dict[str, str]]:
    port = _free_port()
    if not Path(PROXYD).exists():
        return None, {}
    activate = _found("systemd-socket-activate", "-l", f"127.0.0.1:{port}", "--", PROXYD)
    if activate is None:
        return None, {}
    return [*activate, "--connections-max=8000", f"127.0.0.1:{upstream}"], {"BENCH_PORT": str(port)}


STARTERS: dict[str, Starter] = {
    "lumbridge": _lumbridge,
    "lumbridge-busy": _lumbridge_busy,
    "haproxy": _haproxy,
    "haproxy-splice": _haproxy_splice,
    "nginx": _nginx,
    "socat": _socat,
    "proxyd": _proxyd,
}


def _found(program: str, *arguments: str) -> list[str] | None:
    path = shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    return [path, *arguments] if path else None


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def _wait_until_it_listens(relay: Relay, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as sock:
            if sock.connect_ex(("127.0.0.1", relay.port)) == 0:
                return
        time.sleep(0.02)  # noqa: TID251 - a program that tells nobody when it is ready
    sys.exit(f"cannot start {relay.name}: {log.read_text(errors='replace').strip()[-500:]}")


def _descendants(pid: int) -> Iterator[int]:
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield int(child)
                yield from _descendants(int(child))
