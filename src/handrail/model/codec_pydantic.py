"""pydantic models: their state is written and put back, and never validated again."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from handrail.model.codec_builtins import Node
from handrail.model.codec_shapes import Shape
from handrail.model.codec_types import tag_of
from handrail.model.codec_write import Refused, Writing
from handrail.model.schema import is_pydantic

FIELDS_SET, EXTRA, PRIVATE = "$set", "$extra", "$private"
"""What a model knows beside its fields."""

ARGUMENTS = "$args"
"""What a generic model was made for: its class has a name, ``Box[int]``, that no module knows."""


@dataclass(frozen=True, slots=True)
class PydanticShape(Shape):
    """How pydantic models are written: their state, which is not validated again."""

    arguments: tuple[Any, ...] = ()

    def write(self, writing: Writing, value: Any, depth: int) -> Node:
        """The fields, and what makes it differ from a model with just these fields set."""
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
                    raise refused.inside(value, f".{key[1:]}") from refused.__cause__
        return node


def is_model(cls: Any) -> bool:
    """True for pydantic models, other than the class they all derive from."""
    parts = ("__pydantic_fields__", "__pydantic_generic_metadata__")
    return is_pydantic(cls) and all(hasattr(cls, part) for part in parts)


def pydantic_shape(cls: Any) -> Shape:
    """How the model is written and read."""
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
    """As pydantic's own copy does it: no validation, and defaults for what was not recorded."""

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
