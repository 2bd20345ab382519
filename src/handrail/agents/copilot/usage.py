"""What a turn of copilot used: from its events, if they tell, else from its report."""

from __future__ import annotations

from typing import Any

from handrail.agents.programs.loose_json import Object, as_object, count_in, object_in
from handrail.agents.programs.usage_since import added_since
from handrail.model.results import Usage


class CallUsage:
    """The sum over the model calls of a turn. Mutable."""

    def __init__(self) -> None:
        self.total: Usage | None = None

    def add(self, data: Object) -> Usage | None:
        """The sum with one more call; None if that told nothing."""
        call = _usage(data)
        if call == Usage():
            return None
        self.total = call if self.total is None else self.total + call
        return self.total


def reported_usage(report: Object, *, resumed: bool, before: Usage | None) -> Usage | None:
    """This turn's usage in the file of ``--usage-output-file``.

    A report that covers earlier prompts of a resumed session too is a total: then this turn's is
    the difference, unknown if what went before is. One that does not say so may be such a total.
    """
    models = [as_object(one) for one in object_in(report, "modelMetrics").values()]
    told = [usage for one in models if (usage := _usage(object_in(one, "usage"))) != Usage()]
    if not told:
        return None
    total = sum(told[1:], told[0])
    prompts = count_in(report, "totalUserRequests")
    if resumed and (prompts is None or prompts > 1):
        return added_since(before, total)
    return total


def _usage(data: Object) -> Usage:
    fields: dict[str, Any] = {
        "input_tokens": count_in(data, "inputTokens"),
        "output_tokens": count_in(data, "outputTokens"),
        "cached_tokens": count_in(data, "cacheReadTokens"),
        "cache_write_tokens": count_in(data, "cacheWriteTokens"),
        "reasoning_tokens": count_in(data, "reasoningTokens"),
    }
    return Usage(**fields)
