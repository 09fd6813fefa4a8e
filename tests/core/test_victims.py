from __future__ import annotations

from lumbridge_compute.core.units import GIB
from lumbridge_compute.core.victims import Candidate, plan_victims

QWEN = Candidate("qwen", 10, 60 * GIB)
WHISPER = Candidate("whisper", 20, 4 * GIB)
KOKORO = Candidate("kokoro", 30, 4 * GIB)
UNKNOWN = Candidate("unknown", 40)
ALL = (UNKNOWN, WHISPER, QWEN, KOKORO)


def test_the_largest_declared_memory_goes_first_and_of_equals_the_latest_start() -> None:
    assert plan_victims(ALL) == ("qwen", "kokoro", "whisper", "unknown")


def test_the_sacrifice_list_goes_before_size() -> None:
    order = plan_victims(ALL, sacrifice=("kokoro", "whisper"))
    assert order == ("kokoro", "whisper", "qwen", "unknown")


def test_in_a_transition_the_newest_of_the_target_goes_first() -> None:
    order = plan_victims(ALL, sacrifice=("qwen",), target=("whisper", "kokoro"))
    assert order == ("kokoro", "whisper", "qwen", "unknown")


def test_only_owned_models_are_named() -> None:
    assert plan_victims((QWEN,), sacrifice=("kokoro", "qwen"), target=("kokoro",)) == ("qwen",)
    assert plan_victims(()) == ()
