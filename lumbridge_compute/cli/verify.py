"""`verify`: do a gateway and the model behind it name exactly the same models?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import trio

from lumbridge_compute.cli.call import Call
from lumbridge_compute.cli.node import registry_of, state_of
from lumbridge_compute.core.health import Outcome, Request
from lumbridge_compute.core.identity import Ownership
from lumbridge_compute.core.launch import UnsetVariable, expanded_headers
from lumbridge_compute.core.markers import BodyError, parse_markers, render_markers
from lumbridge_compute.core.registry import Address, Model, Registry
from lumbridge_compute.core.report import ModelRow, model_rows
from lumbridge_compute.core.site import Site
from lumbridge_compute.core.state import NodeState
from lumbridge_compute.core.world import World
from lumbridge_compute.errors import BadInput, Exit
from lumbridge_compute.host_effects import HostEffects
from lumbridge_compute.observe import observe

_ANY_HOST = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - to ask, not to listen


@dataclass(frozen=True, slots=True)
class Named:
    """What one address names; `markers` is None where it names nothing, `detail` says why."""

    markers: tuple[str, ...] | None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Parity:
    """One gateway beside the model behind it; `model` is None where none of ours is there."""

    gateway: Address
    upstream: Address | None
    model: str | None
    behind: Named
    in_front: Named

    @property
    def equal(self) -> bool:
        """Both name something, and exactly the same."""
        if self.behind.markers is None or self.in_front.markers is None:
            return False
        return set(self.behind.markers) == set(self.in_front.markers)


def run_verify(call: Call) -> int:
    """0 where every gateway names exactly what the model behind it names, else 4."""
    root = call.root()
    registry, state = registry_of(root), state_of(root)
    gateways = _gateways(call.options.gateway, registry)
    world, found = trio.run(_verify, root, call.environ, registry, state, gateways)
    rows = model_rows(world, registry, state.active_scene)
    code = Exit.DONE if all(parity.equal for parity in found) else Exit.DEGRADED
    if call.json:
        call.print_document(_document(code, found, rows))
    else:
        call.out.write_lines(_render(parity) for parity in found)
    if code is not Exit.DONE:
        call.err.write_lines(["hint: lumbridge-compute status"])
    return code


def _gateways(given: str | None, registry: Registry) -> list[tuple[Address, Address | None]]:
    """Each gateway with its upstream; None where nothing declares it."""
    declared = {spec.listen: spec.upstream for spec in registry.gateways}
    if given is not None:
        address = _parse_address(given)
        return [(address, declared.get(address))]
    if not declared:
        raise BadInput(
            "cannot verify anything: compute.yaml declares no gateway",
            "lumbridge-compute verify --gateway HOST:PORT",
        )
    return list(declared.items())


def _parse_address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (host and port.isascii() and port.isdecimal() and len(port) <= 5):
        raise BadInput(
            f"cannot understand --gateway {text!r}: wanted HOST:PORT with a literal address",
            "--gateway 127.0.0.1:8011",
        )
    if not 1 <= int(port) <= 65535:
        raise BadInput(
            f"cannot understand --gateway {text!r}: {port} is not a port",
            "a port is a number from 1 to 65535",
        )
    return Address(host, int(port))


async def _verify(
    root: str,
    environ: Mapping[str, str],
    registry: Registry,
    state: NodeState,
    gateways: list[tuple[Address, Address | None]],
) -> tuple[World, list[Parity]]:
    effects, site = HostEffects(root), Site(root, environ)
    world = await observe(effects, registry, state, site)
    found: dict[Address, Parity] = {}

    async def compare(gateway: Address, upstream: Address | None) -> None:
        found[gateway] = await _parity(effects, site, world, gateway, upstream)

    async with trio.open_nursery() as nursery:
        for gateway, upstream in gateways:
            nursery.start_soon(compare, gateway, upstream)
    return world, [found[gateway] for gateway, _ in gateways]


async def _parity(
    effects: HostEffects, site: Site, world: World, gateway: Address, upstream: Address | None
) -> Parity:
    """Of several models that may be behind an undeclared gateway, the one that it names."""
    silent = Named(None, "not asked")
    parity = Parity(gateway, upstream, None, Named(None, _nobody(upstream)), silent)
    for model in _owned(world, upstream):
        behind = await _ask(effects, site, model, Address(model.host, model.port))
        in_front = await _ask(effects, site, model, gateway)
        parity = Parity(gateway, upstream, model.name, behind, in_front)
        if parity.equal:
            break
    return parity


def _nobody(upstream: Address | None) -> str:
    where = f" on port {upstream.port}" if upstream is not None else ""
    return f"no model of ours runs{where}"


def _owned(world: World, upstream: Address | None) -> list[Model]:
    return [
        view.checked
        for view in world.models.values()
        if view.ownership is Ownership.OWNED
        and view.checked is not None
        and (upstream is None or view.checked.port == upstream.port)
    ]


async def _ask(effects: HostEffects, site: Site, model: Model, address: Address) -> Named:
    """The markers that `address` names, asked in the way of `model`."""
    try:
        headers = expanded_headers(model, site.root, site.environ)
    except UnsetVariable as error:
        return Named(None, str(error))
    host = _ANY_HOST.get(address.host, address.host)
    health = model.health
    request = Request(host, address.port, health.path, headers, timeout_s=health.request_timeout_s)
    answer = await effects.ask(request)
    if answer.outcome is not Outcome.ANSWERED:
        reason = f" ({answer.reason})" if answer.reason else ""
        return Named(None, f"no answer: {answer.outcome}{reason}")
    if answer.status != 200:
        return Named(None, f"it answers {health.path!r} with {answer.status}")
    try:
        return Named(parse_markers(health, answer.body))
    except BodyError as error:
        return Named(None, f"it answers with {error}")


def _render(parity: Parity) -> str:
    behind = f"{parity.model or 'the model behind it'}: {_shown(parity.behind)}"
    verdict = "equal" if parity.equal else "NOT equal"
    return f"{parity.gateway}: {verdict}; gateway: {_shown(parity.in_front)}; {behind}"


def _shown(named: Named) -> str:
    if named.markers is None:
        return named.detail or "nothing"
    return render_markers(named.markers) or "no model"


def _document(code: Exit, found: list[Parity], rows: tuple[ModelRow, ...]) -> dict[str, Any]:
    return {
        "ok": code is Exit.DONE,
        "exit": int(code),
        "gateways": [
            {
                "listen": str(parity.gateway),
                "upstream": str(parity.upstream) if parity.upstream is not None else None,
                "model": parity.model,
                "equal": parity.equal,
                "gateway": _listed(parity.in_front),
                "backend": _listed(parity.behind),
                "detail": parity.in_front.detail or parity.behind.detail,
            }
            for parity in found
        ],
        "models": [
            {"name": row.name, "pid": row.pid, "ownership": row.ownership.value}
            for row in rows
            if row.ownership is not Ownership.NONE
        ],
    }


def _listed(named: Named) -> list[str] | None:
    return sorted(named.markers) if named.markers is not None else None
