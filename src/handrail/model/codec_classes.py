"""How data classes are written and read: field by field, under the name of their class."""

from __future__ import annotations

import dataclasses
import inspect
import types
from abc import ABCMeta
from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple, cast

import msgspec

from handrail.model.codec_builtins import Node
from handrail.model.codec_pydantic import is_model, pydantic_shape
from handrail.model.codec_shapes import EnumShape, Shape
from handrail.model.codec_types import OWN_TAGS, tag_of
from handrail.model.codec_write import class_of


def is_data(cls: Any) -> bool:
    """True for dataclasses, attrs classes, Structs, NamedTuples, Enums and pydantic models."""
    if not isinstance(cls, type):
        return False
    return (
        dataclasses.is_dataclass(cls)
        or hasattr(cast("Any", cls), "__attrs_attrs__")
        or issubclass(cls, (msgspec.Struct, Enum))
        or _is_named_tuple(cls)
        or is_model(cls)
    )


def _is_named_tuple(cls: Any) -> bool:
    return issubclass(cls, tuple) and hasattr(cast("Any", cls), "_field_defaults")


def shape_of_class(cls: Any) -> Shape | None:
    """How the data class is written and read, or None if it is none."""
    if not is_data(cls):
        return None
    if _derives(cls, Enum):
        return EnumShape(
            cls, tag_of(cls), (), _enum_maker(cls), proven=True, beside=("name", "value")
        )
    if _is_named_tuple(cls):
        return _named_tuple_shape(cls)
    if _derives(cls, *_CONTAINERS):
        return None  # beside its fields it has items
    if _derives(cls, msgspec.Struct):
        names: tuple[str, ...] = cls.__struct_fields__
        simple = not hasattr(cls, "__post_init__") and _is_ordinary(cls, names)
        return Shape(cls, tag_of(cls), names, _caller(cls), simple)
    if dataclasses.is_dataclass(cls):
        return _dataclass_shape(cls)
    if hasattr(cls, "__attrs_attrs__"):
        return _attrs_shape(cls)
    return pydantic_shape(cls)


_CONTAINERS = (list, dict, set, frozenset, tuple, str, bytes, bytearray, int, float, complex)


def _derives(cls: Any, *bases: Any) -> bool:
    return issubclass(cls, bases)


def _caller(cls: Any) -> Callable[[Node], Any]:
    return lambda node: cls(**node)


def _enum_maker(cls: type[Enum]) -> Callable[[Node], Any]:
    def make(node: Node) -> Any:
        return cls[node["name"]] if "name" in node else cls(node["value"])

    return make


_new_tuple: Callable[[Any, list[Any]], Any] = cast("Any", tuple).__new__


def _named_tuple_shape(cls: Any) -> Shape:
    defaults: dict[str, Any] = cls._field_defaults

    def make(node: Node) -> Any:
        return _new_tuple(cls, [node[n] if n in node else defaults[n] for n in cls._fields])

    names: tuple[str, ...] = cls._fields
    simple = all(type(inspect.getattr_static(cls, name)) is _ITEM_GETTER for name in names)
    return Shape(cls, tag_of(cls), names, make, simple)


class _Pair(NamedTuple):
    first: int


_ITEM_GETTER = class_of(inspect.getattr_static(_Pair, "first"))


def _dataclass_shape(cls: Any) -> Shape:
    fields = dataclasses.fields(cls)
    names = tuple(f.name for f in fields)
    arguments = {f.name: f.name for f in fields if f.init}
    plain = not any(hasattr(cls, hook) for hook in ("__post_init__", "__pydantic_validator__"))
    return _constructed(cls, names, arguments, plain=plain)


def _attrs_shape(cls: Any) -> Shape:
    attributes = cls.__attrs_attrs__
    names = tuple(str(a.name) for a in attributes)
    arguments = {str(a.name): str(a.alias) for a in attributes if a.init}
    hooks = ("__attrs_pre_init__", "__attrs_post_init__")
    plain = not any(a.converter or a.validator for a in attributes)
    plain = plain and not any(hasattr(cls, hook) for hook in hooks)
    return _constructed(cls, names, arguments, plain=plain)


def _constructed(
    cls: Any, names: tuple[str, ...], arguments: dict[str, str], *, plain: bool
) -> Shape:
    """Through the constructor, if it takes the fields and no more; else set field by field."""
    late = [name for name in names if name not in arguments]
    if not _takes(cls, set(arguments.values())):
        make, late = _setter(cls), list(names)
    elif not late and all(name == argument for name, argument in arguments.items()):
        make = _caller(cls)
    else:
        make = _caller_and_setter(cls, arguments)
    proven = cls in OWN_TAGS or (plain and not late and _is_ordinary(cls, names))
    return Shape(cls, tag_of(cls), names, make, proven)


def _takes(cls: Any, arguments: set[str]) -> bool:
    """True if the constructor was made from the fields and needs nothing else."""
    if not _is_generated(cls.__init__) and not hasattr(cls, "__pydantic_validator__"):
        return False
    try:
        parameters = inspect.signature(cls).parameters
    except (TypeError, ValueError):
        return False
    needed = {name for name, p in parameters.items() if p.default is p.empty}
    return needed <= arguments <= set(parameters)


def _is_generated(function: Any) -> bool:
    """True if dataclasses or attrs wrote this, and not a person."""
    code = getattr(function, "__code__", None)
    if not isinstance(code, types.CodeType):
        return False
    by_attrs = code.co_filename.startswith("<attrs generated ")
    return by_attrs or code.co_qualname.startswith("__create_fn__.")


def _caller_and_setter(cls: Any, arguments: dict[str, str]) -> Callable[[Node], Any]:
    def make(node: Node) -> Any:
        made = cls(**{arguments[name]: item for name, item in node.items() if name in arguments})
        for name, item in node.items():
            if name not in arguments:
                object.__setattr__(made, name, item)
        return made

    return make


def _setter(cls: Any) -> Callable[[Node], Any]:
    def make(node: Node) -> Any:
        made = cls.__new__(cls)
        for name, item in node.items():
            object.__setattr__(made, name, item)
        return made

    return make


def _is_ordinary(cls: Any, names: tuple[str, ...]) -> bool:
    """True if nothing comes between an instance and what is stored in its fields."""
    if type(cls) not in _ORDINARY_METACLASSES:
        return False
    if cls.__new__ not in {object.__new__, msgspec.Struct.__new__}:
        return False
    if cls.__getattribute__ is not object.__getattribute__ or hasattr(cls, "__getattr__"):
        return False
    return not any(_is_computed(inspect.getattr_static(cls, name, None)) for name in names)


_ORDINARY_METACLASSES = frozenset({type, ABCMeta, type(msgspec.Struct)})


def _is_computed(attribute: Any) -> bool:
    if isinstance(attribute, types.MemberDescriptorType):
        return False
    return hasattr(class_of(attribute), "__set__")
