"""What an agent that speaks ACP says that a turn used. The protocol leaves open whether the tokens
read from a cache are among those of the input, and whether thoughts are among those of the output;
agents do it either way, and the total tells which.
"""

from __future__ import annotations

from dataclasses import replace

from handrail.agents.programs.loose_json import (
    Object,
    count_in,
    number_in,
    object_in,
    objects_in,
    text_in,
)
from handrail.model.results import Usage


class SessionUsage:
    """What a session has cost before this turn and now, and the tokens of the turn. Mutable.

    Costs are told as a session's total: of one that is gone on in, a turn's part is known only if
    the total before is, from the agent or from the caller (``earlier``).
    """

    def __init__(self, *, fresh: bool, earlier: Usage | None) -> None:
        known = None if earlier is None else earlier.cost_usd
        self._before = 0.0 if fresh else known
        self._cost: float | None = None
        self._tokens: Usage | None = None

    @property
    def is_unused(self) -> bool:
        """True if no token was used in the turn, as far as was told."""
        return self._tokens is None or not self._tokens.tokens

    @property
    def counted_nothing(self) -> bool:
        """True if it was told that no token was used."""
        return self._tokens is not None and self.is_unused

    @property
    def total(self) -> Usage | None:
        """What the session has cost so far."""
        return None if self._cost is None else Usage(cost_usd=self._cost, cost_source="reply")

    @property
    def spent(self) -> Usage | None:
        """What the turn used; None if nothing is known."""
        if self._cost is None or self._before is None:
            return self._tokens
        grown = self._cost - self._before if self._cost >= self._before else self._cost
        return replace(self._tokens or Usage(), cost_usd=grown, cost_source="reply")

    def updated(self, update: Object, *, is_turn: bool) -> None:
        """Take in a ``usage_update``: of the turn, or of the session as it was before."""
        cost = cost_of(update)
        if cost is not None and is_turn:
            self._cost = cost
        elif cost is not None:
            self._before = cost

    def replied(self, reply: Object, *, is_whole: bool) -> None:
        """Take in the reply to the prompt. ``is_whole``: it counts all calls, not just the last."""
        tokens = usage_of(reply)
        self._tokens = tokens if is_whole or tokens is None or not tokens.tokens else None


def usage_of(reply: Object) -> Usage | None:
    """The tokens of a turn, from the reply to its prompt; None if it tells none."""
    told = object_in(reply, "usage")
    if told:
        return _counted(told)
    quota = object_in(object_in(object_in(reply, "_meta"), "quota"), "token_count")
    tokens_in = _either(quota, "input_tokens", "inputTokens")
    tokens_out = _either(quota, "output_tokens", "outputTokens")
    if tokens_in is None and tokens_out is None:
        return None
    return Usage(input_tokens=tokens_in, output_tokens=tokens_out)


def model_of(reply: Object) -> str | None:
    """The model that answered, where the reply tells one."""
    used = objects_in(object_in(object_in(reply, "_meta"), "quota"), "model_usage")
    return text_in(used[0], "model") or None if len(used) == 1 else None


def cost_of(update: Object) -> float | None:
    """What a session has cost so far in US dollars, if it is told in these."""
    cost = object_in(update, "cost")
    amount = number_in(cost, "amount")
    if amount is None or amount < 0 or text_in(cost, "currency").upper() not in ("USD", ""):
        return None
    return amount


def _counted(told: Object) -> Usage | None:
    tokens_in, tokens_out = count_in(told, "inputTokens"), count_in(told, "outputTokens")
    if tokens_in is None and tokens_out is None:
        return None
    read, written = count_in(told, "cachedReadTokens"), count_in(told, "cachedWriteTokens")
    thoughts = count_in(told, "thoughtTokens")
    cached = (read or 0) + (written or 0)
    apart, thought_apart = _apart(
        count_in(told, "totalTokens"), (tokens_in or 0) + (tokens_out or 0), cached, thoughts or 0
    )
    return Usage(
        input_tokens=None if tokens_in is None else tokens_in + (cached if apart else 0),
        output_tokens=None
        if tokens_out is None
        else tokens_out + ((thoughts or 0) if thought_apart else 0),
        cached_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=thoughts,
    )


def _apart(total: int | None, plain: int, cached: int, thoughts: int) -> tuple[bool, bool]:
    """Whether cached tokens and thoughts are counted beside the others."""
    if total is not None:
        for apart in ((True, False), (False, False), (True, True), (False, True)):
            if plain + cached * apart[0] + thoughts * apart[1] == total:
                return apart
    return True, False


def _either(told: Object, *names: str) -> int | None:
    return next((n for name in names if (n := count_in(told, name)) is not None), None)
