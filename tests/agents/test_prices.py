"""What a usage costs by the table, and when that cannot be told."""

from __future__ import annotations

import datetime as dt

import pytest

from handrail.agents.prices import PRICES, PRICES_AS_OF, Price, cost_of
from handrail.errors import DefinitionError
from handrail.model.results import Usage

MILLION = 1_000_000


def test_every_kind_of_token_has_its_price() -> None:
    """Input is what is left of it after what came from a cache and what was put into one."""
    usage = Usage(
        input_tokens=10 * MILLION,
        cached_tokens=6 * MILLION,
        cache_write_tokens=3 * MILLION,
        output_tokens=2 * MILLION,
        reasoning_tokens=MILLION,
        turns=500,
    )
    prices = {"m": Price(2, 10, 0.5, 2.5)}

    found = cost_of("m", usage, prices)

    assert found.cost_usd == pytest.approx(1 * 2 + 6 * 0.5 + 3 * 2.5 + 2 * 10)
    assert found.cost_source == "table"
    assert (found.input_tokens, found.turns) == (usage.input_tokens, 500)


def test_without_a_price_for_caches_they_cost_as_input() -> None:
    """A price of None is no price of zero."""
    usage = Usage(MILLION, 0, cached_tokens=MILLION // 2, cache_write_tokens=MILLION // 2)
    assert cost_of("m", usage, {"m": Price(2, 10)}).cost_usd == 2


@pytest.mark.parametrize(
    ("model", "usage"),
    [
        (None, Usage(1, 1)),
        ("unheard-of", Usage(1, 1)),
        ("claude-opus-5", Usage()),
        ("claude-opus-5", Usage(input_tokens=1)),
        ("claude-opus-5", Usage(output_tokens=1)),
        ("openrouter:anthropic/claude-opus-5", Usage(1, 1)),
    ],
)
def test_what_is_unknown_stays_unknown(model: str | None, usage: Usage) -> None:
    """Without the model's price, or the tokens, there is no cost, and no zero."""
    assert cost_of(model, usage) is usage


def test_a_known_cost_stays() -> None:
    """What the reply said counts before the table."""
    usage = Usage(1, 1, cost_usd=5.0, cost_source="reply")
    assert cost_of("claude-opus-5", usage) is usage


@pytest.mark.parametrize(
    "name",
    [
        "claude-sonnet-4-5",
        "anthropic:claude-sonnet-4-5",
        "anthropic/claude-sonnet-4-5",
        "claude-sonnet-4-5-20250929",
        "claude-sonnet-4-5@20250929",
        "claude-sonnet-4-5-20250929[1m]",
        "claude-sonnet-4-5-latest",
    ],
)
def test_a_model_is_known_by_the_names_that_backends_give_it(name: str) -> None:
    """With its maker in front, and a date or a variant behind."""
    assert cost_of(name, Usage(1000, 0)).cost_usd == pytest.approx(0.003)


def test_long_requests_have_a_price_of_their_own() -> None:
    """The average request decides; without a count of turns there was one."""
    model, usage = "claude-sonnet-4-5", Usage(400_000, 0, turns=2)
    assert cost_of(model, usage).cost_usd == pytest.approx(1.2)
    assert cost_of(model, Usage(400_000, 0, turns=1)).cost_usd == pytest.approx(2.4)
    assert cost_of(model, Usage(400_000, 0)).cost_usd == pytest.approx(2.4)


def test_counts_that_contradict_one_another_cost_no_less_than_nothing() -> None:
    """More cached tokens than there was input are those of the input."""
    usage = Usage(10, 0, cached_tokens=100, cache_write_tokens=100)
    assert cost_of("m", usage, {"m": Price(2, 10, 1, 3)}).cost_usd == pytest.approx(10 / MILLION)


def test_the_table_says_its_date_and_its_prices_are_plausible() -> None:
    """Output costs more than input, input more than cached input, long requests more yet."""
    assert dt.date.fromisoformat(PRICES_AS_OF)
    for price in PRICES.values():
        assert 0 < (price.cached_usd or 0) < price.input_usd < price.output_usd
        assert price.long is None or price.long.input_usd > price.input_usd


def test_prices_stand_in_the_ratios_that_their_makers_use() -> None:
    """A figure that was mistyped stands in none, in whichever place."""
    for name, price in PRICES.items():
        for one in filter(None, (price, price.long)):
            assert one.cached_usd is not None
            assert round(one.cached_usd / one.input_usd, 3) in {0.1, 0.05, 0.025}, name
            assert one.cache_write_usd in (None, pytest.approx(1.25 * one.input_usd)), name
            by_output = round(one.output_usd / one.input_usd, 2)
            assert by_output in {3.75, 4, 4.5, 5, 6, 6.25, 8, 8.33}, name
        if price.long is not None and price.long_above is not None:
            assert round(price.long.input_usd / price.input_usd, 3) in {2, 5}, name
            assert price.long_above % 1000 == 0, name


@pytest.mark.parametrize("wrong", [-1, float("nan"), float("inf"), True, "3"])
def test_a_price_is_dollars(wrong: object) -> None:
    """Anything else is refused with what it is."""
    with pytest.raises(DefinitionError, match="dollars per million tokens"):
        Price(wrong, 1)  # type: ignore[arg-type]


def test_a_price_for_long_requests_says_from_where() -> None:
    """`long` and `long_above` belong together."""
    with pytest.raises(DefinitionError, match="together"):
        Price(1, 2, long=Price(2, 4))
