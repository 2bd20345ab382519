"""Workflows that Hypothesis writes, and a way to run them: steps that fail or not as it draws.

Literal names have no ``-`` in them and f-strings always do, so that a run can tell them apart.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import strategies as st

HEAD = """\
from contextlib import nullcontext
from handrail import StepFailed, Steps, WorkflowError, step, workflow

def act(): ...

def helper(i):
    yield from step("aid").call(act)
    if flip():
        return 1
    yield from step(f"late-{i}").call(act)

def make(i):
    if flip():
        return step(f"made-{i}").call(act)
    return step(f"other-{i}").call(act)

def body(i):
    first = yield from step("first").call(act)
    if first:
        return step
    yield from step("last").call(act)

@workflow
def flow(n: int) -> Steps[int]:
"""

_names = st.sampled_from(["a", "b", "c", "d", "end", "e f"])
_named = st.one_of(_names.map(repr), st.sampled_from(['f"x-{n}"', 'f"y-{n}-z"', '"v-" + str(n)']))
_simple = st.builds("step({}).call(act)".format, _named)
_member = st.one_of(_simple, st.builds("(step('m').call(act) if flip() else {})".format, _simple))
_many = st.builds("*[step({}).call(act) for k in range(2)]".format, _named)
_group = st.builds(
    "step({}).{}({})".format,
    _named,
    st.sampled_from(["parallel", "race"]),
    st.lists(st.one_of(_member, _many), min_size=1, max_size=3).map(", ".join),
)
_built = st.one_of(
    _simple,
    _group,
    st.builds("step({}).for_each([1, 2], body)".format, _named),
    st.builds("step({}).validate(['lint'], on_failure={})".format, _named, _simple),
    st.builds("step({}).branch((flip, {}), (flip, {}))".format, _named, _simple, _simple),
    st.builds("step({}).call(act).on_error(lambda ctx, f: {})".format, _named, _simple),
    st.just("helper(n)"),
    st.just("make(n)"),
)
_yielded = st.builds("yield from {}".format, _built)
_line = st.one_of(
    _yielded,
    st.builds("got = {}".format, _yielded),
    st.builds("yield {}".format, _simple),
    st.builds("kept = {}; yield from kept".format, _simple),
    st.builds("n += 1 if ({}) else 2".format, _yielded),
    st.builds("flip() and ({})".format, _yielded),
    st.sampled_from(["n += 1", "return n", "raise WorkflowError('no')"]),
)
_in_loop = st.one_of(_line, st.sampled_from(["break", "continue"]))


@st.composite
def _blocks(draw: st.DrawFn, depth: int, *, loop: bool) -> list[str]:
    lines: list[str] = []
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(["line", "line", "if", "for", "while", "try", "with"]))
        if depth == 0 or kind == "line":
            lines.append(draw(_in_loop if loop else _line))
        else:
            lines += draw(_compound(kind, depth, loop=loop))
    return lines


@st.composite
def _compound(draw: st.DrawFn, kind: str, depth: int, *, loop: bool) -> list[str]:
    def block(*, loop: bool = loop) -> list[str]:
        return ["    " + line for line in draw(_blocks(depth - 1, loop=loop))]

    match kind:
        case "if":
            head = draw(st.sampled_from(["if flip():", "if (yield from step('q').ask('Q?')):"]))
            lines = [head, *block()]
            if draw(st.booleans()):
                lines += ["elif flip():", *block()]
            return [*lines, *(["else:", *block()] if draw(st.booleans()) else [])]
        case "for":
            lines = ["for n in range(2):", *block(loop=True)]
            return [*lines, *(["else:", *block()] if draw(st.booleans()) else [])]
        case "while":
            test = draw(st.sampled_from(["flip()", "(yield from step(f'w-{n}').ask('W?'))"]))
            return [f"while {test}:", *block(loop=True)]
        case "with":
            return ["with nullcontext():", *block()]
        case _:
            lines = ["try:", *block(), "except StepFailed:", *block()]
            lines += ["else:", *block()] if draw(st.booleans()) else []
            # A `return` or `break` in a finally is a mistake of its own, and hides failures.
            return [*lines, *(["finally:", "    n += 1"] if draw(st.booleans()) else [])]


programs: st.SearchStrategy[str] = _blocks(2, loop=False).map(
    lambda lines: (
        HEAD + "".join(f"    {line}\n" for line in lines) + "    yield from step('z').call(act)\n"
    )
)


def distinct(program: str) -> str:
    """The same program with another name at each ``step(...)``."""
    numbers = itertools.count(1)
    return re.sub(r"(step\(f?['\"])", lambda found: f"{found.group()}s{next(numbers)} ", program)


class _Failed(Exception):
    """Stands for StepFailed."""


class _Step:
    """A step that only remembers what it was made of."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.verb = ""
        self.args: tuple[Any, ...] = ()
        self.fix: _Step | None = None
        self.handler: Callable[[Any, Any], _Step] | None = None

    def __iter__(self) -> Iterator[Any]:
        got = yield self
        return got

    def on_error(self, handler: Callable[[Any, Any], _Step]) -> _Step:
        self.handler = handler
        return self

    def __getattr__(self, verb: str) -> Callable[..., _Step]:
        def take(*args: Any, on_failure: _Step | None = None) -> _Step:
            self.verb, self.args, self.fix = verb, args, on_failure
            return self

        return take


def run(source: str, draws: list[bool]) -> list[str]:
    """The paths of the steps that one run of ``flow`` yields; ``draws`` decide all that is open."""
    decided = itertools.chain(draws, itertools.repeat(False))
    names: dict[str, Any] = {
        "step": _Step,
        "StepFailed": _Failed,
        "WorkflowError": ValueError,
        "Steps": list,
        "workflow": lambda function: function,
        "nullcontext": contextlib.nullcontext,
        "flip": lambda: next(decided),
    }
    kept = [line for line in source.splitlines() if not line.startswith("from ")]
    exec("\n".join(kept), names)
    paths: list[str] = []
    _drive(names["flow"](1), "", paths, decided)
    return paths


def _drive(generator: Any, prefix: str, paths: list[str], decided: Iterator[bool]) -> None:
    with contextlib.suppress(StopIteration, ValueError, _Failed):
        one = next(generator)
        while len(paths) < 80:
            _perform(one, prefix, paths, decided)
            fails = next(decided) and next(decided)
            one = generator.throw(_Failed()) if fails else generator.send(next(decided))
    generator.close()


def _perform(one: _Step, prefix: str, paths: list[str], decided: Iterator[bool]) -> None:
    path = f"{prefix}{one.name}"
    paths.append(path)
    match one.verb:
        case "parallel" | "race":
            for member in one.args:
                _perform(member, f"{path}/", paths, decided)
        case "branch":
            for test, member in one.args:
                if test():
                    _perform(member, f"{path}/", paths, decided)
                    break
        case "for_each":
            for key, item in enumerate(one.args[0]):
                made = one.args[1](item)
                assert inspect.isgenerator(made)
                _drive(made, f"{path}/{key}/", paths, decided)
        case "validate" if one.fix:
            _perform(one.fix, f"{path}/1/", paths, decided)
        case _:
            pass
    if one.handler and next(decided):
        _perform(one.handler(None, None), f"{path}/", paths, decided)
