"""Converts values to text for prompts."""

from __future__ import annotations

import json
from collections.abc import ItemsView, Iterator, KeysView, ValuesView
from enum import Enum
from typing import Any, cast

from handrail.model.results import AgentResult, CommandResult
from handrail.typed.jsonsafe import json_safe, record_items

_DATA = (dict, list, tuple, set, frozenset, Enum)
_LAZY = (Iterator, range, KeysView, ValuesView, ItemsView)


def as_text(value: Any) -> Any:
    """The value of ``{{ value }}`` in a prompt: JSON unless it is text or a number."""
    if isinstance(value, (AgentResult, CommandResult)):
        return text_of(value)
    if isinstance(value, _LAZY):
        return as_json(list(cast("Iterator[object]", value)))
    is_data = isinstance(value, _DATA) or record_items(value) is not None
    return as_json(value) if is_data else cast("object", value)


def as_json(value: Any, indent: int | None = None) -> str:
    """The filter ``tojson``, also for typed outputs; escapes nothing, because this is not HTML."""
    if isinstance(value, AgentResult):
        value = cast("AgentResult[object]", value).output
    return json.dumps(json_safe(value), indent=indent, ensure_ascii=False)


def text_of(output: Any) -> str:
    """A step's text or output without surrounding blanks; JSON for data."""
    match output:
        case None:
            return ""
        case str():
            return output.strip()
        case AgentResult():
            return text_of(cast("AgentResult[object]", output).output)
        case CommandResult():
            return output.stdout.strip()
        case _:
            return as_json(output, 2)
