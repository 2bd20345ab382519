"""`call` and `python`: the output is what the action returns, and its arguments are checked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, assert_type

from handrail import Step, step


@dataclass(frozen=True)
class Report:
    title: str


def word(number: int, *, shout: bool = False) -> str:
    return str(number).upper() if shout else str(number)


def nothing() -> None: ...


async def report(title: str) -> Report:
    return Report(title)


async def later() -> int:
    return 1


def promised(number: int) -> Awaitable[bytes]:
    raise NotImplementedError(number)


class Service:
    def load(self, key: str) -> list[str]:
        """What is there."""
        return [key]


a_step = step("a")

# -- call

assert_type(a_step.call(word, 1), Step[str])
assert_type(a_step.call(word, 1, shout=True), Step[str])
assert_type(a_step.call(word, number=1), Step[str])
assert_type(a_step.call(nothing), Step[None])
assert_type(a_step.call(report, "x"), Step[Report])
assert_type(a_step.call(later), Step[int])
assert_type(a_step.call(promised, 1), Step[bytes])
assert_type(a_step.call(Service().load, "k"), Step[list[str]])
assert_type(a_step.call(partial(word, shout=True), 1), Step[str])
assert_type(a_step.call(Report, "x"), Step[Report])
assert_type(a_step.call(len, "abc"), Step[int])
assert_type(a_step.call(lambda: 1), Step[int])

a_step.call(word)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
a_step.call(word, "1")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
a_step.call(word, 1, loud=True)  # type: ignore[arg-type, call-arg]  # pyright: ignore[reportCallIssue]
a_step.call(report, 1)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
a_step.call("ls")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
a_step.call(word(1))  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]

# -- python

assert_type(a_step.python(nothing), Step[None])
assert_type(a_step.python(later), Step[int])
assert_type(a_step.python(report, ("x",)), Step[Report])
assert_type(a_step.python(Service().load, ("k",)), Step[list[str]])
assert_type(a_step.python(word, (1,), {"shout": True}), Step[str])
assert_type(a_step.python(word, kwargs={"number": 1}), Step[str])
assert_type(a_step.python(report, ("x",), {}), Step[Report])
assert_type(a_step.python(report, kwargs={"title": "x"}), Step[Report])
assert_type(a_step.python(divmod, (7, 2)), Step[tuple[int, int]])

a_step.python(report)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
a_step.python(report, (1,))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
a_step.python(report, ("x", 1))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
a_step.python(report, "x")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
a_step.python("ls")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]

# -- inline

assert_type(a_step.call(word, 1).inline(), Step[str])

# -- what is known of the action only at run time

unknown: Callable[..., Any] = word
assert_type(a_step.call(unknown, "anything"), Step[Any])
