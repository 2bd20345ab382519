"""What agents may consume, by step, group, child workflow or run."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any, Literal, TypeAlias

import attrs

from handrail.errors import DefinitionError
from handrail.model.policy import count_of, positive_seconds

OnBreach: TypeAlias = Literal["fail", "suspend", "ask"]
ON_BREACH = ("fail", "suspend", "ask")


def _count(_: Any, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is not None:
        count_of(value, f"{attribute.name} of a Budget")


def _usd(_: Any, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise DefinitionError(f"{attribute.name} of a Budget must be a number, got {value!r}")
    if not 0 < value < math.inf:
        raise DefinitionError(f"{attribute.name} of a Budget must be above 0, got {value!r}")


def _share(_: Any, attribute: attrs.Attribute[Any], value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 1:
        raise DefinitionError(
            f"{attribute.name} of a Budget must be a share above 0 and up to 1, got {value!r}"
        )


def _breach(_: Any, attribute: attrs.Attribute[Any], value: object) -> None:
    if value not in ON_BREACH:
        raise DefinitionError(
            f"{attribute.name} of a Budget must be one of {', '.join(map(repr, ON_BREACH))}, "
            f"got {value!r}"
        )


def _wall_s(value: float | timedelta | None) -> float | None:
    return None if value is None else positive_seconds(value, "wall_s of a Budget")


@attrs.frozen(kw_only=True)
class Budget:
    """Bounds on what the agents below a step, or of a run, consume. None: no bound.

    - ``tokens``, input and output together; ``usd``; ``launches`` of agents, re-asks and retries
      included; ``wall_s``, seconds since the step or run began, waits included.
    - Before each launch its share is set aside: ``reserve_tokens`` and ``reserve_usd``, or what the
      dearest launch so far used; the first, of which that is not known, goes alone. Afterwards what
      it used takes the place of that. What a launch used and does not say stays reserved, and is
      not taken for nothing.
    - From the share ``soft`` on, a ``BudgetWarning`` is told, once.
    - A launch that does not fit is not made: the step fails (``"fail"``), the run suspends until it
      is resumed with more (``"suspend"``), or a gate asks whether as much again may be used
      (``"ask"``). With ``"fail"``, a launch is also stopped when ``wall_s`` is over.

    All of it is in the journal, so that neither a crash nor a resume begins to count anew.
    """

    tokens: int | None = attrs.field(default=None, validator=_count)
    usd: float | None = attrs.field(default=None, validator=_usd)
    launches: int | None = attrs.field(default=None, validator=_count)
    wall_s: float | None = attrs.field(default=None, converter=_wall_s)
    soft: float = attrs.field(default=0.8, validator=_share)
    on_breach: OnBreach = attrs.field(default="fail", validator=_breach)
    reserve_tokens: int | None = attrs.field(default=None, validator=_count)
    reserve_usd: float | None = attrs.field(default=None, validator=_usd)

    def __attrs_post_init__(self) -> None:
        if (self.tokens, self.usd, self.launches, self.wall_s) == (None, None, None, None):
            raise DefinitionError(
                "a Budget needs a bound: tokens=, usd=, launches= or wall_s=, such as Budget(usd=5)"
            )
