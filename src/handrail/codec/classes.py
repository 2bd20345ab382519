"""How data classes are written and read: field by field, under the name of their class."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
import types
import typing
from abc import ABCMeta
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from enum import Enum
from typing import Any, NamedTuple, cast

import msgspec

from handrail.codec.builtins import Node
from handrail.codec.class_shapes import EnumShape, Shape
from handrail.codec.state import ABSENT
from handrail.codec.types import OWN_TAGS, SHORT_NAMES, tag_of
from handrail.codec.writing import TAG, Refused, Writing, class_of
from handrail.model.dataclass import GENERATED, dataclass
from handrail.typed.reference import OF_RECORD
from handrail.typed.schema import is_alias, is_pydantic

FIELDS_SET, EXTRA, PRIVATE = "$set", "$extra", "$private"
"""Keys for the state of a pydantic model that is no field."""

ARGUMENTS = "$args"
"""The key for a generic model's type arguments: no module has its class, ``Box[int]``, by name."""


@dataclass(frozen=True, slots=True)
class PydanticShape(Shape):
    """The shape of pydantic models: it writes their state, and reads it without validation."""

    arguments: tuple[Any, ...] = ()

    def write(self, writing: Writing, value: Any, depth: int) -> Node:
        """The fields, and other state in which it differs from a model with just these fields."""
        held = value.__dict__
        fields_set: set[str] = value.__pydantic_fields_set__
        names = [name for name in self.names if name in held]
        node = Shape.write(self, writing, value, depth)
        if self.arguments:
            node[ARGUMENTS] = writing.items(value, self.arguments, depth)
        if fields_set != set(names):
            node[FIELDS_SET] = sorted(fields_set)
        for key in (EXTRA, PRIVATE):
            state: Mapping[str, Any] | None = getattr(value, f"__pydantic_{key[1:]}__", None)
            if state:
                try:
                    node[key] = writing.write(dict(state), depth + 1)
                except Refused as refused:
                    raise refused.add_step(value, f".{key[1:]}") from refused.__cause__
        return node


def is_model(cls: Any) -> bool:
    """True for pydantic models, but not for ``BaseModel`` itself."""
    parts = ("__pydantic_fields__", "__pydantic_generic_metadata__")
    return is_pydantic(cls) and all(hasattr(cls, part) for part in parts)


def pydantic_shape(cls: Any) -> Shape:
    """The shape of a model class."""
    names = tuple(map(str, cls.__pydantic_fields__))
    beside = (FIELDS_SET, EXTRA, PRIVATE)
    generic = cls.__pydantic_generic_metadata__
    named, arguments = generic["origin"] or cls, tuple(generic["args"])
    make = _maker(cls)
    return PydanticShape(
        named, tag_of(named), names, make, proven=False, beside=beside, arguments=arguments
    )


def specialised(shape: Shape, arguments: Iterable[Any]) -> Shape:
    """The shape of a generic model for these arguments."""
    return pydantic_shape(shape.cls[tuple(arguments)])


def _maker(cls: Any) -> Callable[[Node], Any]:
    """Builds a model as pydantic's own copy does: unvalidated, with defaults for missing fields."""

    def make(node: Node) -> Any:
        fields = cls.__pydantic_fields__
        values = {
            name: node[name] if name in node else _default(name, info)
            for name, info in fields.items()
        }
        made = cls.__new__(cls)
        recorded = [name for name in fields if name in node]
        state = {
            "__dict__": values,
            "__pydantic_fields_set__": set(node.get(FIELDS_SET, recorded)),
            "__pydantic_extra__": _extra(cls, node),
            "__pydantic_private__": _private(cls, node),
        }
        for name, part in state.items():
            has_slot = getattr(cls, name, ABSENT) is not None  # a RootModel has none
            if has_slot or part is not None:
                object.__setattr__(made, name, part)
        return made

    return make


def _default(name: str, info: Any) -> Any:
    if info.is_required():
        raise TypeError(f"the field {name!r} is required, and was not recorded")
    return info.get_default(call_default_factory=True)


def _extra(cls: Any, node: Node) -> dict[str, Any] | None:
    allowed = cls.model_config.get("extra") == "allow"
    return cast("dict[str, Any]", node.get(EXTRA, {})) if allowed else None


def _private(cls: Any, node: Node) -> dict[str, Any] | None:
    undefined = getattr(sys.modules["pydantic_core"], "PydanticUndefined", None)
    declared = {name: attr.get_default() for name, attr in cls.__private_attributes__.items()}
    known = {name: item for name, item in declared.items() if item is not undefined}
    known |= cast("dict[str, Any]", node.get(PRIVATE, {}))
    return known if cls.__private_attributes__ else None


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
    """The shape of a data class; None for any other class."""
    if not is_data(cls):
        return None
    if _derives(cls, Enum):
        return EnumShape(
            cls, tag_of(cls), (), _enum_maker(cls), proven=True, beside=("name", "value")
        )
    if _is_named_tuple(cls):
        return _named_tuple_shape(cls)
    if _derives(cls, msgspec.Struct):
        names: tuple[str, ...] = cls.__struct_fields__
        simple = not hasattr(cls, "__post_init__") and _is_ordinary(cls, names)
        return Shape(cls, tag_of(cls), names, _caller(cls), simple)
    if any(map(_has_state_of_its_own, cls.__mro__)):
        return None  # it has items, say, besides its fields
    if dataclasses.is_dataclass(cls):
        return _dataclass_shape(cls)
    if hasattr(cls, "__attrs_attrs__"):
        return _attrs_shape(cls)
    return pydantic_shape(cls)


