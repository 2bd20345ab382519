"""Describes types: their parts, their JSON schema, their names for people.

Other modules take annotations apart with ``plain``, ``members`` and ``record_fields``. These never
raise: a name that cannot be resolved (imported under ``TYPE_CHECKING``, say) is ``Any``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import sys
import types
import typing
from collections import abc, deque
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePath
from typing import Any, TypeAlias, TypeGuard, Union, cast

import msgspec

from handrail.errors import DefinitionError
from handrail.typed.jsonsafe import Json, json_safe

Schema: TypeAlias = dict[str, Any]

_WRAPPERS: tuple[Any, ...] = (typing.Required, typing.NotRequired, typing.Final, typing.ClassVar)
_UNKNOWN: tuple[Any, ...] = (
    Any,
    object,
    inspect.Parameter.empty,
    typing.Final,
    typing.ClassVar,
    cast("Any", typing).Self,
)

LISTS: tuple[type, ...] = (
    list, deque, abc.Sequence, abc.MutableSequence, abc.Collection, abc.Iterable,
)  # fmt: skip
SETS: tuple[type, ...] = (set, frozenset, abc.Set, abc.MutableSet)
MAPS: tuple[type, ...] = (dict, abc.Mapping, abc.MutableMapping)


@dataclass(frozen=True, slots=True)
class RecordField:
    """One field of a record: its JSON key, the argument that sets it, its type."""

    key: str
    argument: str
    type: Any
    required: bool


def plain(type_: Any) -> Any:
    """``type_`` without its wrappers: Annotated, NewType, aliases, Final, type variables.

    A missing or unresolved annotation is ``Any``, ``None`` is ``NoneType``.
    """
    if type(type_) is type and type_ not in (object, inspect.Parameter.empty):
        return type_  # most are such classes
    while True:
        inner = _unwrapped(type_)
        if inner is type_:
            return type_
        type_ = inner


def _unwrapped(type_: Any) -> Any:
    if type_ is None:
        return type(None)
    if isinstance(type_, (str, typing.ForwardRef)):
        return Any
    if any(type_ is unknown for unknown in _UNKNOWN):
        return Any
    if type_ is typing.LiteralString:
        return str
    if isinstance(type_, typing.NewType):
        return type_.__supertype__
    if isinstance(type_, typing.TypeVar):
        return type_.__bound__ or _union_of(type_.__constraints__)
    if isinstance(type_, dataclasses.InitVar):
        return cast("Any", type_).type
    if hasattr(type_, "__metadata__") or typing.get_origin(type_) in _WRAPPERS:
        return typing.get_args(type_)[0]
    if is_alias(type_):
        return type_.__value__
    return type_


def is_alias(type_: Any) -> bool:
    """True for the alias that a ``type`` statement defines; it may refer to itself."""
    return type(type_).__name__ == "TypeAliasType"  # typing has the class since Python 3.12


def shape_of(type_: Any) -> tuple[Any, tuple[Any, ...]]:
    """The origin and the arguments of a type: ``list[int]`` is ``(list, (int,))``."""
    origin: Any = typing.get_origin(type_)
    return origin or type_, typing.get_args(type_)


def is_list(value: object) -> TypeGuard[list[Any]]:
    """``isinstance`` for JSON arrays, whose items may be anything."""
    return isinstance(value, list)


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    """``isinstance`` for JSON objects, whose items may be anything."""
    return isinstance(value, dict)


def _union_of(types_: tuple[Any, ...]) -> Any:
    return cast("Any", Union)[types_] if types_ else Any


def members(type_: Any) -> tuple[Any, ...] | None:
    """The members of a union, in order, or None if it is no union."""
    if typing.get_origin(type_) in {typing.Union, types.UnionType}:
        return typing.get_args(type_)
    return None


def is_pydantic(type_: Any) -> bool:
    """True for pydantic models and dataclasses; never imports pydantic to find out."""
    if "pydantic" not in sys.modules:
        return False
    return isinstance(type_, type) and hasattr(type_, "__pydantic_validator__")


def pydantic_adapter(type_: Any) -> Any:
    """The ``pydantic.TypeAdapter`` of a class for which ``is_pydantic`` is true."""
    return cast("Any", sys.modules["pydantic"]).TypeAdapter(type_)


def record_fields(type_: Any) -> tuple[RecordField, ...] | None:
    """The fields of a dataclass, attrs class, Struct, NamedTuple or TypedDict, else None."""
    cls = typing.get_origin(type_) or type_
    if not isinstance(cls, type):
        return None
    found = fields_of(cls)
    if found is None:
        return None
    hints = hints_of(cls)
    bound = dict(zip(getattr(cls, "__parameters__", ()), typing.get_args(type_), strict=False))
    return tuple(
        RecordField(key, argument, _bound(hints.get(name, Any), bound), _required(hints, name, by))
        for key, argument, name, by in found
    )


def _required(hints: dict[str, Any], name: str, by_default: bool) -> bool:  # noqa: FBT001  # private
    """Whether a field is required; a TypedDict itself ignores an annotation that is a string."""
    says = typing.get_origin(hints.get(name))
    if says is typing.NotRequired:
        return False
    return says is typing.Required or by_default


_Parts: TypeAlias = tuple[str, str, str, bool]
"""JSON key, argument, attribute, required."""


def fields_of(cls: Any) -> list[_Parts] | None:
    """The fields of such a class without their types, which take long to find, else None."""
    if typing.is_typeddict(cls):
        return [(k, k, k, k in cls.__required_keys__) for k in cls.__annotations__]
    if issubclass(cls, msgspec.Struct):
        return [(f.encode_name, f.name, f.name, f.required) for f in msgspec.structs.fields(cls)]
    if dataclasses.is_dataclass(cls):
        return _dataclass_fields(cls)
    if hasattr(cls, "__attrs_attrs__"):
        import attrs

        return [
            (a.name, a.alias, a.name, a.default is attrs.NOTHING)
            for a in cls.__attrs_attrs__
            if a.init
        ]
    if hasattr(cls, "_field_defaults"):  # a NamedTuple
        return [(name, name, name, name not in cls._field_defaults) for name in cls._fields]
    return None


def _dataclass_fields(cls: Any) -> list[_Parts]:
    found = [
        (f.name, f.name, f.name, f.default is f.default_factory is dataclasses.MISSING)
        for f in dataclasses.fields(cls)
        if f.init
    ]
    arguments = inspect.signature(cls).parameters.values()
    listed = {name for name, *_ in found}
    extra = [p for p in arguments if p.name not in listed and p.kind is p.POSITIONAL_OR_KEYWORD]
    return [*found, *((p.name, p.name, p.name, p.default is p.empty) for p in extra)]


def hints_of(owner: Any, unknown: dict[str, Any] | None = None) -> dict[str, Any]:
    """The resolved annotations of a class or function; those that cannot be resolved are ``Any``,
    and are added to ``unknown``, as they were written.

    Unlike with ``typing.get_type_hints``, one unknown name does not spoil the others.
    """
    try:
        return typing.get_type_hints(owner, include_extras=True)
    except Exception:  # noqa: BLE001  # a name under TYPE_CHECKING, or any code in an annotation
        return _hints_one_by_one(owner, {} if unknown is None else unknown)


def _hints_one_by_one(owner: Any, unknown: dict[str, Any]) -> dict[str, Any]:
    hints: dict[str, Any] = {}
    for part in reversed(owner.__mro__ if isinstance(owner, type) else (owner,)):
        scope = vars(sys.modules[part.__module__]) if part.__module__ in sys.modules else {}
        scope = {**scope, **_enclosed(part)}
        for name, annotation in inspect.get_annotations(part).items():
            one = types.SimpleNamespace(__annotations__={name: annotation})
            try:
                hints.update(typing.get_type_hints(one, scope, include_extras=True))
            except Exception:  # noqa: BLE001  # as above
                hints[name], unknown[name] = Any, annotation
    return hints


def unresolved_field(type_: Any, _seen: set[Any] | None = None) -> str | None:
    """The first field in a type with an unknown name in its annotation, as ``Out.price: Money``.

    None if there is none. Any value would fit such a field.
    """
    seen = set[Any]() if _seen is None else _seen
    for inside in typing.get_args(type_):
        if (found := unresolved_field(inside, seen)) is not None:
            return found
    cls = typing.get_origin(type_) or type_
    if not isinstance(cls, type) or cls in seen or fields_of(cls) is None:
        return None
    seen.add(cls)
    hints, written = hints_of(cls), _written(cls)
    for _, _, name, _ in fields_of(cls) or ():
        hint, text = hints.get(name, Any), written.get(name)
        if hint is Any and isinstance(text, str) and text.rpartition(".")[2] != "Any":
            return f"{cls.__name__}.{name}: {text}"
        if (found := unresolved_field(hint, seen)) is not None:
            return found
    return None


def _written(cls: type) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part in reversed(cls.__mro__):
        found.update(inspect.get_annotations(part))
    return found


def _enclosed(owner: Any) -> dict[str, Any]:
    """The variables of enclosing functions that a function uses, such as a local class."""
    names: tuple[str, ...] = getattr(getattr(owner, "__code__", None), "co_freevars", ())
    found: dict[str, Any] = {}
    for name, cell in zip(names, getattr(owner, "__closure__", None) or (), strict=False):
        with contextlib.suppress(ValueError):  # it has no value yet
            found[name] = cell.cell_contents
    return found


def _bound(hint: Any, bound: dict[Any, Any]) -> Any:
    """``hint`` with the type variables of a generic class replaced by its arguments."""
    if isinstance(hint, typing.TypeVar):
        return bound.get(hint, hint)
    parameters = getattr(hint, "__parameters__", ())
    if not bound or not parameters or isinstance(hint, type):
        return hint
    return hint[tuple(bound.get(parameter, Any) for parameter in parameters)]


def describe_type(type_: Any, *, fields: bool = True) -> str:
    """A short text for people: ``list[int]``, ``Report(title: str, ok: bool = ...)``, ``1 | 2``.

    Without ``fields`` the text for a record is its name.
    """
    return _described(type_, whole=fields)


def _described(type_: Any, *, whole: bool = False) -> str:
    if is_alias(type_) and not whole:
        return str(type_.__name__)  # it may be recursive
    type_ = plain(type_)
    if type_ is Any:
        return "Any"
    if type_ is type(None):
        return "None"
    union = members(type_)
    if union is not None:
        return " | ".join(_described(member) for member in union)
    if typing.get_origin(type_) is typing.Literal:
        return " | ".join(repr(value) for value in typing.get_args(type_))
    if isinstance(type_, type) and issubclass(type_, Enum):
        return f"{type_.__name__}({' | '.join(repr(m.value) for m in type_)})"
    name = _generic_name(type_)
    found = record_fields(type_) if whole else None
    return name if found is None else f"{name}({', '.join(map(_field_text, found))})"


def _generic_name(type_: Any) -> str:
    origin = typing.get_origin(type_)
    if origin is None:
        name = getattr(type_, "__name__", None)
        return name if isinstance(name, str) else str(type_).removeprefix("typing.")
    arguments = typing.get_args(type_)
    inside = ", ".join(map(_argument_text, arguments))
    return f"{_generic_name(origin)}[{inside}]" if arguments else _generic_name(origin)


def _argument_text(argument: Any) -> str:
    if argument is ...:
        return "..."
    if is_list(argument):
        return f"[{', '.join(map(_argument_text, argument))}]"
    return _described(argument)


def _field_text(field: RecordField) -> str:
    text = f"{field.key}: {_described(field.type)}"
    return text if field.required else f"{text} = ..."


def json_schema(type_: Any) -> Schema:
    """The JSON schema (2020-12) of the values that ``convert.fit`` takes for ``type_``.

    A record is the root itself, not behind a ``$ref``; named parts are in the root's ``$defs``.

    Raises:
        DefinitionError: the type has no JSON form (a callable, a class that is no data).
    """
    return _at_root(hoisted(_schema(type_, ())))


def open_schema(type_: Any) -> Schema:
    """As ``json_schema``; an empty one, which allows any JSON, if the type has no JSON form."""
    try:
        return json_schema(type_)
    except DefinitionError:
        return {}


def _schema(type_: Any, above: tuple[Any, ...]) -> Schema:
    bare = plain(type_)
    if bare is Any or (is_alias(type_) and type_ in above):  # of a recursive alias: one level
        return {}
    above = (*above, type_) if is_alias(type_) else above
    if is_pydantic(bare):
        return _custom_schema(bare)
    try:
        return msgspec.json.schema(type_, schema_hook=_custom_schema)
    except DefinitionError:
        raise
    except Exception:  # noqa: BLE001  # a type msgspec refuses, or a name it cannot resolve
        return _built_schema(bare, above)


def _custom_schema(type_: Any) -> Schema:
    """The schema of a class that msgspec does not know; this is msgspec's ``schema_hook``."""
    if is_pydantic(type_):
        return cast("Schema", pydantic_adapter(type_).json_schema())
    if isinstance(type_, type) and issubclass(type_, PurePath):
        return {"type": "string", "format": "path"}
    for base, name in ((str, "string"), (int, "integer"), (float, "number")):
        if isinstance(type_, type) and issubclass(type_, base):
            return {"type": name}
    if type_ in {*LISTS, *SETS, *MAPS}:
        raise TypeError("msgspec has left out what stands in the brackets")  # _schema catches it
    raise DefinitionError(
        f"{_described(type_)} has no JSON form, so a value of it cannot be read from text. "
        f"Use builtins, a dataclass, an attrs class, a Struct, a TypedDict or a pydantic model."
    )


