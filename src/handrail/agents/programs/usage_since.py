"""What one turn used, of two totals of its session."""

from __future__ import annotations

from dataclasses import fields

from handrail.model.results import Usage


def added_since(before: Usage | None, total: Usage) -> Usage | None:
    """What was added to ``before``; unknown where that is, for a total is no difference.

    ``Usage.since`` takes what is unknown for nothing, as is right where all of it was counted.
    """
    if before is None:
        return None
    added = total.since(before)
    known = {
        field.name: getattr(added, field.name)
        for field in fields(Usage)
        if getattr(before, field.name) is not None
    }
    return Usage(**known) if known else None
