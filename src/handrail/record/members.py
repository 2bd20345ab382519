"""How the members of a group did, as counts for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from handrail.shortening import clean

_APART = (
    "running", "waiting", "open", "failed", "cancelled", "skipped", "interrupted",
)  # fmt: skip
"""States that are counted by their names; all other members are done."""


def member_counts(
    states: Mapping[str, int],
    size: int | None,
    *,
    over: bool,
    refused: int = 0,
    reasons: Mapping[str | None, int] | None = None,
    why_stopped: str = "",
) -> Iterator[tuple[str, str]]:
    """``19 of 200 done``, ``1 failed``, ``9 cancelled``, ``171 not begun``, each with its state.

    ``states``: how many members are in each; ``over``: no more will begin. ``reasons``: how many
    failed with each error class. Of ``work``, ``refused`` tasks, and why no more of them begin.
    """
    counts = {state: states.get(state, 0) for state in _APART}
    begun = sum(states.values())
    of = "" if size is None else f" of {size}"
    yield f"{begun - sum(counts.values())}{of} done", ""
    if over and size is not None:
        counts["not begun"] = size - begun
    counts["refused"] = refused
    for state, count in counts.items():
        if count > 0:
            yield f"{count} {state}", state
    if reasons:
        yield reasons_text(reasons), "failed"
    if why_stopped:
        yield f"stopped: {clean(why_stopped)}", "waiting"


def reasons_text(error_types: Mapping[str | None, int]) -> str:
    """``Gone × 39, Timeout × 3``: how many failed with each error class, most of all first."""  # noqa: RUF002  # the sign is meant
    reasons: Counter[str] = Counter()
    for error_type, number in error_types.items():
        reasons[(error_type or "").rpartition(".")[2]] += number
    return ", ".join(f"{reason} × {number}" for reason, number in reasons.most_common())  # noqa: RUF001  # the sign is meant
