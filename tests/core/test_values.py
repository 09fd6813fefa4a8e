"""A value behaves like a frozen dataclass with slots."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumbridge_compute.core.values import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Point:
    """A point."""

    x: int
    y: int = 2
    seen: int | None = field(default=None, compare=False)
    secret: str = field(default="", repr=False)
    tags: dict[str, int] = field(default_factory=dict, compare=False)

    @property
    def total(self) -> int:
        return self.x + self.y


@dataclasses.dataclass(frozen=True, slots=True)
class Standard:
    """The same by the standard module."""

    x: int
    y: int = 2
    seen: int | None = dataclasses.field(default=None, compare=False)
    secret: str = dataclasses.field(default="", repr=False)
    tags: dict[str, int] = dataclasses.field(default_factory=dict, compare=False)


ARGUMENTS = st.fixed_dictionaries(
    {"x": st.integers(-2, 2)},
    optional={
        "y": st.integers(-2, 2),
        "seen": st.none() | st.integers(0, 1),
        "secret": st.sampled_from(["", "s"]),
        "tags": st.dictionaries(st.sampled_from("ab"), st.integers(0, 1)),
    },
)


@given(ARGUMENTS, ARGUMENTS)
def test_it_compares_hashes_and_shows_itself_like_the_standard_one(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    a, b, standard_a, standard_b = Point(**one), Point(**other), Standard(**one), Standard(**other)
    assert (a == b) == (standard_a == standard_b)
    assert (hash(a) == hash(b)) == (hash(standard_a) == hash(standard_b))
    assert repr(a) == repr(standard_a).replace("Standard", "Point")
    assert dataclasses.asdict(a) == dataclasses.asdict(standard_a)


@given(ARGUMENTS, ARGUMENTS)
def test_replace_takes_the_changes_and_keeps_the_rest(
    one: dict[str, Any], changes: dict[str, Any]
) -> None:
    value = Point(**one)
    assert repr(replace(value, **changes)) == repr(Point(**{**one, **changes}))
    assert repr(dataclasses.replace(value, **changes)) == repr(replace(value, **changes))


def test_no_attribute_can_be_changed_removed_or_added() -> None:
    point = Point(1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="x"):
        point.x = 3  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del point.x
    with pytest.raises(AttributeError):
        point.z = 3  # type: ignore[attr-defined]
    assert not hasattr(point, "__dict__")


def test_a_default_made_by_a_factory_is_not_shared() -> None:
    assert Point(1).tags is not Point(1).tags


def test_wrong_arguments_are_type_errors_that_name_the_class() -> None:
    make: Any = Point
    for call in (make, lambda: make(1, 2, 3, "", {}, 6), lambda: make(1, z=1)):
        with pytest.raises(TypeError, match=r"Point\.__init__"):
            call()


def test_it_can_be_copied_pickled_and_matched() -> None:
    point = Point(1, 2, 3, "s", {"a": 1})
    for twin in (copy.copy(point), copy.deepcopy(point), pickle.loads(pickle.dumps(point))):
        assert repr(twin) == repr(point)
        assert twin.tags == point.tags
    match point:
        case Point(x, y):
            assert (x, y) == (1, 2)


def test_another_class_with_equal_content_is_not_equal() -> None:
    others: list[object] = [Standard(1), (1, 2, "")]
    assert Point(1) not in others


def test_it_keeps_its_names_text_properties_and_signature() -> None:
    assert Point.__qualname__ == "Point"
    assert Point.__module__ == __name__
    assert Point.__doc__ == "A point."
    assert Point(1).total == 3
    assert [*inspect.signature(Point).parameters] == ["x", "y", "seen", "secret", "tags"]
    assert [each.name for each in dataclasses.fields(Point)] == [
        each.name for each in dataclasses.fields(Standard)
    ]


def test_what_can_not_be_a_value_is_refused_where_it_is_written() -> None:
    with pytest.raises(TypeError, match="base"):

        @dataclass(frozen=True, slots=True)
        class Derived(Point):
            z: int = 0

    with pytest.raises(ValueError, match="can be changed"):

        @dataclass(frozen=True, slots=True)
        class Shared:
            tags: list[int] = []  # noqa: RUF012 - what is refused

    with pytest.raises(TypeError, match="frozen"):

        @dataclass
        class Open:
            x: int

    with pytest.raises(TypeError, match="ClassVar"):

        @dataclass(frozen=True, slots=True)
        class Counted:
            x: ClassVar[int] = 0


def test_to_make_and_use_values_loads_neither_dataclasses_nor_inspect() -> None:
    code = (
        "import sys\n"
        "from lumbridge_compute.core.registry import Address\n"
        "from lumbridge_compute.core.values import replace\n"
        "a = replace(Address('h', 1), port=2)\n"
        "assert (a == Address('h', 2), hash(a), repr(a))[0]\n"
        "print(*sorted({'dataclasses', 'inspect'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
