"""Frozen, slotted dataclasses that are generic."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any, NoReturn, TypeVar

C = TypeVar("C")


def unchangeable(cls: type[C]) -> type[C]:
    """The dataclass, refusing every assignment with ``FrozenInstanceError``.

    ``dataclass(frozen=True, slots=True)`` refers to the class as it was before it got its slots,
    so an assignment to an unknown name is a ``TypeError`` about ``super()``; ``typing`` makes one
    whenever ``Result[str](...)`` is called, and expects an ``AttributeError``.

    Source: python/cpython issue 90562.
    """
    cls.__setattr__ = _refuse  # type: ignore[method-assign]  # it never returns, which is the point
    cls.__delattr__ = _refuse  # type: ignore[method-assign]  # as above
    return cls


def _refuse(self: object, name: str, *_: Any) -> NoReturn:
    del self
    raise FrozenInstanceError(f"cannot assign to field {name!r}")
