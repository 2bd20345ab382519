"""What a declared type says about the parts of its values."""

from __future__ import annotations

import typing
from typing import Any

from handrail.model.codec_classes import is_data
from handrail.model.codec_pydantic import is_model
from handrail.model.schema import (
    LISTS,
    MAPS,
    SETS,
    hints_of,
    is_list,
    members,
    plain,
    record_fields,
    shape_of,
)


def data_classes(declared: Any) -> list[type]:
    """Every data class in a type: in its arguments, in its fields' types, and so on."""
    found: list[type] = []
    seen: list[Any] = []
    waiting = [declared]
    while waiting:
        type_ = plain(waiting.pop())
        if type_ in seen:
            continue
        seen.append(type_)
        origin, arguments = shape_of(type_)
        waiting.extend(one for one in _flat(arguments) if not _is_value(one))
        if origin not in found and is_data(origin):
            found.append(origin)
            waiting.extend(_hints(origin).values())
            waiting.extend(getattr(origin, "__orig_bases__", ()))
    return found


def _hints(cls: Any) -> dict[str, Any]:
    """The fields' types; pydantic has resolved the names in them, local ones too."""
    if is_model(cls):
        return {name: info.annotation for name, info in cls.__pydantic_fields__.items()}
    return hints_of(cls)


def _flat(arguments: typing.Iterable[Any]) -> list[Any]:
    """Arguments in a row; those of a Callable are a list in the list."""
    flat: list[Any] = []
    for one in arguments:
        flat.extend(one if is_list(one) else [one])
    return flat


def _is_value(argument: Any) -> bool:
    """True for what a Literal lists: it is no type."""
    return argument is ... or isinstance(argument, (str, bytes, int))


def members_of(place: Any) -> list[Any]:
    """The types a value at a place may have, unions taken apart."""
    type_ = plain(place)
    union = members(type_)
    if union is None:
        return [type_]
    return [inner for member in union for inner in members_of(member)]


def one_data_class(place: Any) -> Any:
    """The data class declared at a place (with its arguments) if there is just one, else None."""
    found = [type_ for type_ in members_of(place) if is_data(shape_of(type_)[0])]
    return found[0] if len(found) == 1 else None


def item_place(place: Any, index: int) -> Any:
    """The type declared for an item of a list, set or tuple."""
    for type_ in members_of(place):
        origin, arguments = shape_of(type_)
        if origin is tuple and arguments and arguments[-1] is not ...:
            return arguments[index] if index < len(arguments) else None
        if arguments and (origin in LISTS or origin in SETS or origin is tuple):
            return arguments[0]
    return None


def pair_places(place: Any) -> tuple[Any, Any]:
    """The types declared for the keys and for the values of a mapping."""
    for type_ in members_of(place):
        origin, arguments = shape_of(type_)
        if len(arguments) == 2 and isinstance(origin, type) and issubclass(origin, MAPS):
            return arguments
    return None, None


def field_places(place: Any) -> dict[str, Any]:
    """The types of the fields of a data class, type variables replaced by its arguments."""
    origin = shape_of(place)[0]
    places = dict(_hints(origin))
    for one in record_fields(place) or ():
        places[one.key if one.key in places else one.argument] = one.type
    return places
