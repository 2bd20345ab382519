"""What launches used or set aside, summed."""

from __future__ import annotations

from handrail.core.ledger import Ledger
from handrail.model.events import BudgetReserved, BudgetSettled
from handrail.model.results import Usage

RESERVED = BudgetReserved("all/work", 1, 100, 0.5)


def test_a_launch_is_counted_once_however_often_it_is_read() -> None:
    """A second reading of what was set aside changes nothing, nor one after it was settled."""
    ledger = Ledger()
    for event in (RESERVED, RESERVED):
        ledger.reserve(event)
    for scope in ("", "all", "all/work"):
        spent = ledger.of(scope)
        assert (spent.launches, spent.tokens, spent.usd) == (1, 100, 0.5)
    ledger.settle(BudgetSettled("all/work", 1, Usage(30, cost_usd=0.2)))
    ledger.reserve(RESERVED)
    spent = ledger.of("")
    assert (spent.launches, spent.tokens, spent.usd) == (1, 30, 0.2)
