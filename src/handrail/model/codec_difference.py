"""Where a value that was read back differs from what was written."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from handrail.model.codec_read import VALUE
from handrail.model.codec_write import TAG, Refused
from handrail.model.schema import is_list, is_object
from handrail.shortening import shortened

Steps: TypeAlias = list[str]

_SHOWN = 80


def difference(was: Any, became: Any) -> Refused:
    """The first part in which two different trees are not the same, and what it is in each."""
    steps: list[str] = []
    while (inner := _first(was, became)) is not None:
        step, was, became = inner
        steps.append(step)
    refused = Refused(f"it comes back as {_cut(became)}, not as {_cut(was)}")
    refused.steps = [(None, step) for step in reversed(steps)]
    return refused


def _first(was: Any, became: Any) -> tuple[str, Any, Any] | None:
    if is_object(was) and is_object(became) and was.keys() == became.keys():
        if was.get(TAG) != became.get(TAG):
            return None
        key = next(key for key, item in was.items() if _differ(item, became[key]))
        return _step(was, key), was[key], became[key]
    if is_list(was) and is_list(became) and len(was) == len(became):
        pairs = enumerate(zip(was, became, strict=True))
        return next((f"[{i}]", one, other) for i, (one, other) in pairs if _differ(one, other))
    return None


def _differ(one: Any, other: Any) -> bool:
    return msgspec.json.encode(one) != msgspec.json.encode(other)


def _step(node: dict[str, Any], key: str) -> str:
    if TAG not in node:
        return f"[{key!r}]"
    return "" if key in {"v", VALUE} else f".{key}"


def _cut(tree: Any) -> str:
    return shortened(msgspec.json.encode(tree).decode(), _SHOWN)