def _built_schema(type_: Any, above: tuple[Any, ...]) -> Schema:
    """The schema of a type that msgspec refuses (a mixed union, mostly), built part by part."""
    union = members(type_)
    if union is not None:
        return {"anyOf": [_schema(member, above) for member in union]}
    if typing.get_origin(type_) is typing.Literal:
        return {"enum": [json_safe(value) for value in typing.get_args(type_)]}
    if isinstance(type_, type) and issubclass(type_, Enum):
        return {"title": type_.__name__, "enum": [json_safe(member.value) for member in type_]}
    origin, arguments = shape_of(type_)
    if origin in LISTS:
        return {"type": "array", "items": _schema(arguments[0] if arguments else Any, above)}
    if origin in SETS:
        items = _schema(arguments[0] if arguments else Any, above)
        return {"type": "array", "items": items, "uniqueItems": True}
    if origin in MAPS:
        return {
            "type": "object",
            "additionalProperties": _schema(arguments[1] if arguments else Any, above),
        }
    if origin is tuple:
        return _tuple_schema(arguments, above)
    found = record_fields(type_)
    return _custom_schema(type_) if found is None else _record_schema(type_, found, above)


def _tuple_schema(arguments: tuple[Any, ...], above: tuple[Any, ...]) -> Schema:
    if not arguments or arguments[-1] is ...:
        return {"type": "array", "items": _schema(arguments[0] if arguments else Any, above)}
    size = len(arguments)
    items = [_schema(argument, above) for argument in arguments]
    return {"type": "array", "prefixItems": items, "minItems": size, "maxItems": size}


