"""What an author sets on a step or a run: retry, backoff, limits, secrets."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import attrs

from handrail.errors import DefinitionError

if TYPE_CHECKING:
    from handrail.model.budget import Budget  # noqa: TC004  # attrs keeps the annotation as text

OnError: TypeAlias = Literal["fail_fast", "continue", "all_or_nothing"]
RetryOn: TypeAlias = (
    "type[BaseException] | tuple[type[BaseException], ...] | Callable[[BaseException], bool]"
)

ON_ERROR_MODES = ("fail_fast", "continue", "all_or_nothing")


def seconds_of(value: object, what: str) -> float:
    """A duration as seconds, from a number of seconds or a timedelta.

    Raises:
        DefinitionError: it is negative, not finite, or neither of the two.
    """
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise DefinitionError(f"{what} must be seconds (a number) or a timedelta, got {value!r}")
    if not math.isfinite(value) or value < 0:
        raise DefinitionError(f"{what} must be finite and not negative, got {value!r}")
    return float(value)


def positive_seconds(value: object, what: str) -> float:
    """A duration above zero as seconds; see ``seconds_of``."""
    seconds = seconds_of(value, what)
    if seconds == 0:
        raise DefinitionError(f"{what} must be above 0 seconds")
    return seconds


def count_of(value: object, what: str, *, least: int = 1) -> int:
    """A whole number of at least ``least``.

    Raises:
        DefinitionError: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise DefinitionError(f"{what} must be a whole number of at least {least}, got {value!r}")
    return value


def _seconds(_: Any, attribute: attrs.Attribute[Any], value: object) -> None:
    seconds_of(value, attribute.name)


def _factor(_: Any, attribute: attrs.Attribute[Any], value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 1:
        raise DefinitionError(f"{attribute.name} must be a number of at least 1, got {value!r}")


def _share(_: Any, attribute: attrs.Attribute[Any], value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise DefinitionError(f"{attribute.name} must be a number from 0 to 1, got {value!r}")


def _count(_: Any, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is not None:
        count_of(value, attribute.name)


def _optional_seconds(_: Any, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is not None:
        positive_seconds(value, attribute.name)


@attrs.frozen
class Backoff:
    """The pause before attempt n + 1: ``initial_s * factor ** (n - 1)``, at most ``max_s``.

    ``jitter`` is the share of the pause that may be taken off; how much is a hash of run, path and
    attempt, so that a replay waits as the first run did.
    """

    initial_s: float = attrs.field(default=1.0, validator=_seconds)
    factor: float = attrs.field(default=2.0, validator=_factor)
    max_s: float = attrs.field(default=60.0, validator=_seconds)
    jitter: float = attrs.field(default=0.5, validator=_share)


@attrs.frozen
class Retry:
    """How often a step is tried, how long it pauses in between, and after which errors."""

    max_attempts: int = attrs.field(validator=_count)
    backoff: Backoff = Backoff()
    on: RetryOn | None = None

    def covers(self, error: BaseException) -> bool:
        """True if this error may be tried again.

        Raises:
            Exception: whatever a predicate given as ``on`` raises.
        """
        on = self.on
        if on is None:
            return isinstance(error, Exception)
        if not isinstance(on, (type, tuple)):
            return bool(on(error))
        return isinstance(error, cast("type[BaseException]", on))


def backoff_of(value: Backoff | float | timedelta | None) -> Backoff:
    """A ``Backoff``, from one or from a fixed number of seconds."""
    if value is None:
        return Backoff()
    if isinstance(value, Backoff):
        return value
    seconds = seconds_of(value, "backoff")
    return Backoff(initial_s=seconds, factor=1.0, max_s=seconds, jitter=0.0)


def _counts(_: Any, attribute: attrs.Attribute[Any], value: Mapping[str, int]) -> None:
    for tag, number in value.items():
        if not isinstance(tag, str) or not tag:
            raise DefinitionError(f"{attribute.name}: a tag must be a name, got {tag!r}")
        count_of(number, f"{attribute.name}[{tag!r}]")


def _budget(_: Any, __: attrs.Attribute[Any], value: object) -> None:
    from handrail.model.budget import Budget

    if value is not None and not isinstance(value, Budget):
        raise DefinitionError(f"budget of Limits must be a Budget(...), got {value!r}")


@attrs.frozen
class Limits:
    """Bounds of one run, None for none; a run that reaches one ends as failed and names it.

    ``max_concurrency`` and ``tags`` (units of a tag at once) and ``rates`` (starts a minute, by
    tag) do not end a run, they make steps wait. ``timeout_s`` is wall time from the recorded start
    of the run. ``max_depth`` bounds nested workflows, ``max_visits`` how often one literal step
    name may recur through f-strings. ``budget`` bounds what its agents consume.
    """

    max_steps: int | None = attrs.field(default=None, validator=_count)
    max_concurrency: int | None = attrs.field(default=None, validator=_count)
    tags: Mapping[str, int] = attrs.field(factory=dict, validator=_counts)
    rates: Mapping[str, int] = attrs.field(factory=dict, validator=_counts)
    timeout_s: float | None = attrs.field(default=None, validator=_optional_seconds)
    max_depth: int = attrs.field(default=32, validator=_count)
    max_visits: int | None = attrs.field(default=None, validator=_count)
    budget: Budget | None = attrs.field(default=None, validator=_budget)


def _texts(given: Iterable[str]) -> tuple[str, ...]:
    return tuple(given)


@attrs.frozen
class Secrets:
    """Which environment variables hold secrets: those named, and those with a word in the name."""

    names: tuple[str, ...] = attrs.field(default=(), converter=_texts)
    words: tuple[str, ...] = attrs.field(
        default=("KEY", "TOKEN", "SECRET", "PASSWORD"), converter=_texts
    )
