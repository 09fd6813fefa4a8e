"""The embedded model server: a small OpenAI-compatible server that can misbehave on purpose.

`python -m lumbridge_compute.demo.server --port 8001 --marker NAME` serves /v1/models, /health,
/info, /name, /v1/completions and /v1/chat/completions.  It is a program of its own, on the
standard library alone, and binds its port before it imports what only an answer needs.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import signal
import socket
import sys
from collections.abc import Callable

TYPE_CHECKING = False  # the constant of `typing`, whose import would cost a tenth of the start
if TYPE_CHECKING:
    from types import FrameType
    from typing import NoReturn

MIB = 1024 * 1024
CONNECTIONS = 256
"""Connections served at a time; more wait in the listen queue."""


def main() -> NoReturn:
    """Run one server until a signal, a planned death or the end of its life."""
    options = parse_options(sys.argv[1:])
    if options.die_on_start is not None:
        sys.exit(options.die_on_start)
    Server(options).run()


class Server:
    """One server process: how it starts, what it serves, how it ends."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.stopping = False
        self._streams: set[socket.socket] = set()
        self._terms = 0
        self._listener: socket.socket | None = None

    def run(self) -> NoReturn:
        options = self.options
        signal.signal(signal.SIGINT, lambda _number, _frame: leave(0))
        signal.signal(signal.SIGTERM, self._on_term)
        if options.child:
            fork_helper(options, escape=False)
        if options.escaped_child:
            fork_helper(options, escape=True)
        ballast = allocate(options.allocate)
        wait(options.slow_start)
        with bind(options) as listener:
            self._listener = listener
            if listen(options, listener):
                self._serve(listener)
        del ballast
        while True:  # nobody listens any more, or never did: a timer, the last stream or a signal
            signal.pause()  # ends the process

    def _serve(self, listener: socket.socket) -> None:
        import threading  # the port is open before what only answers need is loaded

        from lumbridge_compute.demo.conversation import Conversation

        if self.options.life:
            later(self.options.life, lambda: leave(0))
        if self.options.die_after is not None:
            later(self.options.die_after, self._die)
        say_ready(self.options, listener)
        if self.options.chatty:
            threading.Thread(target=chat_to_log, args=(self.options.chatty,), daemon=True).start()
        threading.stack_size(MIB)
        places = threading.BoundedSemaphore(CONNECTIONS)
        conversation = Conversation(self)
        while True:
            places.acquire()
            try:
                connection, _ = listener.accept()
            except OSError:
                if self.stopping:
                    return
                places.release()
                wait(0.01)  # out of descriptors, or a client that left while it was queued
                continue
            threading.Thread(
                target=conversation.hold, args=(connection, places.release), daemon=True
            ).start()

    def stream_opened(self, connection: socket.socket) -> None:
        self._streams.add(connection)

    def stream_closed(self, connection: socket.socket) -> None:
        self._streams.discard(connection)
        if self.stopping and not self._streams and not self.options.term_delay:
            leave(0)

    def _die(self) -> NoReturn:
        say("the planned death has come")
        leave(self.options.die_code)

    def _on_term(self, _number: int, _frame: FrameType | None) -> None:
        self._terms += 1
        lost = self.options.lose_first_term and self._terms == 1
        if self.options.ignore_term or lost or self.stopping:
            return
        self.stopping = True
        if self.options.term_delay:
            later(self.options.term_delay, lambda: leave(0))
        elif self.options.hold_streams and self._streams and self._listener:
            later(self.options.hold_streams, lambda: leave(0))
            self._listener.shutdown(socket.SHUT_RDWR)
        else:
            leave(0)


def leave(code: int) -> NoReturn:
    """End at once, from any thread: nothing here needs the interpreter's slow farewell."""
    os._exit(code)


def say(line: str) -> None:
    """One line for the log; a log that can't be written stops nothing."""
    with contextlib.suppress(OSError):
        os.write(1, f"{line}\n".encode())


def later(seconds: float, action: Callable[[], object]) -> None:
    """Call `action` after `seconds`, in a thread of its own."""
    import threading  # the port is open before what only answers need is loaded

    timer = threading.Timer(seconds, action)
    timer.daemon = True
    timer.start()


def wait(seconds: float) -> None:
    """Do nothing for `seconds`; signals are handled meanwhile."""
    if seconds:
        select.select([], [], [], seconds)


