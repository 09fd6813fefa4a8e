"""The service manager: told when the agent serves, what it does, and that its loop turns.

Source: sd_notify(3), sd_listen_fds(3), systemd.service(5) WatchdogSec= and FileDescriptorStoreMax=.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trio_util import periodic

from lumbridge_compute.gateway.listeners import Listener
from lumbridge_compute.host import service_manager

_STATUS_PERIOD_S = 1.0


class ServiceManager:
    """Talks to systemd where there is one; does nothing elsewhere."""

    def __init__(self, describe: Callable[[], str]) -> None:
        """`describe` gives the line of STATUS=."""
        self._describe = describe
        self._said = ""
        self._watchdog_s = service_manager.watchdog_period_s()

    def keep(self, listeners: Sequence[Listener]) -> None:
        """Leave these listening sockets, and no others, with systemd for the next agent.

        One that an earlier agent left and that is declared no more has to go: clients would wait
        in its queue for ever.
        """
        service_manager.forget_descriptors()
        service_manager.store_descriptors([listener.sock.fileno() for listener in listeners])

    def ready(self) -> None:
        service_manager.notify("READY=1", f"STATUS={self._describe()}")

    def reloading(self) -> None:
        service_manager.notify_reloading()

    def stopping(self) -> None:
        service_manager.notify("STOPPING=1", "STATUS=leaving")

    async def run(self) -> None:
        """Say what goes on and that this loop turns, until cancelled."""
        period_s = min(_STATUS_PERIOD_S, self._watchdog_s / 3 if self._watchdog_s else 60.0)
        async for _ in periodic(period_s):
            said = self._describe()
            words = [f"STATUS={said}"] if said != self._said else []
            self._said = said
            if self._watchdog_s:
                words.append("WATCHDOG=1")
            if words:
                service_manager.notify(*words)
