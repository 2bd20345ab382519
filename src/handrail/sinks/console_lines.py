"""A tree of nodes as lines of toned text, folded until it fits.

The most detailed of ``DETAILS`` that fits the height is taken. Drawing stops at the first line too
many, so the work is bounded by the height and not by the size of the tree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from handrail.sinks.console_node import GROUPS, Node
from handrail.sinks.console_text import TONES, Glyphs, Line, Span, duration, error_text, until

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


def tree_lines(root: Node, run_id: str, height: int, *, now: float, glyphs: Glyphs) -> list[Line]:
    """The tree below ``root``, and a line for itself, in at most ``height`` lines (at least 2)."""
    height = max(2, height)
    lines: list[Line] = []
    for detail in DETAILS:
        drawing = Drawing(detail, height, now, glyphs)
        drawing.draw_root(root, run_id)
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

    def draw_root(self, root: Node, run_id: str) -> None:
        """Draw everything, or one line more than there is room for."""
        line = (*self._row(root), Span(f"  run {run_id}", "dim"))
        self.lines.append(line)
        self._draw_children(root, "")

    def _draw_children(self, node: Node, prefix: str) -> None:
        glyphs = self._glyphs
        is_group = node.kind in GROUPS
        crowded = is_group and node.children > self._detail.members
        rows = self._chosen(node, crowded=crowded)
        folded = "" if node.kind == "round" else _folded(node, rows, is_group=is_group)
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

    def _chosen(self, node: Node, *, crowded: bool) -> list[Node]:
        """The children that get a row: in order of start, those of a crowd by state."""
        if crowded:
            most = self._detail.members
            return node.shown(most) if node.live else list((node.failed or [])[:most])
        is_group = node.kind in GROUPS
        rows = node.shown(self._detail.members if is_group else self._detail.steps)
        if node.kind == "round":  # its finished stages are in its own row
            rows = [child for child in rows if child.live]
        return sorted(rows, key=lambda child: child.order)

    def _draw(self, node: Node, prefix: str, *, is_last: bool, crowded: bool) -> None:
        glyphs = self._glyphs
        elbow = glyphs.last if is_last else glyphs.branch
        told = _innermost(node) if crowded else node
        self.lines.append((Span(prefix + elbow, "dim"), *self._row(node, told)))
        if not crowded and self._unfolds(node):
            blank = " " * len(glyphs.pipe)
            self._draw_children(node, prefix + (blank if is_last else glyphs.pipe))

    def _unfolds(self, node: Node) -> bool:
        if node.live or node.live_children():
            return True
        match self._detail.unfold:
            case "all":
                return True
            case "failed":
                return node.state in {"failed", "interrupted"}
            case "live":
                return False

    # -- one row -----------------------------------------------------------------------------

    def _row(self, node: Node, told: Node | None = None) -> list[Span]:
        """What there is to say of a node; of a member of a crowd, what ``told`` inside it does."""
        glyphs, told = self._glyphs, told or node
        state = node.verdict or node.state
        spans = [Span(f"{glyphs.of(state, self._now)} ", TONES.get(state, "plain"))]
        spans.append(Span(node.name, "plain" if node.kind in {"member", "round"} else "name"))
        if told is not node:
            spans.append(Span(f" {glyphs.into} {told.name}"))
        if told.kind == "round":
            spans += self._stages(told)
        elif told.kind not in {"member", "workflow", ""}:
            spans.append(Span(f"  {told.kind}", "dim"))
        if told.kind in GROUPS:
            spans += self._counts(told)
        if told.attempts > 1:
            spans.append(Span(f"  {glyphs.times}{told.attempts}", "warn"))
        return [*spans, *self._time(node), *self._remark(told)]

    def _time(self, node: Node) -> list[Span]:
        if node.replayed:
            return [Span("  recorded", "dim")]
        spent = (self._now if node.live else node.ended_at) - node.started_at
        if node.live or node.state == "skipped":  # what has just begun, or did not run at all
            return [Span(f"  {duration(spent)}", "dim")] if spent >= 1 else []
        return [Span(f"  {duration(spent)}", "dim")]

    def _remark(self, node: Node) -> list[Span]:
        """What it waits for, what went wrong, or the last line that it printed."""
        if not node.live:
            tone = TONES.get(node.state, "dim") if node.state == "failed" else "dim"
            error = self._error(node)
            return [Span(f"  {error}", tone)] if error else []
        spans: list[Span] = []
        if node.due is not None:
            note = f"{node.note} " if node.note else ""
            spans.append(Span(f"  {note}{until(node.due, self._now)}", "wait"))
        elif node.note:
            tone = "wait" if node.state == "waiting" or node.kind == "workflow" else "dim"
            spans.append(Span(f"  {node.note}", tone))
        if node.said:
            spans.append(Span(f"  {node.said}", "dim"))
        elif node.error and node.kind != "round":
            number = len(node.past or ())
            failed = "failed before" if number != 1 else "failed once"
            spans.append(Span(f"  {failed}: {node.error}", "dim"))
        return spans

    def _error(self, node: Node) -> str:
        """Its error, or where that is to be read."""
        cause = node.cause
        if cause is None or cause.inner is None:
            return node.error
        where = cause.named(node.path)
        if self._unfolds(node):
            return where
        origin = cause.origin
        return f"{where}: {error_text(origin.error, origin.error_type)}"

    def _counts(self, node: Node) -> list[Span]:
        """``312/1000``, with a bar while it runs, then what is not plainly done."""
        ended, size = node.ended, node.size
        spans: list[Span] = [Span("  ")]
        if node.live and size is not None and size > BAR:
            full = min(BAR, ended * BAR // size)
            spans.append(Span(self._glyphs.bar[0] * full, "good"))
            spans.append(Span(f"{self._glyphs.bar[1] * (BAR - full)} ", "dim"))
        spans.append(Span(f"{ended}/{size}" if size is not None else f"{ended} done"))
        for state in ("running", "waiting", "failed", "cancelled", "skipped"):
            count = node.count(state)
            if count:
                tone = TONES[state]
                spans += [Span(f" {self._glyphs.dot} ", "dim"), Span(f"{count} {state}", tone)]
        return spans

    def _stages(self, node: Node) -> list[Span]:
        """The stages of a round that ended, and then its fix: ``: tests ✗, compile ✓; fix ✓``."""
        spans: list[Span] = []
        ended = [child for child in node.shown(self._detail.steps) if not child.live]
        for child in sorted(ended, key=lambda child: child.order):
            before = ": " if not spans else ", " if child.kind == "stage" else "; "
            spans.append(Span(f"{before}{child.name} "))
            spans.append(Span(self._glyphs.of(child.state), TONES.get(child.state, "plain")))
        return spans


def _innermost(node: Node) -> Node:
    """What a node is at: itself, or the only live one below it."""
    below = node.only_live_child
    while below is not None:
        node, below = below, below.only_live_child
    return node


def _folded(node: Node, rows: list[Node], *, is_group: bool) -> str:
    """What is not among ``rows``: ``988 more done``, ``12 more: 10 done, 2 running``."""
    hidden = {
        "failed": node.count("failed"),
        "running": node.count("running"),
        "waiting": node.count("waiting"),
    }
    hidden = {"done": node.ended - hidden["failed"], **hidden}
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
