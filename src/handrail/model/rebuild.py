"""handrail's own objects from their records, whole even where a value inside cannot be found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, cast

import msgspec

from handrail.codec.codec import Codec
from handrail.codec.unresolved import Unresolved
from handrail.model.results import (
    OpenGate,
    StageResult,
    StepResult,
    Usage,
    ValidationRoundResult,
)

_OWN: Mapping[str, type] = {
    f"handrail:{cls.__name__}": cls
    for cls in (OpenGate, StageResult, StepResult, Usage, ValidationRoundResult)
}

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def rebuilt(text: str, codec: Codec) -> Any:
    """The object of handrail's own, the tuple of them, or the dict by name, that was written.

    A gate whose choices are of a class that is not imported is still a gate: its choices are
    ``Unresolved``, not the gate itself.
    """
    tree = _decode(text)
    if type(tree) is list:
        return tuple(rebuilt(_encode(item).decode(), codec) for item in cast("Iterable[Any]", tree))
    value = codec.load_or_keep(text)
    if not isinstance(value, Unresolved):
        return value
    return _built(tree, codec) if "$" in tree else {n: _built(v, codec) for n, v in tree.items()}


def _built(node: Any, codec: Codec) -> Any:
    tag: str = cast("dict[str, Any]", node).get("$", "") if type(node) is dict else ""
    if tag == "tuple":
        return tuple(_built(item, codec) for item in cast("Iterable[Any]", node["v"]))
    own = _OWN.get(tag)
    if own is None:
        return codec.load_or_keep(_encode(node).decode())
    names = [field.name for field in fields(own) if field.name in node]
    return own(**{name: _built(node[name], codec) for name in names})
