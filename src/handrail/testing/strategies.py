"""Hypothesis strategies that draw workflows, as the data of ``handrail.testing.shapes``.

    @given(strategies.bodies())
    def test_every_run_ends(body: Body) -> None:
        result = executor.run_sync(workflow_of(body))

They draw bodies with ``try``, ``except`` and ``finally``; calls that fail at some attempts or at
all; groups of every kind, sub-workflows, validations, branches and waits within one another; every
modifier; failures that the body handles, and failures that it does not.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from hypothesis import strategies as st

from handrail.model.dataclass import dataclass
from handrail.testing.shapes import (
    ALWAYS,
    Act,
    Ask,
    Body,
    Child,
    Choice,
    Chore,
    Consult,
    Each,
    Grow,
    Held,
    Inner,
    Listen,
    Nap,
    Race,
    Raise,
    Rounds,
    Shape,
    Statement,
    Together,
    Try,
    What,
)

_DEPTH = 3
_FAILURES = st.sampled_from([0, 0, 0, 1, 2, ALWAYS])
NAME = "name"
"""The only name that drawn steps claim, so that they wait for it, but never in a circle."""


def bodies(
    *,
    timeless: bool = False,
    waits: bool = True,
    agents: bool = False,
    holds: bool = True,
    depth: int = _DEPTH,
) -> st.SearchStrategy[Body]:
    """Whole workflows.

    ``timeless``: only those whose result does not depend on the order in which steps end: no race,
    no timeout, and no ``fail_fast`` group. ``waits``: with questions, signals and sleep.
    ``agents``: with agents. ``holds``: with steps that claim a name. ``depth``: how deep steps may
    nest.
    """
    return _bodies(_Drawn(timeless, waits, agents, holds), depth)


def shapes(
    *,
    timeless: bool = False,
    waits: bool = True,
    agents: bool = False,
    holds: bool = True,
    depth: int = _DEPTH,
) -> st.SearchStrategy[Shape]:
    """Single steps, with all that they contain; the arguments are those of ``bodies``."""
    return _shapes(_Drawn(timeless, waits, agents, holds), depth)


def growing(*, timeless: bool = False, waits: bool = True) -> st.SearchStrategy[Body]:
    """Workflows of a ``work`` whose tasks bring tasks, some with ids in use.

    The work has one attempt or two. ``timeless`` and ``waits`` are as in ``bodies``.
    """
    drawn = _Drawn(timeless, waits, agents=False, holds=True)
    work = st.builds(
        Shape,
        _work(drawn, 1),
        attempts=st.sampled_from([1, 1, 2]),
        settle=st.sampled_from([None, "default"]),
        rollback=st.sampled_from([None, "succeeds"]),
    )
    more = st.one_of(_shapes(drawn, 0), st.builds(Raise))
    return st.builds(_one_work, work, st.lists(more, max_size=2))


def _one_work(work: Shape, more: list[Statement]) -> Body:
    return Body((work, *more))


@dataclass(frozen=True, slots=True)
class _Drawn:
    """What the strategies may draw."""

    timeless: bool
    waits: bool
    agents: bool
    holds: bool


# Each strategy is part of many others. Without a cache it would be built some thousand times.


@cache
def _bodies(drawn: _Drawn, depth: int, most: int = 3) -> st.SearchStrategy[Body]:
    return st.builds(Body, _statements(drawn, depth, 0, most))


@cache
def _statements(
    drawn: _Drawn, depth: int, least: int, most: int
) -> st.SearchStrategy[tuple[Statement, ...]]:
    plain: st.SearchStrategy[Any] = _shapes(drawn, depth)
    if depth > 0:
        plain = st.one_of(plain, plain, _tries(drawn, depth - 1), st.builds(Raise))
    return st.lists(plain, min_size=least, max_size=most).map(tuple)


@cache
def _tries(drawn: _Drawn, depth: int) -> st.SearchStrategy[Try]:
    return st.builds(
        Try,
        _statements(drawn, depth, 1, 2),
        st.none() | _statements(drawn, depth, 0, 1),
        st.sampled_from(["failure", "failure", "everything"]),
        _statements(drawn, depth, 0, 1),
    )


@cache
def _shapes(drawn: _Drawn, depth: int) -> st.SearchStrategy[Shape]:
    plain = st.builds(Shape, _whats(drawn, depth))
    if depth <= 0:
        return plain
    modified = st.builds(
        Shape,
        _whats(drawn, depth),
        when=st.sampled_from([None, None, None, True, False, "raises"]),
        attempts=st.sampled_from([1, 1, 2, 3]),
        backoff_s=st.sampled_from([0.0, 1.0]),
        timeout_s=st.none() if drawn.timeless else st.sampled_from([None, None, 1.5]),
        fallback=st.none() | _shapes(drawn, depth - 2),
        settle=st.sampled_from([None, None, "default", "skip"]),
        rollback=st.sampled_from([None, None, "succeeds", "fails"]),
        holds=st.sampled_from([None, None, None, NAME]) if drawn.holds else st.none(),
    )
    return st.one_of(plain, modified)


@cache
def _whats(drawn: _Drawn, depth: int) -> st.SearchStrategy[What]:
    leaves: list[st.SearchStrategy[Any]] = [st.builds(Act, _FAILURES)]
    if drawn.waits:
        leaves += [
            _questions(drawn),
            st.builds(Nap, st.sampled_from([1.0, 2.0])),
            st.builds(Listen),
        ]
    if drawn.agents:
        leaves[0] = st.one_of(leaves[0], st.builds(Consult, _FAILURES))
    if depth <= 0:
        return leaves[0]
    return st.one_of(leaves[0], *leaves, *_composites(drawn, depth - 1))


def _questions(drawn: _Drawn) -> st.SearchStrategy[Ask]:
    if drawn.timeless:
        return st.just(Ask())
    return st.builds(Ask, st.sampled_from([None, 1.0]), st.booleans())


@cache
def _composites(drawn: _Drawn, depth: int) -> tuple[st.SearchStrategy[Any], ...]:
    inner = _shapes(drawn, depth)
    body = _bodies(drawn, depth, 2)
    few = st.lists(inner, max_size=3).map(tuple)
    some = st.lists(inner, min_size=1, max_size=3).map(tuple)
    modes = (
        ["continue", "all_or_nothing"]
        if drawn.timeless
        else ["fail_fast", "continue", "all_or_nothing"]
    )
    on_error, window = st.sampled_from(modes), st.sampled_from([None, None, 1, 2])
    verdicts = st.sampled_from([True, True, False, None])
    found: list[st.SearchStrategy[Any]] = [
        st.builds(Together, few, on_error, window),
        st.builds(Each, st.lists(st.one_of(inner, body), max_size=3).map(tuple), on_error, window),
        st.builds(
            Rounds,
            st.lists(_FAILURES, min_size=1, max_size=2).map(tuple),
            st.integers(0, 2),
            st.none() | inner,
        ),
        st.builds(Choice, st.lists(st.tuples(verdicts, inner), min_size=1, max_size=2).map(tuple)),
        st.builds(Child, body),
        st.builds(Inner, body),
    ]
    if drawn.holds:
        found.append(st.builds(Held, st.just(NAME), body))
    found.append(_work(drawn, depth))
    if not drawn.timeless:
        found.append(st.builds(Race, some))
    return tuple(found)


@cache
def _work(drawn: _Drawn, depth: int) -> st.SearchStrategy[Grow]:
    """A ``work``; if its window is wider than one, time decides which tasks are left."""
    inner = st.one_of(st.builds(Shape, st.builds(Act, _FAILURES)), _shapes(drawn, depth))
    chore = st.builds(
        Chore,
        st.one_of(inner, _bodies(drawn, depth, 2)),
        priority=st.sampled_from([0.0, 0.0, -1.0, 2.0]),
        repeats=st.sampled_from([False, False, True]),
    )
    few = st.lists(chore, max_size=2).map(tuple)
    grown = st.builds(_with_children, chore, st.lists(st.tuples(chore, few), max_size=2))
    tasks = st.lists(grown, max_size=2).map(tuple)
    modes = st.sampled_from(["continue"] if drawn.timeless else ["continue", "fail_fast"])
    bound = st.sampled_from([None, 2, 4])
    one_by_one = st.builds(Grow, tasks, modes, st.just(1), bound, bound)
    if drawn.timeless:
        return st.one_of(st.builds(Grow, tasks, modes, st.sampled_from([None, 2])), one_by_one)
    beside = st.builds(Grow, tasks, modes, st.sampled_from([None, 1, 2]), bound, bound)
    return st.one_of(beside, one_by_one)


def _with_children(chore: Chore, children: list[tuple[Chore, tuple[Chore, ...]]]) -> Chore:
    below = tuple(replace(child, children=grandchildren) for child, grandchildren in children)
    return replace(chore, children=below)
