"""Whose process is it?  The ownership table (DESIGN section 6), as far as a record tells."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumbridge_compute.core.identity import Claim, Identity, Ownership, Process, compare

BOOT = "b1"
RECORD = Identity(BOOT, 41, 1000)
LEADER = Process(pid=41, parent_pid=1, group=41, session=41, state="S", start_ticks=1000)


def table(*rows: Process) -> dict[int, Process]:
    return {row.pid: row for row in rows}


def child(pid: int, *, group: int = 41, session: int = 41, state: str = "S") -> Process:
    return Process(pid, 41, group, session, state, 1001)


def test_an_identity_that_lives_and_leads_its_group_is_owned() -> None:
    assert compare(RECORD, RECORD, table(LEADER)) == Claim(Ownership.OWNED, LEADER, frozenset({41}))


def test_group_and_session_of_an_owned_leader_are_its_members() -> None:
    rows = table(LEADER, child(42), child(43, group=43), child(44, group=44, session=44))
    assert compare(RECORD, RECORD, rows).members == {41, 42, 43}


def test_the_session_does_not_count_where_the_leader_does_not_lead_it() -> None:
    """What was adopted from a login shell shares the shell's session."""
    adopted = replace(LEADER, session=7)
    rows = table(adopted, child(42, session=7), child(43, group=43, session=7))
    assert compare(RECORD, RECORD, rows).members == {41, 42}


def test_proof_makes_a_member_of_what_left_group_and_session() -> None:
    rows = table(LEADER, child(44, group=44, session=44))
    claim = compare(RECORD, RECORD, rows, proved=frozenset({44, 99}))
    assert claim.members == {41, 44}


def test_zombies_are_no_members() -> None:
    rows = table(LEADER, child(42, state="Z"), child(43, group=43, session=43, state="X"))
    assert compare(RECORD, RECORD, rows, proved=frozenset({43})).members == {41}


def test_a_process_that_left_its_group_is_foreign() -> None:
    moved = replace(LEADER, group=7)
    claim = compare(RECORD, RECORD, table(moved), proved=frozenset({41}))
    assert claim.ownership is Ownership.FOREIGN


@pytest.mark.parametrize(
    "now",
    [
        None,
        replace(RECORD, start_ticks=2000),
        replace(RECORD, boot_id="b2"),
        replace(RECORD, pid=42),
    ],
    ids=["no such process", "a reused pid", "another boot", "another pid"],
)
def test_another_identity_is_gone(now: Identity | None) -> None:
    assert compare(RECORD, now, table(LEADER)).ownership is Ownership.GONE


def test_a_zombie_is_gone() -> None:
    dead = replace(LEADER, state="Z")
    assert compare(RECORD, RECORD, table(dead)).ownership is Ownership.GONE


def test_a_process_whose_first_thread_alone_has_ended_still_lives() -> None:
    half = replace(LEADER, state="Z", thread_count=2)
    assert compare(RECORD, RECORD, table(half)).ownership is Ownership.OWNED


def test_what_vanished_from_the_table_is_gone() -> None:
    assert compare(RECORD, RECORD, {}).ownership is Ownership.GONE


def test_a_pid_reused_within_one_tick_differs_by_its_pidfd_inode() -> None:
    recorded, reused = replace(RECORD, pidfd_inode=5), replace(RECORD, pidfd_inode=6)
    assert compare(recorded, reused, table(LEADER)).ownership is Ownership.GONE
    assert compare(recorded, recorded, table(LEADER)).ownership is Ownership.OWNED


def test_an_inode_that_only_one_side_knows_decides_nothing() -> None:
    assert compare(replace(RECORD, pidfd_inode=5), RECORD, table(LEADER)).ownership == "owned"
    assert compare(RECORD, replace(RECORD, pidfd_inode=5), table(LEADER)).ownership == "owned"


def test_proved_processes_of_a_dead_leader_are_survivors() -> None:
    rows = table(child(42), child(44, group=44, session=44))
    claim = compare(RECORD, None, rows, proved=frozenset({42, 44}))
    assert claim == Claim(Ownership.SURVIVORS, None, frozenset({42, 44}))


def test_the_group_of_a_dead_leader_proves_nothing() -> None:
    """Its number may have been reused: such processes are named, never signalled."""
    claim = compare(RECORD, None, table(child(42), child(43, group=43)))
    assert claim.ownership is Ownership.GONE
    assert not claim.members
    assert claim.strays == {42, 43}


def test_survivors_and_strays_of_one_leader_are_kept_apart() -> None:
    claim = compare(RECORD, None, table(child(42), child(43)), proved=frozenset({43}))
    assert claim.members == {43}
    assert claim.strays == {42}


def test_the_group_of_a_reused_pid_is_no_stray() -> None:
    now = replace(RECORD, start_ticks=2000)
    rows = table(replace(LEADER, start_ticks=2000), child(42))
    assert compare(RECORD, now, rows) == Claim(Ownership.GONE)


def test_survivors_of_a_leader_whose_pid_was_reused_are_the_proved_ones_alone() -> None:
    now = replace(RECORD, start_ticks=2000)
    rows = table(replace(LEADER, start_ticks=2000), child(42), child(44, group=44, session=44))
    claim = compare(RECORD, now, rows, proved=frozenset({44}))
    assert claim == Claim(Ownership.SURVIVORS, None, frozenset({44}))


PIDS = st.integers(2, 9)
PROCESSES = st.builds(
    Process, PIDS, PIDS, PIDS, PIDS, st.sampled_from("SRDTZX"), st.integers(1, 3), st.just(1)
)
TABLES = st.lists(PROCESSES, unique_by=lambda p: p.pid).map(lambda rows: table(*rows))
IDENTITIES = st.builds(Identity, st.sampled_from(["b1", "b2"]), PIDS, st.integers(1, 3))


@given(IDENTITIES, TABLES, st.frozensets(PIDS))
def test_only_living_processes_with_a_proof_are_members(
    record: Identity, rows: dict[int, Process], proved: frozenset[int]
) -> None:
    row = rows.get(record.pid)
    now = Identity("b1", row.pid, row.start_ticks) if row is not None else None
    claim = compare(record, now, rows, proved=proved)
    assert all(rows[pid].alive for pid in claim.members | claim.strays)
    assert not claim.members & claim.strays
    match claim.ownership:
        case Ownership.OWNED:
            assert row is not None
            assert record == now
            assert row.group == row.pid
            mine = {pid for pid in claim.members if row.pid in (rows[pid].group, rows[pid].session)}
            assert claim.members - mine <= proved
        case Ownership.SURVIVORS:
            assert claim.members
            assert claim.members <= proved
        case Ownership.GONE:
            assert not claim.members
        case Ownership.FOREIGN:
            assert row is not None
            assert row.group != row.pid
        case other:
            pytest.fail(f"a record with an identity is never {other}")
