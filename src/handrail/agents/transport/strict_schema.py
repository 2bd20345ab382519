"""A JSON schema in the strict form that OpenAI's models enforce, if it has one.

In the strict form every object names all its fields, requires all, and allows no others; many
keywords are unsupported. The strict form demands no less than the schema, except for dropped
keywords (lengths of texts and the like): handrail validates answers against the schema anyway.

Source: OpenAI's structured outputs, supported schemas.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

_KEPT = frozenset(
    {"type", "description", "title", "enum", "const", "pattern", "multipleOf", "minimum"}
    | {"maximum", "exclusiveMinimum", "exclusiveMaximum", "minItems", "maxItems"}
)
_FORMATS = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}
)
_NO_FORM = frozenset(
    {"not", "if", "then", "else", "patternProperties", "prefixItems", "dependentRequired"}
    | {"dependentSchemas", "unevaluatedProperties", "propertyNames", "contains"}
)
_DEFINITIONS = ("$defs", "definitions")
_TYPES: dict[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
}

_DEEP = 60


class _NoForm(Exception):
    """A part of a schema has no strict form."""


def strict_schema(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """The strict form of a schema; None if it has none, or does not describe an object.

    Open objects (``dict[str, int]``), fields of any type and tuples have no strict form. Optional
    fields become required.
    """
    try:
        made = _strict(_root(schema), 0)
        if made.get("type") != "object":
            return None
        return made | _definitions(schema)
    except _NoForm:
        return None


def _root(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema itself, or the definition that it only refers to."""
    reference = schema.get("$ref")
    if reference is None:
        return schema
    for place in _DEFINITIONS:
        definitions = _members(schema, place)
        name = str(reference).removeprefix(f"#/{place}/")
        if name in definitions:
            return _mapping(definitions[name])
    raise _NoForm


def _definitions(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {
        place: {name: _strict(one, 1) for name, one in _members(schema, place).items()}
        for place in _DEFINITIONS
        if place in schema
    }


def _strict(given: Any, depth: int) -> dict[str, Any]:
    schema = _mapping(given)
    if depth > _DEEP or _NO_FORM & schema.keys():
        raise _NoForm
    if "$ref" in schema:
        return {"$ref": schema["$ref"]}  # a reference may have no siblings
    if "allOf" in schema:
        return _only(schema, depth)
    made = {name: value for name, value in schema.items() if name in _KEPT}
    if schema.get("format") in _FORMATS:
        made["format"] = schema["format"]
    members = schema.get("anyOf", schema.get("oneOf"))
    if members is not None:
        return made | {"anyOf": [_strict(one, depth + 1) for one in _listed(members)]}
    return made | _typed(schema, depth)


def _only(schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
    members = _listed(schema["allOf"])
    if len(members) != 1 or {"properties", "anyOf", "oneOf", "items"} & schema.keys():
        raise _NoForm
    return _strict(members[0], depth + 1)


def _typed(schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
    kind: Any = schema.get("type") or _type_of_values(schema)
    kinds: list[Any] = [kind] if isinstance(kind, str) else _listed(kind)
    made: dict[str, Any] = {"type": kind}
    if "object" in kinds:
        made |= _fields(schema, depth)
    if "array" in kinds:
        made["items"] = _strict(schema.get("items"), depth + 1)
    return made


def _fields(schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
    properties = _members(schema, "properties")
    if not properties or schema.get("additionalProperties", False) is not False:
        raise _NoForm
    return {
        "properties": {name: _strict(one, depth + 1) for name, one in properties.items()},
        "required": list(properties),
        "additionalProperties": False,
    }


def _type_of_values(schema: Mapping[str, Any]) -> str | list[str]:
    """The type that follows from the allowed values, for a schema that names no type."""
    values: list[object] = (
        _listed(schema["enum"]) if "enum" in schema else [schema.get("const", _NoForm)]
    )
    names = dict.fromkeys(_TYPES.get(type(value), "") for value in values)
    if not names or "" in names:
        raise _NoForm
    return next(iter(names)) if len(names) == 1 else list(names)


def _listed(value: object) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise _NoForm
    return cast("list[object]", value)


def _members(schema: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return _mapping(schema.get(name, {}))


def _mapping(value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _NoForm
    return cast("Mapping[str, Any]", value)
