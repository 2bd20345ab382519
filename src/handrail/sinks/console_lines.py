"""A live run as a tree of lines of toned text, folded until it fits.


The tree is drawn with the most detailed of ``DETAILS`` that fits the height. Drawing stops at the
first excess line, so the work is bounded by the height and not by the size of the tree.
"""

from __future__ import annotations

from typing import Literal

from handrail.model.dataclass import dataclass
from handrail.model.results import Skipped
from handrail.record.live_view import LiveRun, LiveStep
from handrail.record.view import end_view
from handrail.shortening import clean
from handrail.sinks.console_text import (
    TONES,
    UNICODE,
    Glyphs,
    Line,
    Span,
    Tone,
    duration,
    pace,
    until,
)
from handrail.sinks.console_words import (
    error_of,
    handled_text,
    name_of,
    origin_from,
    usage_text,
)
from handrail.sinks.event_words import activity_text, event_text, note_text
from handrail.steps.table import verb_of

BAR = 12
"""Cells of a group's bar."""


@dataclass(frozen=True, slots=True)
class Detail:
    """How much to show: rows for members of a group, for other children, and what to unfold."""

    members: int
    steps: int
    unfold: Literal["all", "failed", "live"]


DETAILS = (
    Detail(12, 40, "all"),
    Detail(12, 40, "failed"),
    Detail(12, 40, "live"),
    Detail(12, 12, "live"),
    Detail(8, 8, "live"),
    Detail(5, 5, "live"),
    Detail(3, 3, "live"),
    Detail(2, 2, "live"),
    Detail(1, 1, "live"),
)


def tree_lines(
    run: LiveRun, height: int, *, now: float | None = None, glyphs: Glyphs = UNICODE
) -> list[Line]:
    """The run's tree at the time ``now``, in at most ``height`` lines (a height below 2 means 2).

    If there is no room for all steps, those that failed, wait or run, and the latest, have rows.
    """
    now = run.at if now is None or run.status is not None else max(now, run.at)
    run.advance(now)
    height = max(2, height)
    lines: list[Line] = []
    for detail in DETAILS:
        drawing = Drawing(detail, height, now, glyphs)
        drawing.draw_run(run)
        lines = drawing.lines
        if len(lines) <= height:
            return lines
    return [*lines[: height - 1], (Span(f"{glyphs.more} the window is too small", "dim"),)]


