"""Three thousand items through three steps each; then do a part of it again.

    python pipeline.py run                 # the whole; a few items cannot be read
    python pipeline.py failed              # only those again, after PRICES was completed
    python pipeline.py again 'items/7/*'   # one item again, whatever it came to
    python pipeline.py total               # only what follows the items

The run is in `pipeline.db`. Killed at any moment, `run` continues where it was.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from handrail import Executor, Limits, SqliteJournal, StepResult, Steps, step, workflow

RUN = "pipeline"
COUNT = 3000


@dataclass(frozen=True)
class Order:
    """One item: what was ordered, and how many of it."""

    number: int
    thing: str
    count: int


@dataclass(frozen=True)
class Report:
    """What the pipeline came to."""

    priced: int
    failed: list[str]
    total: int


def orders(count: int) -> list[Order]:
    """The items. A real one reads a file or a table, in a step: then they are recorded."""
    things = ("tea", "milk", "salt") * (count // 3) + ("tea",) * (count % 3)
    return [
        Order(number, "saffron" if number % 500 == 7 else thing, number % 9 + 1)
        for number, thing in enumerate(things)
    ]


def price_of(thing: str) -> int:
    """Cents for one; the list is a file, so that it can be completed while the run waits."""
    prices = dict(line.split() for line in Path("prices.txt").read_text("utf-8").splitlines())
    return int(prices[thing])


def multiplied(price: int, count: int) -> int:
    """Cents for all of an item."""
    return price * count


def priced(order: Order) -> Steps[int]:
    """The steps of one item, at `items/NUMBER/...`; each is recorded by itself."""
    price = yield from step("price").call(price_of, order.thing)
    return (yield from step("times").call(multiplied, price, order.count).inline())


@workflow(description="Price three thousand orders")
def pipeline(count: int = COUNT) -> Steps[Report]:
    """The sum of what could be priced, and the numbers of the orders that could not."""
    items = yield from step("orders").call(orders, count)
    ended = yield from step("items").for_each(
        items, priced, key=lambda order: order.number, on_error="continue", max_concurrency=32
    )
    return (yield from step("total").call(total, ended))


def total(ended: list[StepResult[int]]) -> Report:
    """The report of all items."""
    failed = [one.path.rpartition("/")[2] for one in ended if one.status != "succeeded"]
    amounts = [one.output or 0 for one in ended if one.status == "succeeded"]
    return Report(len(amounts), failed, sum(amounts))


def main(what: str = "run", *paths: str) -> Report:
    """Run the pipeline, or a part of it again."""
    executor = Executor(
        journal=SqliteJournal("pipeline.db"),
        workflows=[pipeline],
        limits=Limits(max_concurrency=32),
        on_change="rerun",  # what follows a step that ran again runs again if its input differs
    )
    match what:
        case "run":
            begun = executor.options(run_id=RUN, existing="go_on").run_sync(pipeline)
        case "failed":
            begun = executor.resume_sync(RUN, rerun_failed=True)
        case "again":
            begun = executor.resume_sync(RUN, rerun=list(paths))
        case "total":
            begun = executor.resume_sync(RUN, rerun=["total"])
        case _:
            raise SystemExit(f"unknown: {what!r}. Say run, failed, again PATH or total.")
    return begun.unwrap()


if __name__ == "__main__":
    print(main(*sys.argv[1:]))
