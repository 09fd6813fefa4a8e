"""What records are worth: whose the processes are, at one moment."""

from __future__ import annotations

from collections.abc import Mapping

from lumbridge_compute.core.identity import Claim, Identity, Ownership, Process, compare
from lumbridge_compute.core.state import Bound, Legacy, Record
from lumbridge_compute.core.values import dataclass, field, replace
from lumbridge_compute.core.world import Listener
from lumbridge_compute.effects import Effects


@dataclass(frozen=True, slots=True)
class Scan:
    """The process table, and who proves to belong to which record, at one moment.

    `own` are this command, its group and its ancestors.
    """

    boot_id: str
    table: Mapping[int, Process]
    carriers: Mapping[str, frozenset[int]]
    scopes: Mapping[str, frozenset[int]]
    left_behind: Mapping[Identity, frozenset[int]] = field(default_factory=dict)
    listeners: tuple[Listener, ...] = ()
    own: frozenset[int] = frozenset()

    def proved(self, record: Bound) -> frozenset[int]:
        by_token = self.carriers.get(record.token or "", frozenset())
        by_scope = self.scopes.get(record.scope or "", frozenset())
        return by_token | by_scope | self.left_behind.get(record.identity, frozenset())


def read_scan(effects: Effects, records: Mapping[str, Record]) -> Scan:
    """What judging `records` takes, and no more.  Raises OSError where we can't look."""
    boot_id = effects.boot_id()
    ours = [
        record
        for record in records.values()
        if isinstance(record, Bound) and record.identity.boot_id == boot_id
    ]
    needed = ours or any(isinstance(record, Legacy) for record in records.values())
    tokens = {record.token for record in ours if record.token}
    scopes = {record.scope for record in ours if record.scope}
    table = effects.processes() if needed else {}
    return Scan(
        boot_id,
        table,
        effects.carriers(tokens) if tokens else {},
        effects.scope_members(scopes) if scopes else {},
        effects.left_behind([record.identity for record in ours], table) if ours else {},
    )


def judge_record(effects: Effects, scan: Scan, record: Record) -> tuple[Claim, Identity | None]:
    """What `record` is worth by `scan`, and the identity that its PID has now."""
    if isinstance(record, Legacy):
        now = effects.identify(record.pid)
        if now is None:
            return Claim(Ownership.GONE), None
        found = compare(now, now, scan.table)
        if found.ownership is not Ownership.OWNED:
            return found, now
        return replace(found, ownership=Ownership.LEGACY), now
    if record.identity.boot_id != scan.boot_id:
        return Claim(Ownership.GONE), None
    now = effects.identify(record.identity.pid)
    return compare(record.identity, now, scan.table, proved=scan.proved(record)), now


def claim_of(
    effects: Effects, record: Record
) -> tuple[Claim, Identity | None, Mapping[int, Process]]:
    """What `record` is worth at this moment, the identity its PID has now, and the process table
    that it was judged by."""
    scan = read_scan(effects, {"": record})
    return *judge_record(effects, scan, record), scan.table


def may_signal(effects: Effects, scan: Scan, claim: Claim) -> bool:
    """May we signal each process that a stop would have to end?"""
    leader = {claim.leader.pid} if claim.leader is not None else set[int]()
    found = [effects.identify(pid) for pid in (claim.members | leader) - scan.own]
    return all(effects.permitted(identity) for identity in found if identity is not None)
