"""What is tried before an agent step counts as failed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Literal, TypeAlias

import attrs

from handrail.errors import DefinitionError
from handrail.model.policy import Backoff, count_of, positive_seconds, seconds_of

DAY_S = 86_400.0
OnCap: TypeAlias = Literal["wait", "fallback"]
ON_CAP = ("wait", "fallback")


def _tries(_: Any, attribute: attrs.Attribute[Any], value: object) -> None:
    count_of(value, f"{attribute.name} of a Ladder", least=0)


def _on_cap(_: Any, attribute: attrs.Attribute[Any], value: object) -> None:
    if value not in ON_CAP:
        raise DefinitionError(
            f"{attribute.name} of a Ladder must be one of {', '.join(map(repr, ON_CAP))}, "
            f"got {value!r}"
        )


def _backoff(_: Any, attribute: attrs.Attribute[Any], value: object) -> None:
    if not isinstance(value, Backoff):
        raise DefinitionError(f"{attribute.name} of a Ladder must be a Backoff, got {value!r}")


def _wait_s(value: float | timedelta) -> float:
    return positive_seconds(value, "a wait of a Ladder")


def _margin_s(value: float | timedelta) -> float:
    return seconds_of(value, "cap_margin_s of a Ladder")


def _probe_s(value: float | timedelta | None) -> float | None:
    return None if value is None else positive_seconds(value, "cap_probe_s of a Ladder")


@attrs.frozen(kw_only=True)
class Ladder:
    """How an agent step goes on after a launch that failed. Its ``.retry`` counts none of these.

    - ``transient_retries`` after a failed server, connection or a rate limit, with pauses by
      ``backoff``, or until the time that the reply named.
    - ``crash_retries`` after a program that ended without its own word that it is done;
      ``timeout_retries`` after one that hung. Both go on in the session, if the backend can.
    - A usage cap with a known end is waited for until ``cap_margin_s`` after it, with one probe
      after ``cap_probe_s`` (None: no probe), because such texts are misread and caps are lifted
      early. Without a known end it is probed every ``cap_wait_s``. What would end later than
      ``cap_max_wait_s`` from now, or lasts longer, suspends the run. With ``cap="fallback"`` the
      next of ``Agent(fallback=)`` takes over at once, and only the last of them waits.
    - ``overflow_retries`` after a session that got too long: made smaller where the backend can,
      else a new session with a summary.
    - An answer that does not fit is asked for again, ``Agent(max_reasks=)`` times in all; the last
      of several times is a new session with the prompt put otherwise.
    - Then the next of ``Agent(fallback=)``. ``max_launches`` bounds one attempt in all.
    """

    transient_retries: int = attrs.field(default=6, validator=_tries)
    backoff: Backoff = attrs.field(
        default=Backoff(initial_s=5.0, factor=2.0, max_s=300.0, jitter=0.5), validator=_backoff
    )
    crash_retries: int = attrs.field(default=2, validator=_tries)
    timeout_retries: int = attrs.field(default=2, validator=_tries)
    overflow_retries: int = attrs.field(default=2, validator=_tries)
    cap: OnCap = attrs.field(default="wait", validator=_on_cap)
    cap_wait_s: float = attrs.field(default=1800.0, converter=_wait_s)
    cap_margin_s: float = attrs.field(default=30.0, converter=_margin_s)
    cap_probe_s: float | None = attrs.field(default=1800.0, converter=_probe_s)
    cap_max_wait_s: float = attrs.field(default=8 * DAY_S, converter=_wait_s)
    max_launches: int = attrs.field(default=500, validator=_tries)


DEFAULT_LADDER = Ladder()