def _record_schema(type_: Any, found: tuple[RecordField, ...], above: tuple[Any, ...]) -> Schema:
    if type_ in above:  # a record inside itself: one level, and below it any object
        return {"type": "object"}
    return {
        "title": _generic_name(type_),
        "type": "object",
        "properties": {f.key: _schema(f.type, (*above, type_)) for f in found},
        "required": [f.key for f in found if f.required],
    }


def hoisted(schema: Schema) -> Schema:
    """``schema`` with every nested ``$defs`` moved to the root, where its references point."""
    taken: dict[str, Json] = {}
    lifted: Schema = {}
    root = _lifted(schema, taken, lifted)
    return {**root, "$defs": lifted} if lifted else cast("Schema", root)


def _lifted(node: Any, taken: dict[str, Any], lifted: Schema) -> Any:
    if is_list(node):
        return [_lifted(item, taken, lifted) for item in node]
    if not is_object(node):
        return node
    own: Schema = node.get("$defs", {})
    names = {name: _free_name(name, schema, taken) for name, schema in own.items()}
    for name, schema in own.items():
        if names[name] not in taken:
            taken[names[name]] = schema
            lifted[names[name]] = _lifted(_renamed(schema, names), taken, lifted)
    rest = {key: item for key, item in node.items() if key != "$defs"}
    renamed = cast("Schema", _renamed(rest, names))
    return {key: _lifted(item, taken, lifted) for key, item in renamed.items()}


