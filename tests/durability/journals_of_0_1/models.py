"""Models of pydantic in a journal."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from actions import act, did, dies_until
from pydantic import BaseModel, ConfigDict, PrivateAttr

from handrail import Steps, step, workflow

T = TypeVar("T")


class Item(BaseModel):
    """A model with a default, and something private."""

    name: str
    size: int = 1
    _seen: list[int] = PrivateAttr(default_factory=list)


class Open(BaseModel):
    """A model that takes more than it declares."""

    model_config = ConfigDict(extra="allow")

    name: str


class Shelf(BaseModel, Generic[T]):
    """A generic model."""

    content: T


async def items() -> list[Item]:
    """Models, one of which has more set than the other."""
    did()
    seen = Item(name="seen", size=2)
    seen._seen.append(5)
    return [Item(name="plain"), seen]


async def others() -> Any:
    """Models that are told by their tags alone."""
    did()
    return [Open.model_validate({"name": "o", "more": (1, 2)}), Shelf[Item](content=Item(name="s"))]


@workflow("models")
def models(first: Item) -> Steps[list[Any]]:
    """Models as input, outputs, arguments and value."""
    known = yield from step("items").call(items)
    other = yield from step("others").call(others)
    yield from step("with them").call(act, known)
    yield from step("dies").call(dies_until, 2)
    return [first, known, other]
