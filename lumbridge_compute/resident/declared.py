"""What compute.yaml declares for the agent: read at start and on SIGHUP, whole or not at all."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from trio_util import AsyncValue

from lumbridge_compute.core.registry import GatewaySpec, Registry
from lumbridge_compute.core.units import render_bytes
from lumbridge_compute.errors import OperatorError, Refused
from lumbridge_compute.gateway.driver import Gateways
from lumbridge_compute.gateway.listeners import Listener, open_listeners, validate
from lumbridge_compute.host.procfs import read_memory

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Overrides:
    """What the command line says instead of the registry; None and empty where it says nothing."""

    gateways: tuple[GatewaySpec, ...] = ()
    floor_bytes: int | None = None


class Declared:
    """The registry in force, and what of it the agent itself carries out.

    `fault` says why compute.yaml, as it is now, is not in force; None when it is.
    """

    def __init__(self, read_registry: Callable[[], Registry], overrides: Overrides) -> None:
        """Raises BadInput or Refused: no agent begins with a registry that it can't obey."""
        self._read = read_registry
        self._overrides = overrides
        self.fault: OperatorError | None = None
        self.registry = AsyncValue(self._checked())

    @property
    def gateways(self) -> tuple[GatewaySpec, ...]:
        return self._overrides.gateways or self.registry.value.gateways

    @property
    def floor_bytes(self) -> int:
        floor = self._overrides.floor_bytes
        return (self.registry.value.memory_floor_bytes or 0) if floor is None else floor

    def read_again(self) -> bool:
        """Take compute.yaml as it is now, whole; else keep what is in force.  True when taken."""
        try:
            registry = self._checked()
        except OperatorError as error:
            self.fault = error
            _log.error(
                "compute.yaml is refused and the old one stays in force cause=%r", str(error)
            )
            return False
        self.fault = None
        self.registry.value = registry
        _log.info("compute.yaml is read again models=%d", len(registry.models))
        return True

    def _checked(self) -> Registry:
        registry = self._read()
        validate(self._overrides.gateways or registry.gateways, registry.models)
        check_floor(self._overrides.floor_bytes or registry.memory_floor_bytes or 0)
        return registry


def check_floor(floor_bytes: int) -> None:
    """Refuse a floor that this machine could never keep; say loudly that it is not kept now.

    Raises Refused.
    """
    memory = read_memory()
    if memory is None or floor_bytes == 0:
        return
    if floor_bytes >= memory.total_bytes:
        raise Refused(
            f"cannot keep a floor of {render_bytes(floor_bytes)}: the machine has "
            f"{render_bytes(memory.total_bytes)}",
            "lower node.memory_floor or --floor",
        )
    if floor_bytes > memory.available_bytes:
        _log.warning(
            "the memory floor is above what is available now floor=%r available=%r",
            render_bytes(floor_bytes),
            render_bytes(memory.available_bytes),
        )


class Doors:
    """The listening sockets of the gateways in force."""

    def __init__(self, listeners: tuple[Listener, ...]) -> None:
        self.listeners = listeners

    def change(self, specs: tuple[GatewaySpec, ...], gateways: Gateways) -> None:
        """Serve `specs` from now on; sockets that stay declared stay open.

        Raises Refused with every address that can't be had: nothing has changed then.
        """
        kept = {listener.spec.listen: listener for listener in self.listeners}
        fresh = open_listeners([spec for spec in specs if spec.listen not in kept])
        opened = {listener.spec.listen: listener for listener in fresh}
        wanted = tuple(
            Listener(spec, (kept.get(spec.listen) or opened[spec.listen]).sock) for spec in specs
        )
        gateways.serve(wanted)
        for listen in set(kept) - {spec.listen for spec in specs}:
            kept[listen].sock.close()
        self.listeners = wanted

    def close(self) -> None:
        for listener in self.listeners:
            listener.sock.close()
