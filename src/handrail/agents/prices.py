"""The cost of models by their makers' price lists, for replies that do not report their cost.

Source: the data of genai-prices 0.2.3 (https://github.com/pydantic/genai-prices), standard
processing, no batch discount, at the prices valid on ``PRICES_AS_OF``. Models with an announced
change of price are left out, as are resellers' prices.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import attrs

from handrail.errors import DefinitionError
from handrail.model.policy import number
from handrail.model.results import Usage

PRICES_AS_OF = "2026-11-22"
"""The day on which the prices of ``PRICES`` were valid."""


_DOLLARS = number("dollars per million tokens", lambda dollars: 0 <= dollars < math.inf, "a Price")


def _check_long(price: Price, _: attrs.Attribute[Any], long: object) -> None:
    if long is not None and (price.long_above is None or not isinstance(long, Price)):
        raise DefinitionError(
            f"a Price takes long_above=<tokens> and long=Price(...) together, got "
            f"long_above={price.long_above!r}, long={long!r}"
        )


@attrs.frozen
class Price:
    """Dollars per million tokens.

    ``cached_usd`` is for input read from a cache, ``cache_write_usd`` for input written to one;
    without them such input costs as much as any other. A request with more than ``long_above``
    tokens of input costs ``long`` instead.
    """

    input_usd: float = attrs.field(validator=_DOLLARS)
    output_usd: float = attrs.field(validator=_DOLLARS)
    cached_usd: float | None = attrs.field(default=None, validator=_DOLLARS)
    cache_write_usd: float | None = attrs.field(default=None, validator=_DOLLARS)
    long_above: int | None = attrs.field(default=None, kw_only=True)
    long: Price | None = attrs.field(default=None, kw_only=True, validator=_check_long)


def _with_long_price(above: int, base: Price, long: Price) -> Price:
    return attrs.evolve(base, long_above=above, long=long)


_GPT_5 = Price(1.25, 10, 0.125)
_GPT_5_MINI = Price(0.25, 2, 0.025)
_GPT_5_2 = Price(1.75, 14, 0.175)
_OPUS_4_5 = Price(5, 25, 0.5, 6.25)

PRICES: Mapping[str, Price] = MappingProxyType(
    {
        # Anthropic; a cache entry lives five minutes
        "claude-fable-5": Price(10, 50, 1, 12.5),
        "claude-fable-5-1": Price(10, 50, 0.25, 12.5),
        "claude-fable-5-2": Price(8, 40, 0.2, 10),
        "claude-haiku-4-5": Price(1, 5, 0.1, 1.25),
        "claude-haiku-5-5": _with_long_price(
            100_000, Price(0.1, 0.5, 0.01, 0.125), Price(0.5, 2.5, 0.05, 0.625)
        ),
        "claude-opus-4-5": _OPUS_4_5,
        "claude-opus-4-6": _OPUS_4_5,
        "claude-opus-4-7": _OPUS_4_5,
        "claude-opus-4-8": _OPUS_4_5,
        "claude-opus-5": _OPUS_4_5,
        "claude-opus-5-5": Price(4, 20, 0.2, 5),
        "claude-sonnet-4-5": _with_long_price(
            200_000, Price(3, 15, 0.3, 3.75), Price(6, 22.5, 0.6, 7.5)
        ),
        "claude-sonnet-4-6": Price(3, 15, 0.3, 3.75),
        "claude-sonnet-5": Price(2, 10, 0.2, 2.5),
        "claude-sonnet-5-5": Price(2, 10, 0.1, 2.5),
        # OpenAI
        "gpt-5": _GPT_5,
        "gpt-5-codex": _GPT_5,
        "gpt-5-mini": _GPT_5_MINI,
        "gpt-5-nano": Price(0.05, 0.4, 0.005),
        "gpt-5.1": _GPT_5,
        "gpt-5.1-codex": _GPT_5,
        "gpt-5.1-codex-max": _GPT_5,
        "gpt-5.1-codex-mini": _GPT_5_MINI,
        "gpt-5.2": _GPT_5_2,
        "gpt-5.2-codex": _GPT_5_2,
        "gpt-5.3": _GPT_5_2,
        "gpt-5.3-codex": _GPT_5_2,
        "gpt-5.4": _with_long_price(272_000, Price(2.5, 15, 0.25), Price(5, 22.5, 0.5)),
        "gpt-5.4-mini": Price(0.75, 4.5, 0.075),
        "gpt-5.4-nano": Price(0.2, 1.25, 0.02),
        "gpt-5.5": _with_long_price(272_000, Price(5, 30, 0.5), Price(10, 45, 1)),
        "gpt-5.6-luna": _with_long_price(
            272_000, Price(0.2, 1.2, 0.02, 0.25), Price(0.4, 1.8, 0.04, 0.5)
        ),
        "gpt-5.6-sol": _with_long_price(272_000, Price(4, 20, 0.4, 5), Price(8, 30, 0.8, 10)),
        "gpt-5.6-terra": _with_long_price(272_000, Price(2, 12, 0.2, 2.5), Price(4, 18, 0.4, 5)),
        "gpt-6-astra": _with_long_price(272_000, Price(10, 50, 1, 12.5), Price(20, 75, 2, 25)),
        "gpt-6-luna": _with_long_price(
            272_000, Price(0.1, 0.5, 0.01, 0.125), Price(0.2, 0.75, 0.02, 0.25)
        ),
        "gpt-6-sol": _with_long_price(272_000, Price(2, 10, 0.2, 2.5), Price(4, 15, 0.4, 5)),
        "gpt-6.1-sol": _with_long_price(272_000, Price(2, 10, 0.1, 2.5), Price(4, 15, 0.2, 5)),
        "gpt-6.1-terra": _with_long_price(
            272_000, Price(1, 5, 0.05, 1.25), Price(2, 7.5, 0.1, 2.5)
        ),
        # Google; text in and out
        "gemini-2.5-flash": Price(0.3, 2.5, 0.03),
        "gemini-2.5-flash-lite": Price(0.1, 0.4, 0.01),
        "gemini-2.5-pro": _with_long_price(200_000, Price(1.25, 10, 0.125), Price(2.5, 15, 0.25)),
        "gemini-3-flash-preview": Price(0.5, 3, 0.05),
        "gemini-3.1-flash-lite": Price(0.25, 1.5, 0.025),
        "gemini-3.1-pro-preview": _with_long_price(200_000, Price(2, 12, 0.2), Price(4, 18, 0.4)),
        "gemini-3.5-flash": Price(1.5, 9, 0.15),
        "gemini-3.5-flash-lite": Price(0.3, 2.5, 0.03),
    }
)
"""List prices by model; add your own with ``{**PRICES, "my-model": Price(...)}``."""

# Only the makers' names: other providers of a model have their own prices.
_MAKER = re.compile(r"^(anthropic|openai(-chat|-responses)?|google(-gla)?|models)[:/]")
_VARIANT = re.compile(r"(\[1m\]|-latest|[-@]\d{8}|-\d{4}-\d{2}-\d{2})$")


def cost_of(model: str | None, usage: Usage, prices: Mapping[str, Price] = PRICES) -> Usage:
    """The usage with its cost by the table, if that can be computed; else unchanged.

    It cannot if the model is not in the table, or the tokens are unknown; a known cost stays. The
    cost is an estimate: tokens that nobody reported as cached cost as plain input, and all requests
    count as equally long.
    """
    price = _price(model, prices)
    if price is None or usage.cost_usd is not None:
        return usage
    if usage.input_tokens is None or usage.output_tokens is None:
        return usage
    cached = min(usage.cached_tokens or 0, usage.input_tokens)
    written = min(usage.cache_write_tokens or 0, usage.input_tokens - cached)
    if price.long is not None and price.long_above is not None:
        average = usage.input_tokens / max(usage.turns or 1, 1)
        price = price.long if average > price.long_above else price
    dollars = (
        (usage.input_tokens - cached - written) * price.input_usd
        + cached * _or_default(price.cached_usd, price.input_usd)
        + written * _or_default(price.cache_write_usd, price.input_usd)
        + usage.output_tokens * price.output_usd
    ) / 1_000_000
    return replace(usage, cost_usd=dollars, cost_source="table")


def _price(model: str | None, prices: Mapping[str, Price]) -> Price | None:
    """The price of a model, whose name may have a maker, a date and a variant."""
    if model is None:
        return None
    name = _MAKER.sub("", model.strip())
    for candidate in (
        model,
        name,
        _VARIANT.sub("", name),
        _VARIANT.sub("", _VARIANT.sub("", name)),
        name.replace(".", "-"),  # copilot's spelling of claude's models
    ):
        if candidate in prices:
            return prices[candidate]
    return None


def _or_default(price: float | None, otherwise: float) -> float:
    return otherwise if price is None else price
