"""Values <-> plain JSON values, by the types that their classes declare.

A dataclass becomes an object with the name of each field, so a value that comes back renders as
the one that was sent.  Unknown keys are passed over and missing ones take their defaults: either
side may be a little newer.  What a process is proved by stays where it is: see `HIDDEN`.
"""

from __future__ import annotations

import dataclasses
import enum
import types
from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

HIDDEN = frozenset({"token", "extra"})
"""Fields that are not told: the token of a process, and keys that we don't know."""

_T = TypeVar("_T")


class WireError(ValueError):
    """A plain value is not of the type that is wanted; the message names the place and both."""


def to_plain(value: object) -> Any:  # noqa: ANN401 - any JSON value
    """`value` as what json.dumps takes.  Fields with their default are left out."""
    if isinstance(value, enum.Enum):
        return value.value
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(key): to_plain(each) for key, each in value.items()}
    if dataclasses.is_dataclass(value):
        return {
            each.name: to_plain(getattr(value, each.name))
            for each in dataclasses.fields(value)
            if each.name not in HIDDEN and not _is_default(value, each)
        }
    assert isinstance(value, Collection)  # noqa: S101 - the values of core hold nothing else
    plain = [to_plain(each) for each in value]
    return sorted(plain) if isinstance(value, frozenset) else plain


def from_plain(kind: type[_T], plain: object, where: str = "") -> _T:
    """The value of type `kind` that `plain` stands for; `where` names it.  Raises WireError."""
    value: _T = _read(kind, plain, where or kind.__name__)
    return value


def _is_default(value: object, each: dataclasses.Field[Any]) -> bool:
    found = getattr(value, each.name)
    if each.default_factory is not dataclasses.MISSING:
        return bool(found == each.default_factory())
    return each.default is not dataclasses.MISSING and bool(found == each.default)


def _read(kind: Any, plain: object, where: str) -> Any:  # noqa: ANN401, PLR0911 - a type as typing has it, a case each
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _read_union(get_args(kind), plain, where)
    if origin is tuple:
        return _read_tuple(get_args(kind), plain, where)
    if origin is frozenset:
        (item,) = get_args(kind)
        return frozenset(_read(item, each, where) for each in _list(plain, where))
    if origin is not None:
        _, item = get_args(kind)
        return {key: _read(item, each, f"{where}.{key}") for key, each in _dict(plain, where)}
    if dataclasses.is_dataclass(kind):
        return _read_fields(kind, plain, where)
    if issubclass(kind, enum.Enum):
        return _read_enum(kind, plain, where)
    return _read_scalar(kind, plain, where)


def _read_union(kinds: tuple[Any, ...], plain: object, where: str) -> Any:  # noqa: ANN401
    """The first that fits: of several dataclasses each has a field that the others lack."""
    if plain is None and types.NoneType in kinds:
        return None
    faults: list[str] = []
    for kind in kinds:
        if kind is not types.NoneType:
            try:
                return _read(kind, plain, where)
            except WireError as fault:
                faults.append(str(fault))
    raise WireError("; ".join(faults))


def _read_tuple(items: tuple[Any, ...], plain: object, where: str) -> tuple[Any, ...]:
    found = _list(plain, where)
    if items[-1] is ...:
        return tuple(_read(items[0], each, where) for each in found)
    if len(found) != len(items):
        raise WireError(f"{where} wants {len(items)} values, found {len(found)}")
    return tuple(_read(item, each, where) for item, each in zip(items, found, strict=True))


def _read_fields(kind: Any, plain: object, where: str) -> Any:  # noqa: ANN401 - a dataclass
    given = dict(_dict(plain, where))
    read = {
        name: _read(hint, given[name], f"{where}.{name}")
        for name, hint in _hints(kind).items()
        if name in given and name not in HIDDEN
    }
    missing = sorted(_required(kind) - read.keys())
    if missing:
        raise WireError(f"{where} lacks {missing[0]!r}")
    return kind(**read)


def _read_enum(kind: Callable[[object], Any], plain: object, where: str) -> Any:  # noqa: ANN401
    try:
        return kind(plain)
    except ValueError as error:
        raise WireError(f"{where}: {error}") from error


def _read_scalar(kind: type, plain: object, where: str) -> object:
    if kind is float and type(plain) is int:
        return float(plain)
    if type(plain) is not kind:
        raise WireError(f"{where} wants {kind.__name__}, found {type(plain).__name__}")
    return plain


def _list(plain: object, where: str) -> list[object]:
    if not isinstance(plain, list):
        raise WireError(f"{where} wants a list, found {type(plain).__name__}")
    return plain


def _dict(plain: object, where: str) -> Collection[tuple[str, object]]:
    if not isinstance(plain, dict):
        raise WireError(f"{where} wants an object, found {type(plain).__name__}")
    return plain.items()


@cache
def _hints(kind: type) -> Mapping[str, Any]:
    return get_type_hints(kind)


@cache
def _required(kind: Any) -> frozenset[str]:  # noqa: ANN401 - a dataclass
    return frozenset(
        each.name
        for each in dataclasses.fields(kind)
        if each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING
    )
