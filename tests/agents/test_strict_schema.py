"""The form of a schema that OpenAI's models are held to."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.agents.transport.strict_schema import strict_schema

PERSON = {
    "type": "object",
    "title": "Person",
    "properties": {
        "name": {"type": "string", "minLength": 1, "format": "uuid"},
        "age": {"type": "integer", "default": 3, "minimum": 0},
        "link": {"type": "string", "format": "uri"},
    },
    "required": ["name"],
}


def test_every_field_is_required_and_no_other_allowed() -> None:
    """Optional fields become required, defaults and unknown keywords go."""
    assert strict_schema(PERSON) == {
        "type": "object",
        "title": "Person",
        "properties": {
            "name": {"type": "string", "format": "uuid"},
            "age": {"type": "integer", "minimum": 0},
            "link": {"type": "string"},
        },
        "required": ["name", "age", "link"],
        "additionalProperties": False,
    }


def test_parts_are_made_strict_too() -> None:
    """Objects in lists, alternatives and definitions are strict as well."""
    inner = {"type": "object", "properties": {"x": {"const": 1}}}
    strict_inner = {
        "type": "object",
        "properties": {"x": {"const": 1, "type": "integer"}},
        "required": ["x"],
        "additionalProperties": False,
    }
    made = strict_schema(
        {
            "type": "object",
            "properties": {
                "list": {"type": "array", "items": inner, "minItems": 1},
                "maybe": {"oneOf": [inner, {"type": "null"}]},
                "there": {"$ref": "#/$defs/Inner", "description": "gone: nothing stands beside"},
                "wrapped": {"allOf": [{"$ref": "#/$defs/Inner"}], "default": {}},
                "kind": {"enum": ["a", "b", None]},
            },
            "$defs": {"Inner": inner},
        }
    )
    assert made is not None
    assert made["$defs"] == {"Inner": strict_inner}
    assert made["properties"] == {
        "list": {"type": "array", "items": strict_inner, "minItems": 1},
        "maybe": {"anyOf": [strict_inner, {"type": "null"}]},
        "there": {"$ref": "#/$defs/Inner"},
        "wrapped": {"$ref": "#/$defs/Inner"},
        "kind": {"enum": ["a", "b", None], "type": ["string", "null"]},
    }


def test_a_schema_that_is_a_reference_is_what_it_refers_to() -> None:
    """A recursive model, whose schema is a reference to its own definition, has a strict form."""
    node = {
        "type": "object",
        "properties": {"next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]}},
    }
    made = strict_schema({"$defs": {"Node": node}, "$ref": "#/$defs/Node"})
    assert made is not None
    assert made["type"] == "object"
    assert made["$defs"]["Node"]["required"] == ["next"]


def _with(field: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"field": field}}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": {"type": "string"}},
        {"type": "string"},
        {},
        {"type": "object"},
        {"type": "object", "properties": {}},
        {"anyOf": [PERSON, PERSON]},
        PERSON | {"additionalProperties": True},
        {"type": "object", "additionalProperties": {"type": "integer"}},
        {"$ref": "#/$defs/Missing"},
        _with({}),
        _with(True),
        _with({"type": "array"}),
        _with({"type": "array", "prefixItems": [{"type": "string"}]}),
        _with({"allOf": [{"type": "string"}, {"type": "integer"}]}),
        _with({"not": {"type": "string"}}),
        _with({"enum": []}),
        _with({"const": {"a": 1}}),
    ],
)
def test_what_has_no_strict_form_gives_none(schema: dict[str, Any]) -> None:
    """Open objects, any values, tuples and roots that are no objects cannot be said strictly."""
    assert strict_schema(schema) is None


def test_a_bottomless_schema_gives_none() -> None:
    """Nesting beyond all measure is refused instead of followed."""
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(500):
        deep = _with(deep)
    assert strict_schema(deep) is None


leaves = st.none() | st.booleans() | st.integers() | st.text(max_size=8)
names = st.sampled_from(
    ["type", "properties", "items", "anyOf", "allOf", "$ref", "$defs", "enum", "required", "x"]
)
schemas = st.recursive(
    leaves | st.sampled_from(["object", "array", "string"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(names, schemas, max_size=5))
def test_any_schema_is_made_strict_or_not(schema: dict[str, Any]) -> None:
    """Whatever stands in a schema, the result is the strict form of an object, or None."""
    made = strict_schema(schema)
    assert made is None or (made["type"] == "object" and made["additionalProperties"] is False)
