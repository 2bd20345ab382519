"""Slotted dataclasses that cost little to define, and little to make of all their fields."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import MISSING, FrozenInstanceError, fields
from functools import cache
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

T = TypeVar("T")

if TYPE_CHECKING:
    from dataclasses import dataclass

    __all__ = ["assembler", "copier", "dataclass"]
else:

    def dataclass(*, slots: bool, frozen: bool = False, kw_only: bool = False) -> Any:
        """``dataclasses.dataclass``, but ``__init__`` is compiled when the first instance is made.

        The standard decorator compiles six methods for each class, which takes 0.4 ms. For all
        events, results and steps that was a quarter of the time in which a process starts and runs
        one step, and most processes use few of these classes. Here all classes share the other five
        methods. The functions of ``dataclasses`` treat the class like a standard one.
        """
        assert slots

        def decorate(cls: type) -> type:
            above = [base.__dataclass_params__ for base in cls.__mro__[1:] if _is_one(base)]
            were = [params.frozen for params in above]
            for params in above:
                params.frozen = False  # dataclasses would refuse to derive from a frozen class
            own = set(vars(cls))
            cls.__doc__ = cls.__doc__ or cls.__qualname__  # else it would inspect the signature
            try:
                cls = dataclasses.dataclass(
                    init=False, repr=False, eq=False, slots=True, kw_only=kw_only
                )(cls)
            finally:
                for params, was in zip(above, were, strict=True):
                    params.frozen = was
            params = cls.__dataclass_params__
            params.init = params.repr = params.eq = True
            params.frozen = frozen
            for name, method in (_FROZEN if frozen else _MUTABLE).items():
                if name not in own:
                    setattr(cls, name, method)
            if "__init__" not in own:
                cls.__init__ = _Init(cls, frozen=frozen)
            return cls

        return decorate


def _is_one(cls: type) -> bool:
    return "__dataclass_params__" in vars(cls)


class _Init:
    """A descriptor in place of a class's ``__init__``, which compiles it when it is first read."""

    def __init__(self, cls: Any, *, frozen: bool) -> None:
        self._cls = cls
        self._frozen = frozen

    def __get__(self, instance: object, owner: Any) -> Any:
        init = self._cls.__init__ = _init_of(self._cls, frozen=self._frozen)
        return init if instance is None else init.__get__(instance, owner)


class _Factory:
    """The default of a parameter whose value a factory makes for each instance."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY: Any = _Factory()
GENERATED = "<handrail generated __init__>"
"""The file name of every generated ``__init__``, as tracebacks show it."""


def _init_of(cls: Any, *, frozen: bool) -> Any:
    """The ``__init__`` that the standard library would make for a dataclass of these fields."""
    scope: dict[str, Any] = {"put": object.__setattr__, "FACTORY": _FACTORY}
    plain, by_name, lines = list[str](), list[str](), list[str]()
    annotations: dict[str, Any] = {}
    for field in fields(cls):
        name, value = field.name, field.name
        if field.default_factory is not MISSING:
            scope[f"make_{name}"], scope[f"or_{name}"] = field.default_factory, _FACTORY
            value = f"make_{name}() if {name} is FACTORY else {name}"
        elif field.default is not MISSING:
            scope[f"or_{name}"] = field.default
        if field.init:
            annotations[name] = field.type
            wanted = f"{name}=or_{name}" if f"or_{name}" in scope else name
            (by_name if field.kw_only else plain).append(wanted)
        elif f"or_{name}" in scope:
            value = f"make_{name}()" if f"make_{name}" in scope else f"or_{name}"
        else:
            continue
        lines.append(f" put(self, {name!r}, {value})" if frozen else f" self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append(" self.__post_init__()")
    given = ", ".join(["self", *plain, *(["*", *by_name] if by_name else [])])
    text = "\n".join([f"def __init__({given}):", *(lines or [" pass"])])
    exec(compile(text, GENERATED, "exec"), scope)  # noqa: S102  # of names that are identifiers, as dataclasses do
    init = scope["__init__"]
    init.__qualname__, init.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    init.__annotations__ = {**annotations, "return": None}
    return init


# -- methods that all classes share ----------------------------------------------------------------


@cache
def _values_of(cls: Any) -> Callable[[Any], Any]:
    """A function that returns an instance's class and its compared fields, as one tuple."""
    return attrgetter("__class__", *(field.name for field in fields(cls) if field.compare))


