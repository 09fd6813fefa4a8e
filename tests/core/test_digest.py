"""The short name of a definition."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from lumbridge_compute.core.digest import digest, process_digest
from lumbridge_compute.core.registry import (
    DeepProbe,
    HealthCheck,
    Match,
    Model,
    PortOwner,
    StopPolicy,
)

QWEN = Model("qwen", ("serve", "a b"), 8001, "qwen3", env=(("A", "1"),), memory_bytes=5)
CHANGES: dict[str, Any] = {
    "command": ("serve", "a", "b"),
    "port": 8002,
    "marker": "qwen4",
    "host": "::1",
    "cwd": "/srv",
    "env": (("A", "2"),),
}
TREATMENT: dict[str, Any] = {
    "memory_bytes": 6,
    "health": HealthCheck(match=Match.TEXT, probe=DeepProbe("/x")),
    "stop": StopPolicy(grace_s=1.0),
    "port_owner": PortOwner.ANY,
}


@pytest.mark.parametrize("field", [*CHANGES, *TREATMENT])
def test_every_field_counts(field: str) -> None:
    value = {**CHANGES, **TREATMENT}[field]
    assert digest([replace(QWEN, **{field: value})]) != digest([QWEN])


@pytest.mark.parametrize("field", CHANGES)
def test_what_makes_the_process_counts_for_the_process(field: str) -> None:
    changed = replace(QWEN, **{field: CHANGES[field]})
    assert process_digest(changed) != process_digest(QWEN)
    assert not changed.starts_like(QWEN)


@pytest.mark.parametrize("field", TREATMENT)
def test_how_a_process_is_treated_does_not_count_for_the_process(field: str) -> None:
    changed = replace(QWEN, **{field: TREATMENT[field]})
    assert process_digest(changed) == process_digest(QWEN)
    assert changed.starts_like(QWEN)


def test_the_order_of_models_counts() -> None:
    other = replace(QWEN, name="other")
    assert digest([QWEN, other]) != digest([other, QWEN])


def test_texts_that_look_like_structure_are_kept_apart() -> None:
    assert digest([replace(QWEN, command=("a','b",))]) != digest(
        [replace(QWEN, command=("a", "b"))]
    )


def test_it_is_the_same_in_another_process_with_another_hash_seed() -> None:
    program = (
        "from lumbridge_compute.core.digest import digest\n"
        "from lumbridge_compute.core.registry import *\n"
        "print(digest([Model('m', ('c',), 1, 'x', health=HealthCheck(match=Match.TEXT))]))"
    )
    shown = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    here = digest([Model("m", ("c",), 1, "x", health=HealthCheck(match=Match.TEXT))])
    assert shown == {here}


def test_a_field_at_its_default_does_not_count() -> None:
    """So that a later version with one more field finds what this one has measured."""
    assert digest([Model("m", ("c",), 1, "x", host="127.0.0.1")]) == digest(
        [Model("m", ("c",), 1, "x")]
    )
