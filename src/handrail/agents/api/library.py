"""What must be known of pydantic-ai before a model is asked: what it is given, what it can do."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from handrail.errors import MissingExtra


def library(name: str = "pydantic_ai") -> Any:
    """A module of pydantic-ai.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "pydantic_ai":
            raise
        raise MissingExtra("ApiBackend", "pydantic-ai-slim", "api") from error


def as_object(schema: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """The schema, as the ``value`` of an object if it is not of an object itself."""
    bare = {key: value for key, value in schema.items() if key != "$defs"}
    shared = {"$defs": schema["$defs"]} if "$defs" in schema else {}
    target: Mapping[str, Any] = bare
    if isinstance(reference := bare.get("$ref"), str):
        target = shared.get("$defs", {}).get(reference.rpartition("/")[2], {})
    if target.get("type") == "object":
        return {**bare, **shared}, False
    return {
        "type": "object",
        "properties": {"value": bare},
        "required": ["value"],
        "additionalProperties": False,
        **shared,
    }, True


def streams(model: Any) -> bool:
    """True unless the model is one of those that answer in one piece only."""
    inner = innermost(model)
    if isinstance(inner, str):
        return True
    if hasattr(inner, "stream_function") and inner.stream_function is None:  # a FunctionModel
        return False
    plain = library("pydantic_ai.models").Model.request_stream
    return getattr(inner.__class__, "request_stream", plain) is not plain


def innermost(model: Any) -> Any:
    """The model within those that only wrap it."""
    while (inner := getattr(model, "wrapped", None)) is not None:
        model = inner
    return model
