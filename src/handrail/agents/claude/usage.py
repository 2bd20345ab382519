"""The usage that a result of claude reports: this turn's part, and the session's total.

``total_cost_usd`` and ``modelUsage`` are totals: of the session, resumed turns included, in newer
versions; of the process in older ones. Newer versions also report this turn's part, in
``model_usage_since_last_result``. Without it the counts must show which total it is. ``usage``
covers only calls of the main model, without compactions, and is the last resort.

Source: measured with claude 2.1.197 (totals of the process) and 2.1.330 (of the session).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, cast

from handrail.agents.transport.loose_json import Object, count_in, number_in, object_in
from handrail.agents.transport.turn_state import usage_in
from handrail.model.results import Usage


def turn_usage(result: Object, before: Usage | None, *, resumed: bool) -> Usage | None:
    """What the turn used that this result ended.

    ``before`` is the session's total when the turn began, if known. Fields that the totals do not
    reveal are None.
    """
    since = result.get("model_usage_since_last_result")
    by_model = _by_model(since)
    tokens = by_model if by_model is not None and by_model.tokens else _main_model(result)
    if tokens is None and not resumed:  # the total is then this turn's
        tokens = _by_model(result.get("modelUsage"))
    if isinstance(since, dict):
        cost = by_model.cost_usd if by_model and by_model.cost_usd is not None else None
        cost = 0.0 if not since else cost
    else:
        cost = _cost_since(result, before, resumed=resumed)
    return _or_none(_with_cost(tokens or Usage(), cost, count_in(result, "num_turns")))


def session_usage(
    result: Object, before: Usage | None, turn: Usage | None, *, resumed: bool
) -> Usage | None:
    """The session's total after a result, as far as known."""
    earlier = before if resumed else Usage(0, 0, 0.0, 0, 0, 0, 0)
    summed = earlier + turn if earlier is not None and turn is not None else None
    if resumed and _is_of_process(result, before) is not False:
        return summed
    tokens = _by_model(result.get("modelUsage")) or summed
    turns = summed.turns if summed and earlier and earlier.turns is not None else None
    return _or_none(_with_cost(tokens or Usage(), number_in(result, "total_cost_usd"), turns))


_INPUT = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


class KnownInput:
    """The usage of a turn without a result, as far as its messages tell it: their input. Mutable.

    Claude prints output counts before the output has ended, so these are unknown.
    """

    def __init__(self) -> None:
        self._of: dict[str, tuple[int | None, ...]] = {}
        self._sums = [0, 0, 0]
        self._known = [0, 0, 0]
        """How many messages tell each of the counts."""

    def take(self, message: str, usage: Object) -> bool:
        """Count a message's usage, in place of what it told before; True if it told none before."""
        counts = tuple([count_in(usage, name) for name in _INPUT])
        before = self._of.get(message)
        self._of[message] = counts
        if counts == before:  # each block of a message tells them again
            return False
        for index, now in enumerate(counts):
            was = None if before is None else before[index]
            self._sums[index] += (now or 0) - (was or 0)
            self._known[index] += (now is not None) - (was is not None)
        return before is None

    @property
    def usage(self) -> Usage | None:
        """The sum; None if nothing is known."""
        if not self._of:
            return None
        (given, written, cached), known = self._sums, self._known
        return Usage(
            given + written + cached if any(known) else None,
            turns=len(self._of),
            cached_tokens=cached if known[2] else None,
            cache_write_tokens=written if known[1] else None,
        )


def _cost_since(result: Object, before: Usage | None, *, resumed: bool) -> float | None:
    """The turn's part of a total cost."""
    total = number_in(result, "total_cost_usd")
    if not total or not resumed:
        return total
    of_process = _is_of_process(result, before)
    if of_process:
        return total
    if of_process is None or before is None or before.cost_usd is None:
        return None
    return Usage(cost_usd=total).since(before).cost_usd


def _is_of_process(result: Object, before: Usage | None) -> bool | None:
    """Whether the totals exclude resumed turns; None if they do not show it."""
    if isinstance(result.get("model_usage_since_last_result"), dict):
        return False
    total, used = _by_model(result.get("modelUsage")), _main_model(result)
    if total is None or total.tokens is None or used is None or used.tokens is None:
        return False
    if used.tokens == 0:  # compacting uses tokens that no other count includes
        return None if total.tokens else False
    if before is not None and before.tokens:
        return total.tokens - before.tokens < used.tokens
    return total.tokens == used.tokens


def _main_model(result: Object) -> Usage | None:
    usage = object_in(result, "usage")
    counts = usage_in(
        usage,
        input_tokens="input_tokens",
        output_tokens="output_tokens",
        cached_tokens="cache_read_input_tokens",
        cache_write_tokens="cache_creation_input_tokens",
    )
    thoughts = count_in(object_in(usage, "output_tokens_details"), "thinking_tokens")
    return _or_none(replace(_with_cached_input(counts), reasoning_tokens=thoughts))


def _by_model(models: object) -> Usage | None:
    """The sum over a table of models; None if the table has no counts."""
    total = Usage()
    if not isinstance(models, dict):
        return None
    for model in cast("Object", models).values():
        if isinstance(model, dict):
            total += _of_model(cast("Object", model))
    return _or_none(total)


def _of_model(model: Object) -> Usage:
    counts = usage_in(
        model,
        input_tokens="inputTokens",
        output_tokens="outputTokens",
        cached_tokens="cacheReadInputTokens",
        cache_write_tokens="cacheCreationInputTokens",
        reasoning_tokens="thinkingTokens",
    )
    return replace(_with_cached_input(counts), cost_usd=number_in(model, "costUSD"))


def _with_cached_input(counts: Usage | None) -> Usage:
    """The counts, with cache reads and cache writes added to the input, which excludes them."""
    counted = counts or Usage()
    parts = (counted.input_tokens, counted.cache_write_tokens, counted.cached_tokens)
    known = [part for part in parts if part is not None]
    return replace(counted, input_tokens=sum(known) if known else None)


def _with_cost(tokens: Usage, cost_usd: float | None, turns: int | None) -> Usage:
    source: Literal["reply"] | None = None if cost_usd is None else "reply"
    return replace(tokens, cost_usd=cost_usd, turns=turns, cost_source=source)


def _or_none(usage: Usage) -> Usage | None:
    return None if usage == Usage() else usage
