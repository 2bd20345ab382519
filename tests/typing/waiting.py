"""`ask`, `wait_for` and `sleep`: an answer or a payload has the type that was asked for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, assert_type

from handrail import Choice, Step, step


@dataclass(frozen=True)
class Order:
    number: int


class Colour(Enum):
    RED = "red"


one = step("one")

# -- ask

assert_type(one.ask("Who?"), Step[str])
assert_type(one.ask("Who?", default="nobody"), Step[str])
assert_type(one.ask("Who?", default="nobody", timeout=timedelta(hours=1)), Step[str])
assert_type(one.ask("Merge?", choices=["yes", "no"]), Step[str])
assert_type(one.ask("Merge?", choices=["yes", "no"], default="no", timeout=60), Step[str])
assert_type(one.ask("How many?", choices=[1, 2, 3]), Step[int])
assert_type(one.ask("Which?", choices=list(Colour)), Step[Colour])
assert_type(one.ask("Which?", choices={"Red one": Colour.RED}), Step[Colour])
assert_type(one.ask("How many?", choices={"one": 1, "two": 2}, default=2), Step[int])
assert_type(
    one.ask("Ok?", choices={"yes": Choice(1), "no": Choice(0, prompt_for="why?")}),
    Step[Choice[int]],
)
assert_type(one.ask("How many?", type=int), Step[int])
assert_type(one.ask("How many?", type=int, timeout=60), Step[int])
assert_type(one.ask("How many?", type=int, default=None, timeout=60), Step[int | None])
assert_type(one.ask("Which?", type=Order), Step[Order])

one.ask()  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
one.ask("Merge?", choices=["yes"], type=str)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
one.ask("Merge?", choices=5)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
one.ask("How many?", type=3)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
one.ask("Who?", timeout="1h")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
one.ask("Who?", default=1)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]

# -- wait_for

assert_type(one.wait_for("go"), Step[Any])
assert_type(one.wait_for("paid", Order), Step[Order])
assert_type(one.wait_for("paid", type=list[int]), Step[list[int]])

one.wait_for()  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
one.wait_for(1)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]

# -- sleep

assert_type(one.sleep(1.5), Step[None])
assert_type(one.sleep(timedelta(days=1)), Step[None])
assert_type(one.sleep(datetime(2030, 1, 1, tzinfo=UTC)), Step[None])

one.sleep("1h")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
one.sleep()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
