"""The queues of a run as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from handrail.cli.masking import mask_text
from handrail.record.work_view import WorkView
from handrail.shortening import clean

_MOST = 8
"""Ids that are listed of each sort."""


def queue_lines(works: Sequence[WorkView]) -> Iterator[str]:
    """The state of work queues, as lines: counts, then the ids at work, next and refused."""
    for work_ in works:
        yield mask_text(f"{clean(work_.path)}: {counts_text(work_)}")
        rows = {
            "at work": list(map(clean, work_.running)),
            "left" if work_.over else "next": [_queued_text(*one) for one in work_.queued],
            "refused": list(map(clean, dict.fromkeys(work_.refused))),
        }
        for title, texts in rows.items():
            if texts:
                more = len(texts) - _MOST
                listed = ", ".join(texts[:_MOST]) + (f" and {more} more" if more > 0 else "")
                yield mask_text(f"  {title:8} {listed}")


def _queued_text(task_id: str, priority: float) -> str:
    return f"{clean(task_id)} (priority {priority:g})" if priority else clean(task_id)


def counts_text(work_: WorkView) -> str:
    """``3 at work, 12 queued, 40 done, 1 failed``, and why no more begin."""
    what = "left" if work_.over else "queued"
    counts = {
        "at work": len(work_.running),
        what: len(work_.queued),
        "done": work_.done,
        "failed": work_.failed,
        "refused": len(work_.refused),
    }
    listed = ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "no tasks"
    why = work_.why_stopped
    return listed if why is None else f"{listed}; starts no more tasks: {clean(why)}"
