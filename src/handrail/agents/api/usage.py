"""What pydantic-ai counted, in handrail's words."""

from __future__ import annotations

from typing import Any

from handrail.agents.prices import cost_of
from handrail.model.results import Usage


def usage_of(counted: Any, model: str | None) -> Usage | None:
    """The usage of a run; None before its first response.

    Zero tokens of input are no count: the provider told none. The cost is what pydantic-ai takes
    from the price list that comes with it (genai-prices), else from ``handrail.agents.prices``.
    """
    requests = _count(counted, "requests")
    if not requests:
        return None
    told = _count(counted, "input_tokens") > 0 and not _count(counted, "unmeasured_requests")
    cost = getattr(counted, "cost", None)
    usage = Usage(
        input_tokens=_count(counted, "input_tokens") if told else None,
        output_tokens=_count(counted, "output_tokens") if told else None,
        cost_usd=float(cost) if told and cost is not None else None,
        turns=requests,
        cached_tokens=_count(counted, "cache_read_tokens") if told else None,
        cache_write_tokens=_count(counted, "cache_write_tokens") if told else None,
        reasoning_tokens=(_count(counted, "output_reasoning_tokens") or None) if told else None,
        cost_source="table" if told and cost is not None else None,
    )
    return cost_of(model, usage)


def _count(counted: Any, name: str) -> int:
    value = getattr(counted, name, 0)
    return value if isinstance(value, int) else 0
