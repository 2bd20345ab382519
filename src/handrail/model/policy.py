"""What an author sets on a step or a run: retry, backoff, limits, budget, ladder."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, TypeAlias, cast

import attrs

from handrail.errors import DefinitionError
from handrail.model.outcome import members_of

OnError: TypeAlias = Literal["fail_fast", "continue", "all_or_nothing"]
RetryOn: TypeAlias = (
    "type[BaseException] | tuple[type[BaseException], ...] | Callable[[BaseException], bool]"
)

ON_ERROR_MODES = ("fail_fast", "continue", "all_or_nothing")


LONGEST_S = 100 * 366 * 24 * 3600.0
"""A longer duration is a mistake, and no calendar may have its end."""


def seconds_of(value: object, what: str) -> float:
    """A duration as seconds, from a number of seconds or a timedelta.

    Raises:
        DefinitionError: it is negative, not finite, over a hundred years, or of another type.
    """
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise DefinitionError(f"{what} must be seconds (a number) or a timedelta, got {value!r}")
    if not 0 <= value < math.inf:
        raise DefinitionError(f"{what} must be finite and not negative, got {value!r}")
    if value > LONGEST_S:
        raise DefinitionError(f"{what} must be at most a hundred years, got {value!r} seconds")
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


def word_of(value: object, what: str, words: Sequence[str]) -> object:
    """A value that is one of these words.

    Raises:
        DefinitionError: it is none of them.
    """
    if value not in words:
        listed = ", ".join(map(repr, words))
        raise DefinitionError(f"{what} must be one of {listed}, got {value!r}")
    return value


Validator: TypeAlias = "Callable[[Any, attrs.Attribute[Any], object], None]"


def checked(check: Callable[..., object], owner: str = "", **bounds: Any) -> Validator:
    """A validator that calls ``check(value, what, **bounds)``; ``what`` names field and owner.

    None passes unchecked in a field whose default is None.
    """
    whose = f" of {owner}" if owner else ""

    def validate(_: Any, attribute: attrs.Attribute[Any], value: object) -> None:
        if value is not None or attribute.default is not None:
            check(value, f"{attribute.name}{whose}", **bounds)

    return validate


def number(kind: str, fits: Callable[[float], bool], owner: str = "") -> Validator:
    """A validator for a field that takes the numbers which fit; ``kind`` says which those are."""

    def check(value: object, what: str) -> None:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not fits(value):
            raise DefinitionError(f"{what} must be {kind}, got {value!r}")

    return checked(check, owner)


@attrs.frozen
class Backoff:
    """The pause before attempt n + 1: ``initial_s * factor ** (n - 1)``, at most ``max_s``.

    ``jitter`` is the largest share of the pause that may be taken off. A hash of run, path and
    attempt decides how much, so that a replay waits as long as the first run did.
    """

    initial_s: float = attrs.field(default=1.0, validator=checked(seconds_of))
    factor: float = attrs.field(
        default=2.0, validator=number("a number of at least 1", lambda factor: factor >= 1)
    )
    max_s: float = attrs.field(default=60.0, validator=checked(seconds_of))
    jitter: float = attrs.field(
        default=0.5, validator=number("a number from 0 to 1", lambda share: 0 <= share <= 1)
    )


@attrs.frozen
class Retry:
    """How many attempts a step has, with which pauses, and after which errors."""

    max_attempts: int = attrs.field(validator=checked(count_of))
    backoff: Backoff = Backoff()
    on: RetryOn | None = None

    def covers(self, error: BaseException) -> bool:
        """True if another attempt may follow this error.

        Raises:
            Exception: whatever a predicate given as ``on`` raises.
        """
        on = self.on
        if on is None:
            return isinstance(error, Exception)
        if not isinstance(on, (type, tuple)):
            return bool(on(error))
        kinds = cast("type[BaseException]", on)
        members = members_of(error)
        return isinstance(error, kinds) or all(isinstance(one, kinds) for one in members)


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


def _budget(value: object, what: str) -> None:
    if not isinstance(value, Budget):
        raise DefinitionError(f"{what} must be a Budget(...), got {value!r}")


OnLimit: TypeAlias = Literal["fail", "ask"]


@attrs.frozen
class Limits:
    """Bounds of one run; None: no bound. A run that reaches one ends as failed and names it.

    ``max_concurrency`` and ``tags`` (units of a tag at once) and ``rates`` (starts a minute, evenly
    spaced, by tag) do not end a run, they make steps wait. ``timeout_s`` is time from the recorded
    start of the run, suspensions included; setting the clock meanwhile adds none. ``max_depth``
    bounds nested workflows, ``max_visits`` how many steps one line of a body may yield. ``budget``
    bounds what the run's agents consume.

    ``on_breach="ask"``: no step begins beyond ``max_steps``, ``max_visits`` or ``timeout_s`` until
    somebody answers a gate of the run: ``"allow"`` allows as much again, ``"stop"`` ends the run as
    failed. Steps at work continue meanwhile.
    """

    max_steps: int | None = attrs.field(default=None, validator=checked(count_of))
    max_concurrency: int | None = attrs.field(default=None, validator=checked(count_of))
    tags: Mapping[str, int] = attrs.field(factory=dict, validator=_counts)
    rates: Mapping[str, int] = attrs.field(factory=dict, validator=_counts)
    timeout_s: float | None = attrs.field(default=None, validator=checked(positive_seconds))
    max_depth: int = attrs.field(default=32, validator=checked(count_of))
    max_visits: int | None = attrs.field(default=None, validator=checked(count_of))
    budget: Budget | None = attrs.field(default=None, validator=checked(_budget, "Limits"))
    on_breach: OnLimit = attrs.field(
        default="fail", validator=checked(word_of, "Limits", words=("fail", "ask"))
    )

    def over(self, other: Limits | None) -> Limits:
        """These limits; where one has its default, the limit of ``other``."""
        if other is None:
            return self
        said = {
            field.name: value
            for field in attrs.fields(Limits)
            if (value := getattr(self, field.name)) != getattr(NO_LIMITS, field.name)
        }
        return attrs.evolve(other, **said)

    @property
    def bounds_steps(self) -> bool:
        """True if one of these limits can keep a step from beginning."""
        asks = self.on_breach == "ask" and self.timeout_s is not None
        return asks or (self.max_steps, self.max_visits) != (None, None)

    @property
    def bounds_agents(self) -> bool:
        """True if these limits end every run, however its agents behave.

        Bounds on tokens and dollars do not, because an agent may not report what it uses.
        """
        if (self.max_steps, self.timeout_s) != (None, None):
            return True
        budget = self.budget
        return budget is not None and (budget.launches, budget.wall_s) != (None, None)


NO_LIMITS = Limits()
OnBreach: TypeAlias = Literal["fail", "suspend", "ask"]
ON_BREACH = ("fail", "suspend", "ask")


_USD = [
    number("a number", lambda _: True, "a Budget"),
    number("above 0", lambda usd: 0 < usd < math.inf, "a Budget"),
]
_BUDGET_COUNT = checked(count_of, "a Budget")


def _wall_s(value: float | timedelta | None) -> float | None:
    return None if value is None else positive_seconds(value, "wall_s of a Budget")


@attrs.frozen(kw_only=True)
class Budget:
    """Bounds on what the agents of a run, or below a step, consume. None: no bound.

    - ``tokens``, input and output together; ``usd``; ``launches`` of agents, re-asks and retries
      included; ``wall_s``, seconds since the step or run began, waits included.
    - handrail reserves a share before each launch: ``reserve_tokens`` and ``reserve_usd``, or as
      much as the most expensive launch so far used; while neither is known, a launch runs alone.
      When a launch ends, what it used replaces its reserve; if it does not report that, the reserve
      stays, and does not count as nothing. ``unknown``: after so many launches that did not report
      the tokens or dollars that are bounded, a gate asks whether as many again may be made.
    - When the share ``soft`` is passed, a ``BudgetWarning`` is emitted, once.
    - A launch that does not fit is not made: the step fails (``"fail"``), the run suspends until it
      is resumed with more (``"suspend"``), or a gate asks whether as much again may be used
      (``"ask"``). With ``"fail"``, a launch is also stopped when ``wall_s`` is over.

    The journal records all of it, so neither a crash nor a resume restarts the count.
    """

    tokens: int | None = attrs.field(default=None, validator=_BUDGET_COUNT)
    usd: float | None = attrs.field(default=None, validator=_USD)
    launches: int | None = attrs.field(default=None, validator=_BUDGET_COUNT)
    wall_s: float | None = attrs.field(default=None, converter=_wall_s)
    unknown: int | None = attrs.field(default=None, validator=_BUDGET_COUNT)
    soft: float = attrs.field(
        default=0.8,
        validator=number("a share above 0 and up to 1", lambda share: 0 < share <= 1, "a Budget"),
    )
    on_breach: OnBreach = attrs.field(
        default="fail", validator=checked(word_of, "a Budget", words=ON_BREACH)
    )
    reserve_tokens: int | None = attrs.field(default=None, validator=_BUDGET_COUNT)
    reserve_usd: float | None = attrs.field(default=None, validator=_USD)

    def __attrs_post_init__(self) -> None:
        if (self.tokens, self.usd, self.launches, self.wall_s) == (None, None, None, None):
            raise DefinitionError(
                "a Budget needs a bound: tokens=, usd=, launches= or wall_s=, such as Budget(usd=5)"
            )


DAY_S = 86_400.0
OnCap: TypeAlias = Literal["wait", "fallback"]
ON_CAP = ("wait", "fallback")
OnAuth: TypeAlias = Literal["suspend", "probe"]
ON_AUTH = ("suspend", "probe")


_TRIES = checked(count_of, "a Ladder", least=0)


def _backoff(value: object, what: str) -> None:
    if not isinstance(value, Backoff):
        raise DefinitionError(f"{what} must be a Backoff, got {value!r}")


def _wait_s(value: float | timedelta) -> float:
    return positive_seconds(value, "a wait of a Ladder")


def _margin_s(value: float | timedelta) -> float:
    return seconds_of(value, "cap_margin_s of a Ladder")


def _probe_s(value: float | timedelta | None) -> float | None:
    return None if value is None else positive_seconds(value, "cap_probe_s of a Ladder")


@attrs.frozen(kw_only=True)
class Ladder:
    """What follows a failed launch of an agent. None of this uses up the step's ``.retry``.

    - After a failed server, a failed connection or a rate limit, the step retries, with pauses by
      ``backoff`` or at the time that the reply named, for up to ``transient_max_wait_s``; then the
      run suspends. If the agent has a fallback, that takes over after 6 retries.
      ``transient_retries`` sets another count: after it the step falls back, or fails.
    - ``crash_retries`` after a program that ended without saying that it is done, with pauses by
      ``backoff``; ``timeout_retries`` after a program that hung. Both continue the session, if the
      backend can.
    - For a usage cap with a known end, the step waits until ``cap_margin_s`` after that, with one
      probe after ``cap_probe_s`` (None: no probe), because such texts are misread and caps are
      lifted early. Without a known end it probes every ``cap_wait_s``. A cap that ends later than
      ``cap_max_wait_s`` from now, or lasts longer, suspends the run. With ``cap="fallback"`` the
      next of ``Agent(fallback=)`` takes over at once, and only the last of them waits.
    - A missing login suspends the run. With ``auth="probe"`` the step first probes for the login,
      after a minute and then every ``cap_wait_s``, for up to ``cap_max_wait_s``.
    - ``overflow_retries`` after a session that got too long: the backend makes it smaller if it
      can, else a new session begins with a summary.
    - An answer that does not fit is asked for again, ``Agent(max_reasks=)`` times in all; the last
      of several re-asks is a new session with the prompt reframed.
    - Then the next of ``Agent(fallback=)``. ``max_launches`` bounds one attempt in all.
    """

    transient_retries: int | None = attrs.field(default=None, validator=_TRIES)
    transient_max_wait_s: float = attrs.field(default=DAY_S / 2, converter=_wait_s)
    backoff: Backoff = attrs.field(
        default=Backoff(initial_s=5.0, factor=2.0, max_s=900.0, jitter=0.5),
        validator=checked(_backoff, "a Ladder"),
    )
    crash_retries: int = attrs.field(default=2, validator=_TRIES)
    timeout_retries: int = attrs.field(default=2, validator=_TRIES)
    overflow_retries: int = attrs.field(default=2, validator=_TRIES)
    cap: OnCap = attrs.field(default="wait", validator=checked(word_of, "a Ladder", words=ON_CAP))
    cap_wait_s: float = attrs.field(default=1800.0, converter=_wait_s)
    cap_margin_s: float = attrs.field(default=30.0, converter=_margin_s)
    cap_probe_s: float | None = attrs.field(default=1800.0, converter=_probe_s)
    cap_max_wait_s: float = attrs.field(default=8 * DAY_S, converter=_wait_s)
    max_launches: int = attrs.field(default=500, validator=_TRIES)
    auth: OnAuth = attrs.field(
        default="suspend", validator=checked(word_of, "a Ladder", words=ON_AUTH)
    )


DEFAULT_LADDER = Ladder()
