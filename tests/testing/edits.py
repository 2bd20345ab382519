"""Drawn workflows in which one step is another, wherever it stands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from handrail.testing.shapes import (
    Body,
    Child,
    Choice,
    Each,
    Held,
    Inner,
    Listen,
    Nap,
    Race,
    Rounds,
    Shape,
    Statement,
    Together,
    Try,
)


class Edit(NamedTuple):
    """The whole workflow with one step changed, and by which paths that shows, as patterns: its
    own, and those of members of ``for_each`` that it is a part of, for their items are others.
    """

    body: Body
    paths: tuple[str, ...]


Put = Callable[[Any], Body]


def edits_of(body: Body) -> list[Edit]:
    """One for each step of the workflow."""
    return list(_in_statements(body.statements, ("",), "", Body))


def _in_statements(
    statements: tuple[Statement, ...], at: tuple[str, ...], prefix: str, put: Put
) -> Iterator[Edit]:
    for index, one in enumerate(statements):
        label = f"{prefix}{index}"

        def put_one(new: Any, index: int = index) -> Body:
            return put((*statements[:index], new, *statements[index + 1 :]))

        if isinstance(one, Shape):
            yield from _in_shape(one, (at[0] + label, *at[1:]), put_one)
        elif isinstance(one, Try):
            parts = (("body", "b"), ("handler", "e"), ("final", "f"))
            for name, letter in parts:
                yield from _in_statements(
                    getattr(one, name) or (),
                    at,
                    f"{label}{letter}",
                    lambda new, one=one, name=name, put=put_one: put(replace(one, **{name: new})),
                )


def _in_shape(  # noqa: C901, PLR0912  # one case a verb
    shape: Shape, at: tuple[str, ...], put: Put
) -> Iterator[Edit]:
    other = Listen() if isinstance(shape.what, Nap) else Nap(9.0)
    yield Edit(put(replace(shape, what=other)), at)
    if shape.fallback is not None:
        path = (f"{at[0]}/o", *at[1:])
        yield from _in_shape(shape.fallback, path, lambda new: put(replace(shape, fallback=new)))

    def put_what(**changes: Any) -> Body:
        return put(replace(shape, what=replace(shape.what, **changes)))

    below = rf"{at[0]}(~\d+)?/"
    match shape.what:
        case Together(members=members) | Race(members=members):
            for index, one in enumerate(members):
                yield from _in_shape(
                    one, (f"{below}{index}", *at[1:]), _at(index, members, put_what, "members")
                )
        case Each(members=members):
            for index, one in enumerate(members):
                member, put_one = f"{below}{index}", _at(index, members, put_what, "members")
                here = (f"{member}/", member, *at[1:])
                if isinstance(one, Shape):
                    yield from _in_shape(one, (f"{member}/0", *here[1:]), put_one)
                else:
                    yield from _in_statements(
                        one.statements, here, "", lambda new, put=put_one: put(Body(new))
                    )
        case Rounds(fix=fix):
            if fix is not None:
                path = (rf"{below}\d+/fix", *at[1:])
                yield from _in_shape(fix, path, lambda new: put_what(fix=new))
        case Choice(arms=arms):
            for index, (verdict, one) in enumerate(arms):
                put_arm = _at(index, arms, put_what, "arms")
                yield from _in_shape(
                    one,
                    (f"{below}{index}", *at[1:]),
                    lambda new, put=put_arm, verdict=verdict: put((verdict, new)),
                )
        case Child(body=body) | Inner(body=body) | Held(body=body):
            yield from _in_statements(
                body.statements, (below, *at[1:]), "", lambda new: put_what(body=Body(new))
            )
        case _:  # it holds none
            pass


def _at(index: int, held: tuple[Any, ...], put: Callable[..., Body], name: str) -> Put:
    return lambda new: put(**{name: (*held[:index], new, *held[index + 1 :])})