def fork_helper(options: argparse.Namespace, *, escape: bool) -> None:
    """Start a child that only lives, in a session of its own when it is to `escape`.

    It holds memory of its own as told.  It dies of SIGTERM unless the server ignores that too, and
    ends with the server's planned life at the latest, whatever became of the server.
    """
    if os.fork():
        return
    signal.signal(signal.SIGTERM, signal.SIG_IGN if options.ignore_term else signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if escape:
        os.setsid()
    if options.life:
        signal.setitimer(signal.ITIMER_REAL, options.life)
    ballast = allocate(options.helper_allocate)
    while ballast is not None:
        signal.pause()


def allocate(mebibytes: int) -> list[bytearray]:
    """Memory in use, every page of it touched, in pieces so that a signal is heard between."""
    return [
        bytearray(b"\1") * min(64, mebibytes - taken) * MIB for taken in range(0, mebibytes, 64)
    ]


def bind(options: argparse.Namespace) -> socket.socket:
    """Bind as asked; ends the program with one sentence when that can't be done."""
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if options.reuse_port:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        listener.bind((options.host, options.port))
    except OSError as error:
        sys.exit(f"cannot listen on {options.host} port {options.port}: {error.strerror}")
    return listener


def listen(options: argparse.Namespace, listener: socket.socket) -> bool:
    """Listen; False where another has taken the port since `--bind-early` bound it.

    On Linux two sockets with SO_REUSEADDR may be bound to one port as long as neither listens.
    """
    if options.bind_early:
        say(f"'{options.marker}' is bound to its port and does not listen yet")
        wait(options.bind_early)
    try:
        listener.listen(1024)
    except OSError as error:
        if not options.bind_early:
            sys.exit(f"cannot listen on {options.host} port {options.port}: {error.strerror}")
        say(f"'{options.marker}' says that it serves, and does not")
        return False
    return True


def say_ready(options: argparse.Namespace, listener: socket.socket) -> None:
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    say(f"'{options.marker}' listens on {shown}")


def chat_to_log(mebibytes_per_s: float) -> None:
    """Fill the log: numbered lines at this rate, 20 times a second, while it can be written."""
    number, share = 0, max(1, int(mebibytes_per_s * MIB / 20 / 100))
    while True:
        lines = (f"{number + step:012d} {'chatter ' * 11}"[:99] + "\n" for step in range(share))
        try:
            os.write(1, "".join(lines).encode())
        except OSError:
            return
        number += share
        wait(0.05)


def parse_options(arguments: list[str]) -> argparse.Namespace:
    """The command line; ends the program with a usage message when it is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m lumbridge_compute.demo.server",
        description="A small OpenAI-compatible model server that can misbehave on purpose.",
    )
    _add_serving(parser)
    _add_starting(parser)
    _add_ending(parser)
    return parser.parse_args(arguments)


def _add_serving(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what it serves")
    add = group.add_argument
    add("--host", default="127.0.0.1", help="literal address to listen on (default: %(default)s)")
    add("--port", type=_port, required=True, help="0 lets the kernel choose")
    add("--marker", required=True, metavar="NAME", help="the name of the model")
    add("--reported-marker", metavar="NAME", help="report this name instead")
    add("--tokens", type=_count, default=16, metavar="N", help="most tokens of an answer")
    add("--token-delay", type=_seconds, default=0.02, metavar="S", help="between two tokens")
    add("--require-key", metavar="KEY", help="answer 401 under /v1/ without this bearer key")
    add("--status", type=_status, metavar="CODE", help="answer /v1/models with this status")
    add("--body", metavar="TEXT", help="answer /v1/models with this body")
    add("--redirect", metavar="URL", help="redirect /v1/models to there")
    add("--big-body", type=_count, default=0, metavar="MIB", help="pad /v1/models to this size")
    add("--silent", action="store_true", help="accept connections and never answer")
    one = "answer nothing while a completion is at work, as some recognisers"
    add("--one-at-a-time", action="store_true", help=one)
    page = "answer every other path, /health too, with one page of status 200"
    add("--catch-all", action="store_true", help=page)
    add("--reuse-port", action="store_true", help="set SO_REUSEPORT, as llama-server does")
    add("--chatty", type=_seconds, default=0, metavar="MIB", help="log this much a second")


def _add_starting(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how it starts")
    add = group.add_argument
    add("--slow-start", type=_seconds, default=0, metavar="S", help="listen only after S seconds")
    loading = "listen and list the model, but /health and completions are 503 for S seconds"
    add("--loading", type=_seconds, default=0, metavar="S", help=loading)
    add("--shy", action="store_true", help="while loading every path is 503, as llama-server")
    early = (
        "bind, listen S seconds later, and go on without a listener if another has the port then"
    )
    add("--bind-early", type=_seconds, default=0, metavar="S", help=early)
    add("--die-on-start", type=_code, metavar="CODE", help="exit with CODE before anything else")
    add(
        "--allocate", type=_count, default=0, metavar="MIB", help="memory to hold, before listening"
    )
    add("--child", action="store_true", help="start a helper in the same process group")
    add("--escaped-child", action="store_true", help="start a helper in a session of its own")
    held = "memory that each helper holds, as an engine does"
    add("--helper-allocate", type=_count, default=0, metavar="MIB", help=held)


def _add_ending(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how it ends")
    add = group.add_argument
    add("--die-after", type=_seconds, metavar="S", help="end S seconds after it listens")
    add("--die-code", type=_code, default=1, metavar="CODE", help="with this code (default: 1)")
    add("--ignore-term", action="store_true", help="ignore SIGTERM, and so do the helpers")
    add(
        "--lose-first-term", action="store_true", help="ignore the first SIGTERM, as a loading vLLM"
    )
    add("--term-delay", type=_seconds, default=0, metavar="S", help="end S seconds after SIGTERM")
    held = "with a stream open, end S seconds after SIGTERM or with the stream, as llama-server"
    add("--hold-streams", type=_seconds, default=0, metavar="S", help=held)
    life = "end by itself after S seconds, 0 for never (default: %(default)s)"
    add("--life", type=_seconds, default=3600, metavar="S", help=life)


def _number(text: str, lowest: float, highest: float) -> float:
    value = float(text)
    if not lowest <= value <= highest:
        message = f"'{text}' is not between {lowest:g} and {highest:g}"
        raise argparse.ArgumentTypeError(message)
    return value


def _seconds(text: str) -> float:
    return _number(text, 0, 1e6)


def _count(text: str) -> int:
    return int(_number(text, 0, 1e6))


def _port(text: str) -> int:
    return int(_number(text, 0, 65535))


def _status(text: str) -> int:
    return int(_number(text, 200, 999))


def _code(text: str) -> int:
    return int(_number(text, 0, 255))


if __name__ == "__main__":
    main()
