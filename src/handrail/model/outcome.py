"""How a generator is gone on with: a value sent, or an exception thrown. The one place that does."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Yielded:
    """The generator yielded this."""

    value: Any


@dataclass(frozen=True, slots=True)
class Returned:
    """The generator returned this."""

    value: Any


@dataclass(frozen=True, slots=True)
class Raised:
    """The generator raised this."""

    error: BaseException


Advance: TypeAlias = Yielded | Returned | Raised


def resume(
    generator: Generator[Any, Any, Any], value: Any = None, error: BaseException | None = None
) -> Advance:
    """What the generator does next, given a value or an error. Never raises an ``Exception``.

    ``KeyboardInterrupt`` and ``SystemExit`` of the body itself are returned too; the caller
    decides.
    """
    try:
        yielded = generator.send(value) if error is None else generator.throw(error)
    except StopIteration as stop:
        return Returned(stop.value)
    except BaseException as raised:  # noqa: BLE001  # every end of a body is an outcome
        return Raised(raised)
    return Yielded(yielded)