class Drawing:
    """One attempt to draw a tree with a given detail. Mutable."""

    def __init__(self, detail: Detail, height: int, now: float, glyphs: Glyphs) -> None:
        self.lines: list[Line] = []
        self._detail = detail
        self._height = height
        self._now = now
        self._glyphs = glyphs

    def draw_run(self, run: LiveRun) -> None:
        """Draw the tree; stop once it has more lines than the height."""
        used = "" if run.usage is None else f"  {usage_text(run.usage)}"
        self.lines.append((*self._row(run.root), Span(f"{used}  run {run.run_id}", "dim")))
        self._draw_children(run.root, "")

    def _draw_children(self, step: LiveStep, prefix: str) -> None:
        glyphs = self._glyphs
        is_group = verb_of(step.kind).grouped
        crowded = is_group and step.children > self._detail.members
        rows = self._visible_children(step, crowded=crowded)
        folded = "" if step.kind == "round" else _hidden_text(step, rows, is_group=is_group)
        if crowded and not rows:
            return  # the group's own row has the counts
        if folded and not is_group:
            self.lines.append((Span(f"{prefix}{glyphs.branch}{glyphs.more} {folded}", "dim"),))
        for child in rows:
            if len(self.lines) > self._height:
                return
            is_last = child is rows[-1] and not (folded and is_group)
            self._draw(child, prefix, is_last=is_last, crowded=crowded)
        if folded and is_group:
            self.lines.append((Span(f"{prefix}{glyphs.last}{glyphs.more} {folded}", "dim"),))

    def _visible_children(self, step: LiveStep, *, crowded: bool) -> list[LiveStep]:
        """The children that get a row: in order of start, or by state in a large group."""
        if crowded:
            most = self._detail.members
            return step.most_telling(most) if step.live else list(step.kept_in("failed"))[:most]
        is_group = verb_of(step.kind).grouped
        rows = step.most_telling(self._detail.members if is_group else self._detail.steps)
        if step.kind == "round":  # its finished stages are in its own row
            rows = [child for child in rows if child.live]
        return sorted(rows, key=lambda child: child.order)

    def _draw(self, step: LiveStep, prefix: str, *, is_last: bool, crowded: bool) -> None:
        glyphs = self._glyphs
        elbow = glyphs.last if is_last else glyphs.branch
        inner = _innermost(step) if crowded else step
        self.lines.append((Span(prefix + elbow, "dim"), *self._row(step, inner)))
        if not crowded and self._unfolds(step):
            blank = " " * len(glyphs.pipe)
            self._draw_children(step, prefix + (blank if is_last else glyphs.pipe))

    def _unfolds(self, step: LiveStep) -> bool:
        if step.live or step.live_children():
            return True
        match self._detail.unfold:
            case "all":
                return True
            case "failed":
                return step.state in {"failed", "interrupted"}
            case "live":
                return False

    # -- one row -----------------------------------------------------------------------------

    def _row(self, step: LiveStep, inner: LiveStep | None = None) -> list[Span]:
        """The row of a step; for a member of a large group, with what its step ``inner`` does."""
        glyphs, inner = self._glyphs, inner or step
        state = step.verdict or step.state
        spans = [Span(f"{glyphs.of(state, self._now)} ", TONES.get(state, "plain"))]
        spans.append(Span(name_of(step), "plain" if step.kind in {"member", "round"} else "name"))
        if inner is not step:
            spans.append(Span(f" {glyphs.into} {name_of(inner)}"))
        if inner.kind == "round":
            spans += self._stages(inner)
        elif inner.kind not in {"member", "workflow", ""}:
            spans.append(Span(f"  {inner.kind}", "dim"))
        if verb_of(inner.kind).grouped and not inner.replayed:  # what is in one is not replayed
            spans += self._counts(inner)
        if inner.attempts > 1:
            spans.append(Span(f"  {glyphs.times}{inner.attempts}", "warn"))
        return [*spans, *self._time(step), *self._remark(inner)]

    def _time(self, step: LiveStep) -> list[Span]:
        if step.replayed:
            return [Span("  recorded", "dim")]
        spent = (self._now if step.live else step.ended_at) - step.started_at
        if step.live or step.state == "skipped":  # it has just begun, or did not run at all
            return [Span(f"  {duration(spent)}", "dim")] if spent >= 1 else []
        return [Span(f"  {duration(spent)}", "dim")]

    def _remark(self, step: LiveStep) -> list[Span]:
        """What the step waits for, its error, or the last line that it printed."""
        if not step.live:
            message = [
                self._error(step),
                "" if step.end is None else handled_text(end_view(step.end)),
            ]
            tone: Tone = "bad" if step.state == "failed" else "dim"
            return [Span(f"  {one}", tone) for one in message if one]
        spans: list[Span] = []
        note = note_text(step.note)
        if step.due is not None:
            before = f"{note} " if note else ""
            spans.append(Span(f"  {before}{until(step.due, self._now)}", "wait"))
        elif note:
            tone = "wait" if step.state == "waiting" or step.kind == "workflow" else "dim"
            spans.append(Span(f"  {note}", tone))
        activity = activity_text(step.latest)
        if activity:
            spans.append(Span(f"  {activity}", "dim"))
        elif step.problem is not None and step.kind != "round":
            failed = "failed before" if step.failures != 1 else "failed once"
            spans.append(Span(f"  {failed}: {error_of(step.problem)}", "dim"))
        return spans

    def _error(self, step: LiveStep) -> str:
        """The step's answer, skip reason or error; for an inner step's error, where it began."""
        if step.answer is not None:
            return event_text(step.answer)
        if step.end is not None and isinstance(step.end.output, Skipped):
            return clean(step.end.output.reason)
        cause = step.problem
        if cause is None or cause.inner is None:
            return "" if cause is None else error_of(cause)
        where = origin_from(cause, step.path)
        return where if self._unfolds(step) else f"{where}: {error_of(cause.origin)}"

    def _counts(self, step: LiveStep) -> list[Span]:
        """``312 of 1000 done``, with a bar while it runs, then the counts of other states."""
        ended, size = step.ended, (step.size or 0) if step.live else 0
        spans: list[Span] = [Span("  ")]
        if size > BAR:
            full = min(BAR, ended * BAR // size)
            spans.append(Span(self._glyphs.bar[0] * full, "good"))
            spans.append(Span(f"{self._glyphs.bar[1] * (BAR - full)} ", "dim"))
        dot = f" {self._glyphs.dot} "
        for text, state in step.counts():
            before = [] if not state else [Span(dot, "dim")]
            spans += [*before, Span(text, TONES.get(state, "dim") if state else "plain")]
        if size > BAR and not step.why_stopped:
            message = pace(ended - step.recorded, size - ended, self._now - step.started_at)
            spans += [Span(f"{dot}{message}", "dim")] if message else []
        return spans

    def _stages(self, step: LiveStep) -> list[Span]:
        """The stages of a round that ended, and then its fix: ``: tests ✗, compile ✓; fix ✓``."""
        spans: list[Span] = []
        ended = [child for child in step.most_telling(self._detail.steps) if not child.live]
        for child in sorted(ended, key=lambda child: child.order):
            before = ": " if not spans else ", " if child.kind == "stage" else "; "
            spans.append(Span(f"{before}{name_of(child)} "))
            spans.append(Span(self._glyphs.of(child.state), TONES.get(child.state, "plain")))
        return spans


def _innermost(step: LiveStep) -> LiveStep:
    """The end of the chain of only live children below a step; the step itself without one."""
    below = step.only_live_child
    while below is not None:
        step, below = below, below.only_live_child
    return step


def _hidden_text(step: LiveStep, rows: list[LiveStep], *, is_group: bool) -> str:
    """The children without a row: ``988 more done``, ``12 more: 10 done, 2 running``."""
    hidden = {
        "failed": step.count("failed"),
        "running": step.count("running"),
        "waiting": step.count("waiting"),
    }
    hidden = {"done": step.ended - hidden["failed"], **hidden}
    for child in rows:
        hidden[child.state if child.state in hidden else "done"] -= 1
    parts = [(count, kind) for kind, count in hidden.items() if count > 0]
    total = sum(count for count, _ in parts)
    if not parts:
        return ""
    if len(parts) == 1:
        kind = parts[0][1]
        more = "earlier" if kind == "done" and not is_group else "more"
        return f"{total} {more} {kind}"
    return f"{total} more: {', '.join(f'{count} {kind}' for count, kind in parts)}"