def _free_name(name: str, schema: Any, taken: dict[str, Any]) -> str:
    free, number = name, 2
    while free in taken and taken[free] != schema:
        free, number = f"{name}_{number}", number + 1
    return free


def _renamed(node: Any, names: dict[str, str]) -> Any:
    """``node`` with its references renamed, down to parts that have ``$defs`` of their own."""
    if is_list(node):
        return [_renamed(item, names) for item in node]
    if not is_object(node) or "$defs" in node:
        return node
    return {
        key: f"#/$defs/{names.get(_target(item), _target(item))}"
        if key == "$ref"
        else _renamed(item, names)
        for key, item in node.items()
    }


def _target(reference: Any) -> str:
    return str(reference).removeprefix("#/$defs/")


def _at_root(schema: Schema) -> Schema:
    """``schema`` with the record that its root refers to as the root itself."""
    if set(schema) != {"$ref", "$defs"}:
        return schema
    name, defs = _target(schema["$ref"]), dict(schema["$defs"])
    body = dict(defs[name])
    if not _refers(list(defs.values()), name):
        del defs[name]
    return {**body, "$defs": defs} if defs else body


def _refers(node: Any, name: str) -> bool:
    if is_list(node):
        return any(_refers(item, name) for item in node)
    if not is_object(node):
        return False
    pairs = node.items()
    return any(_target(v) == name if k == "$ref" else _refers(v, name) for k, v in pairs)
