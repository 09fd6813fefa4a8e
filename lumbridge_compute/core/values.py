"""`dataclass(frozen=True, slots=True)`, `field` and `replace`, at a third of the cost.

The standard module needs 18 ms of CPU to load, since it loads `inspect`, and 0.7 ms for each class,
since it compiles six functions one by one; `status` of an idle node makes forty classes.  Here one
function a class is compiled, and nothing is loaded.  To the type checker these are the standard
ones; to whoever asks for `__dataclass_fields__` (dataclasses.fields, asdict, is_dataclass) a value
is a standard dataclass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NoReturn

__all__ = ["dataclass", "field", "replace"]

_REQUIRED: Any = ...
"""Stands for no default."""


class _Field:
    """How one field differs from a plain one."""

    __slots__ = ("compare", "default", "default_factory", "repr")

    def __init__(
        self,
        *,
        default: object = _REQUIRED,
        default_factory: Callable[[], object] | None = None,
        repr: bool = True,  # noqa: A002 - the names of the standard function
        compare: bool = True,
    ) -> None:
        self.default = default
        self.default_factory = default_factory
        self.repr = repr
        self.compare = compare


_Fields = Mapping[str, _Field]


def _dataclass(
    _cls: type | None = None, /, *, frozen: bool = False, slots: bool = False
) -> Callable[[type], type]:
    """The decorator for a value: a class without bases, all of whose annotations are fields."""
    if not (frozen and slots):
        raise TypeError("a value is frozen and has slots")
    return _value


def _replace(value: Any, /, **changes: object) -> object:  # noqa: ANN401 - any value
    """A value like `value` but for `changes`."""
    for name in value.__match_args__:
        if name not in changes:
            changes[name] = getattr(value, name)
    return value.__class__(**changes)


def _value(cls: type) -> type:
    if cls.__bases__ != (object,):
        raise TypeError(f"the value {cls.__name__} has a base class")
    fields = {name: _field_of(cls, name) for name in cls.__annotations__}
    content = {
        name: each
        for name, each in cls.__dict__.items()
        if name not in fields and name not in ("__dict__", "__weakref__")
    }
    made = type(cls.__name__, (), content | _methods(cls, fields))
    made.__qualname__ = cls.__qualname__
    return made


def _field_of(cls: type, name: str) -> _Field:
    if "ClassVar" in str(cls.__annotations__[name]):
        raise TypeError(f"{cls.__name__}.{name} is a ClassVar: all annotations are fields here")
    default = cls.__dict__.get(name, _REQUIRED)
    if isinstance(default, _Field):
        return default
    if default.__class__.__hash__ is None:
        raise ValueError(f"the default of {cls.__name__}.{name} can be changed")
    return _Field(default=default)


def _methods(cls: type, fields: _Fields) -> dict[str, object]:
    names = tuple(fields)
    key = _key(fields)
    return {
        "__slots__": names,
        "__match_args__": names,
        "__init__": _compiled_init(cls, fields),
        "__eq__": _equality(key),
        "__hash__": lambda self: hash(key(self)),
        "__repr__": _representation(tuple(name for name in names if fields[name].repr)),
        "__setattr__": _refuse_change,
        "__delattr__": _refuse_change,
        "__getstate__": lambda self: [getattr(self, name) for name in names],
        "__setstate__": _set_state,
        "__dataclass_fields__": _StandardFields(fields),
    }


def _compiled_init(cls: type, fields: _Fields) -> Callable[..., None]:
    """Compiled, so that it is as fast as any and has a signature."""
    known: dict[str, Any] = {"_set": object.__setattr__}
    parameters, lines = ["self"], [" pass"]
    for name, each in fields.items():
        value, parameter = name, name
        if each.default_factory is not None:
            known[f"_make_{name}"] = each.default_factory
            value = f"_make_{name}() if {name} is ... else {name}"
        if each.default is not _REQUIRED or each.default_factory is not None:
            known[f"_default_{name}"] = each.default
            parameter = f"{name}=_default_{name}"
        parameters.append(parameter)
        lines.append(f" _set(self, {name!r}, {value})")
    exec(f"def __init__({', '.join(parameters)}):\n" + "\n".join(lines), known)  # noqa: S102 - names of fields alone
    init: Callable[..., None] = known["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__module__ = cls.__module__
    init.__annotations__ = {**cls.__annotations__, "return": None}
    return init


def _key(fields: _Fields) -> Callable[[object], object]:
    names = [name for name, each in fields.items() if each.compare]
    return attrgetter(*names) if names else lambda _: ()


def _equality(key: Callable[[object], object]) -> Callable[[object, object], object]:
    def equal(self: object, other: object) -> object:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return key(self) == key(other)

    return equal


def _representation(names: tuple[str, ...]) -> Callable[[object], str]:
    def represent(self: object) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{self.__class__.__qualname__}({shown})"

    return represent


def _refuse_change(self: object, name: str, *_: object) -> NoReturn:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot change {name!r} of a {self.__class__.__name__}")


def _set_state(self: Any, state: list[object]) -> None:  # noqa: ANN401 - any value
    for name, value in zip(self.__match_args__, state, strict=True):
        object.__setattr__(self, name, value)


class _StandardFields:
    """Gives the fields in the form of the standard module, which is loaded only then."""

    __slots__ = ("_fields",)

    def __init__(self, fields: _Fields) -> None:
        self._fields = fields

    def __get__(self, _instance: object, owner: Any) -> object:  # noqa: ANN401 - any value
        import dataclasses

        fields = [(n, owner.__annotations__[n], _standard(f)) for n, f in self._fields.items()]
        twin = dataclasses.make_dataclass(owner.__name__, fields)
        owner.__dataclass_fields__ = {each.name: each for each in dataclasses.fields(twin)}
        return owner.__dataclass_fields__


def _standard(each: _Field) -> Any:  # noqa: ANN401 - as dataclasses.field says
    import dataclasses

    given: dict[str, Any] = {"repr": each.repr, "compare": each.compare}
    if each.default_factory is not None:
        given["default_factory"] = each.default_factory
    elif each.default is not _REQUIRED:
        given["default"] = each.default
    return dataclasses.field(**given)


if TYPE_CHECKING:
    from dataclasses import dataclass, field, replace
else:
    dataclass, field, replace = _dataclass, _Field, _replace