_IMMUTABLE = 1 << 8
"""The flag of the classes that are written in C: ``Py_TPFLAGS_IMMUTABLETYPE``."""


def _has_state_of_its_own(base: Any) -> bool:
    """True for a class in C, such as ``list`` or ``deque``: no attribute shows what is in it."""
    in_c = bool(base.__flags__ & _IMMUTABLE)
    return in_c and base is not object and not issubclass(base, BaseException)


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
    named = tuple(f.name for f in fields if f.metadata != OF_RECORD)
    return replace(_constructed(cls, names, arguments, plain=plain), named=named)


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
    """A shape that calls the constructor if that takes just the fields, else sets each field."""
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
    """True if the constructor was generated from the fields and needs no other argument."""
    if not _is_generated(cls.__init__) and not hasattr(cls, "__pydantic_validator__"):
        return False
    try:
        parameters = inspect.signature(cls).parameters
    except (TypeError, ValueError):
        return False
    needed = {name for name, p in parameters.items() if p.default is p.empty}
    return needed <= arguments <= set(parameters)


def _is_generated(function: Any) -> bool:
    """True if dataclasses, attrs or handrail generated this function, and no person wrote it."""
    code = getattr(function, "__code__", None)
    if not isinstance(code, types.CodeType):
        return False
    in_generated_file = code.co_filename.startswith(("<attrs generated ", GENERATED))
    return in_generated_file or code.co_qualname.startswith("__create_fn__.")


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
    """True if the class runs no code of its own when its fields are read or set."""
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


_UNION_TYPE = "types:UnionType"
_LIMITS = (
    "gt", "ge", "lt", "le", "multiple_of", "pattern", "min_length", "max_length", "tz", "title",
    "description", "examples", "extra_json_schema", "extra",
)  # fmt: skip


def is_annotation(kind: type) -> bool:
    """True if the values of a class are types themselves."""
    if issubclass(kind, (type, types.GenericAlias)) or kind is types.UnionType:
        return True
    return kind.__module__ == "typing"  # the classes of special forms, aliases and NewTypes


def write_annotation(writing: Writing, value: Any, depth: int) -> Node:
    """A type by its name, a generic type with its arguments."""
    arguments = typing.get_args(value)
    if isinstance(value, types.UnionType):
        return _with_arguments(_UNION_TYPE, writing, value, arguments, depth)
    if typing.get_origin(value) is typing.Union:
        return _with_arguments("typing:Union", writing, value, arguments, depth)
    if is_model(value) and value.__pydantic_generic_metadata__["origin"] is not None:
        generic = value.__pydantic_generic_metadata__
        named = _named(writing, generic["origin"])
        return _with_arguments(named, writing, value, generic["args"], depth)
    if hasattr(value, "__metadata__"):
        return _with_arguments("typing:Annotated", writing, value, arguments, depth)
    if arguments or isinstance(value, types.GenericAlias):
        name = getattr(value, "_name", None)
        special = isinstance(name, str) and value.__module__ == "typing" and name in vars(typing)
        origin = f"typing:{name}" if special else _named(writing, typing.get_origin(value))
        return _with_arguments(origin, writing, value, arguments, depth)
    return {TAG: "type", "v": _named(writing, value)}


def _with_arguments(
    name: str, writing: Writing, value: Any, arguments: tuple[Any, ...], depth: int
) -> Node:
    written = [_argument(writing, value, argument, depth) for argument in arguments]
    return {TAG: "type", "v": name, "args": written}


def _argument(writing: Writing, value: Any, one: Any, depth: int) -> Any:
    if one is ...:
        return {TAG: "type", "v": "..."}
    try:
        return writing.write(one, depth + 1)
    except Refused as refused:
        raise refused.add_step(value, ".__args__") from refused.__cause__


def _named(writing: Writing, value: Any) -> str:
    writing.proven = False  # a trial reading must show that the name leads back to the type
    short = SHORT_NAMES.get(value) if isinstance(value, type) else None
    if short is not None:
        return short
    if isinstance(value, type) and value.__module__ == "builtins":
        return value.__qualname__
    if is_alias(value):
        return f"{value.__module__}:{value.__name__}"
    name = getattr(value, "_name", None)
    if isinstance(name, str) and getattr(value, "__module__", None) == "typing":
        return f"typing:{name}"
    if not hasattr(value, "__qualname__"):
        raise Refused(f"the type {value!r} has no name to be found by")
    tag = tag_of(value)
    if isinstance(value, type):
        writing.met(tag, value)
    return tag


def read_annotation(origin: Any, name: str, node: Node) -> Any:
    """The type ``origin``, with the type arguments that the object has."""
    if "args" not in node:
        return origin
    arguments = tuple(cast("list[Any]", node["args"]))
    if name == _UNION_TYPE:
        return functools.reduce(lambda one, other: one | other, arguments)
    if origin is type:
        return type[arguments[0]]
    return origin[arguments[0] if len(arguments) == 1 else arguments]


def write_limits(writing: Writing, value: msgspec.Meta, depth: int) -> Node:
    """A ``msgspec.Meta`` as the limits that it sets."""
    node: Node = {TAG: "meta"}
    for name in _LIMITS:
        limit = getattr(value, name)
        if limit is not None:
            node[name] = writing.write(limit, depth + 1)
    return node


def read_limits(node: Node) -> Any:
    """The ``msgspec.Meta`` that an object stands for."""
    return msgspec.Meta(**node)