def _eq(self: Any, other: object) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    values = _values_of(self.__class__)  # type: ignore[arg-type]  # a class is hashable
    return values(self) == values(other)


def _hash(self: Any) -> int:
    values = _values_of(self.__class__)
    return hash(values(self))


@recursive_repr()
def _repr(self: Any) -> str:
    names = (field.name for field in fields(self) if field.repr)
    said = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
    return f"{type(self).__qualname__}({said})"


def _refuse_set(self: object, name: str, value: object) -> NoReturn:
    del self, value
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_delete(self: object, name: str) -> NoReturn:
    del self
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for one, value in zip(fields(self), state, strict=False):
        object.__setattr__(self, one.name, value)


_MUTABLE = {"__eq__": _eq, "__hash__": None, "__repr__": _repr}
_FROZEN = {
    **_MUTABLE,
    "__hash__": _hash,
    "__setattr__": _refuse_set,
    "__delattr__": _refuse_delete,
    "__getstate__": _state,
    "__setstate__": _set_state,
}


def assembler(cls: type[T]) -> Callable[..., T]:
    """A function that makes instances of a frozen, slotted dataclass from all fields, by position.

    ``__init__`` of a frozen class calls ``object.__setattr__`` for every field, which is most of
    the time that it takes to read a journal. The assembler assigns the slots of a twin class, which
    allows that, and then turns the twin into an instance of the class: five times as fast for a
    ``StepResult``. It has no defaults and does not call ``__post_init__``: the values must have
    been checked before.

    Raises:
        TypeError: on a call, if the class is not of that sort.
    """
    return cast("Callable[..., T]", _assembler(cast("Any", cls)))


def copier(cls: type[T], *given: str, **fixed: Any) -> Callable[..., T]:
    """A function that copies an instance of such a class, with these values for some fields.

    It takes the instance, then the values of the ``given`` fields.

    As fast as an ``assembler``, and ten times as fast as ``dataclasses.replace``.
    """
    values = {field.name: f"old.{field.name}" for field in fields(cast("Any", cls))}
    values.update((name, repr(value)) for name, value in fixed.items())
    values.update((name, name) for name in given)
    return cast("Callable[..., T]", _make_constructor(", ".join(("old", *given)), values, cls))


@cache  # on first use: it costs about as much as the class itself did
def _assembler(cls: Any) -> Callable[..., Any]:
    # No name of a field is one of the function's own words, ``new`` for example.
    values = {field.name: f"field_{field.name}" for field in fields(cls)}
    return _make_constructor(", ".join(values.values()), values, cls)


def _make_constructor(parameters: str, values: Mapping[str, str], cls: Any) -> Callable[..., Any]:
    """A function of these parameters that makes an instance with these expressions as values."""
    body: dict[str, Any] = {
        "__slots__": cls.__dict__["__slots__"],
        "__setattr__": object.__setattr__,
        "__delattr__": object.__delattr__,
    }
    if "__orig_bases__" in cls.__dict__:
        body["__orig_bases__"] = cls.__dict__["__orig_bases__"]  # a generic class must say so
    twin = type(cls.__name__, cls.__bases__, body)
    lines = [
        f"def assembled({parameters}):",
        "    made = new(twin)",
        *(f"    made.{name} = {value}" for name, value in values.items()),
        "    made.__class__ = cls",
        "    return made",
    ]
    scope: dict[str, Any] = {"new": object.__new__, "twin": twin, "cls": cls}
    exec("\n".join(lines), scope)  # noqa: S102  # of names that are identifiers, as dataclasses do
    assembled: Callable[..., Any] = scope["assembled"]
    return assembled
