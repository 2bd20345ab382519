"""`parallel`, `for_each` and `race`: each member keeps its type."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, assert_type

from handrail import Step, StepResult, Steps, step


def words() -> Iterator[str]:
    yield "a"


def check(word: str) -> Step[int]:
    return step("length").call(len, word)


def check_twice(word: str) -> Steps[bool]:
    first = yield from step("first").call(len, word)
    second = yield from step("second").call(len, word)
    return first == second


one = step("one")
i = step("i").call(int, "1")
s = step("s").call(str, 1)
b = step("b").call(bytes, 1)
n = step("n").sleep(1)
loose = step("loose").wait_for("anything")

# -- parallel

assert_type(one.parallel(i), Step[tuple[int]])
assert_type(one.parallel(i, s), Step[tuple[int, str]])
assert_type(one.parallel(i, s, b), Step[tuple[int, str, bytes]])
assert_type(one.parallel(i, s, b, n), Step[tuple[int, str, bytes, None]])
assert_type(one.parallel(i, s, b, n, i), Step[tuple[int, str, bytes, None, int]])
assert_type(one.parallel(i, s, b, n, i, s), Step[tuple[int, str, bytes, None, int, str]])
assert_type(one.parallel(i, s, b, n, i, s, b), Step[tuple[int, str, bytes, None, int, str, bytes]])
assert_type(
    one.parallel(i, s, b, n, i, s, b, n),
    Step[tuple[int, str, bytes, None, int, str, bytes, None]],
)
assert_type(one.parallel(i, i, i, i, i, i, i, i, i), Step[tuple[int, ...]])
assert_type(one.parallel(*[i, i]), Step[tuple[int, ...]])
assert_type(one.parallel(i, s, on_error="fail_fast", max_concurrency=2), Step[tuple[int, str]])
assert_type(one.parallel(i, s, on_error="all_or_nothing"), Step[tuple[int, str]])
assert_type(one.parallel(i, s, on_error="continue"), Step[tuple[StepResult[int], StepResult[str]]])
assert_type(
    one.parallel(i, s, b, on_error="continue", min_success=0.5),
    Step[tuple[StepResult[int], StepResult[str], StepResult[bytes]]],
)
assert_type(one.parallel(*[i, i], on_error="continue"), Step[tuple[StepResult[int], ...]])
assert_type(one.parallel(one.parallel(i, s), b), Step[tuple[tuple[int, str], bytes]])
assert_type(one.parallel(loose, s), Step[tuple[Any, str]])
assert_type(
    one.parallel(loose, s, on_error="continue"), Step[tuple[StepResult[Any], StepResult[str]]]
)

one.parallel(check)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
one.parallel(step("no verb"))  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
one.parallel([i, s])  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
one.parallel(i, s, on_error="ignore")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
one.parallel(i, s, max_concurrency="2")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]

# -- for_each

assert_type(one.for_each(["a"], check), Step[list[int]])
assert_type(one.for_each(["a"], check_twice), Step[list[bool]])
assert_type(one.for_each(words(), check), Step[list[int]])
assert_type(one.for_each(["a", "b"], check, key=len, max_concurrency=4), Step[list[int]])
assert_type(one.for_each({1: "a"}, check), Step[list[int]])
assert_type(one.for_each({1: "a"}, check_twice, on_error="all_or_nothing"), Step[list[bool]])
assert_type(one.for_each(["a"], check, on_error="continue"), Step[list[StepResult[int]]])
assert_type(one.for_each(["a"], check_twice, on_error="continue"), Step[list[StepResult[bool]]])
assert_type(
    one.for_each({1: "a"}, check, on_error="continue", min_success=1), Step[list[StepResult[int]]]
)
assert_type(one.for_each(["a"], lambda word: step("length").call(len, word)), Step[list[int]])

one.for_each(7, check)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
one.for_each([1], check)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
one.for_each({1: 2}, check)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
one.for_each(["a"], len)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
one.for_each(["a"], check("a"))  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
one.for_each(["a"], check, on_error="ignore")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]

# -- race

assert_type(one.race(i), Step[int])
assert_type(one.race(i, s), Step[int | str])
assert_type(one.race(i, s, b), Step[int | str | bytes])
assert_type(one.race(i, s, b, n), Step[int | str | bytes | None])
assert_type(one.race(i, i, i, i, i), Step[int])
assert_type(one.race(*[i, i]), Step[int])

one.race(check)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
one.race([i, s])  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]


def used() -> Steps[int]:
    number, word = yield from one.parallel(i, s)
    assert_type(number, int)
    assert_type(word, str)
    ends = yield from step("each").for_each(["a"], check, on_error="continue")
    assert_type(ends[0].output, int | None)
    either = yield from step("first").race(i, s)
    assert_type(either, int | str)
    return number + ends[0].unwrap() + len(str(either))
