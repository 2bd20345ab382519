"""Which failures a run ended by: the one that it names, and those below it that it came from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from handrail.core.standing import Standing
from handrail.model import events as ev
from handrail.model.paths import all_above, home_of


def failing(history: Iterable[ev.Event], among: Iterable[str]) -> list[str]:
    """Those of the cancelled that may have been failing by then: a failure in one of them that it
    did not go on from is to be tried again, too.

    A race, and a group that collects failures, goes on from each.
    """
    composites = (ev.GroupStarted, ev.MemberStarted, ev.SubworkflowStarted)
    cancelled = set(among)
    return sorted(
        {
            event.path
            for event in history
            if isinstance(event, composites) and event.path in cancelled and not _goes_on(event)
        }
    )


def _goes_on(event: ev.Event) -> bool:
    if not isinstance(event, ev.GroupStarted):
        return False
    return event.kind not in {"parallel", "for_each"} or event.on_error == "continue"


def causes_of(
    standing: Standing, history: Iterable[ev.Event], paths: Sequence[str]
) -> tuple[set[str], set[str]]:
    """The failed steps and, below them, the failures that they passed on, in each attempt; and what
    the bodies of those yielded after them, to clean up.

    In a body that handled one failure and ended by another, the last one is the cause. So it is in
    one that ended by an error of its own, unless it went on from there: it yielded something else.
    A failure that a group collected may be the cause, too; the body yielded it with its group.
    """
    if not paths:
        return set(), set()
    known, begun_at, ended_at = standing.known, standing.begun_at, standing.ended_at
    failed = standing.ended_as("failed")
    failed_in: dict[str, list[str]] = {}
    for one in sorted(failed, key=failed.__getitem__):
        failed_in.setdefault(home_of(one, known), []).append(one)
    bodies = _bodies(history)
    yielded_last: dict[str, int] = {}
    for one, at in begun_at.items() if bodies else ():
        yielded_last[_attempt(one)] = max(at, yielded_last.get(_attempt(one), 0))
    causes, passed_on, stack = set[str](), dict[str, int](), list(paths)
    while stack:
        here = stack.pop()
        causes.add(here)
        below = failed_in.get(here, [])
        if here in bodies:
            texts = [text.removeprefix(bodies[here]) for text in standing.said.get(here, ())]
            named = {one: _yielded_in(here, one, known) for one in failed if _names(texts, one)}
            last = {_attempt(one): one for one in below}.values()
            passed_on.update((_attempt(one), ended_at[one]) for one in named.values() if one)
            below = [one for one, yielded in named.items() if yielded] + [
                one
                for one in last
                if one not in named and failed[one] > yielded_last.get(_attempt(one), 0)
            ]
        stack.extend(below)
    if not passed_on:
        return causes, set()
    after = {one for one, at in begun_at.items() if at > passed_on.get(_attempt(one), at)}
    return causes, after


def _bodies(history: Iterable[ev.Event]) -> dict[str, str]:
    """Members and child workflows, and what the error of each begins with."""
    bodies: dict[str, str] = {}
    for event in history:
        if isinstance(event, ev.MemberStarted):
            bodies.setdefault(event.path, "")
        elif isinstance(event, ev.SubworkflowStarted):
            bodies[event.path] = f"workflow {event.workflow_name!r} failed: "
    return bodies


def _yielded_in(body: str, path: str, known: set[str]) -> str | None:
    """What a body yielded that is at this path, or that it stands in; None if it did not."""
    for above in all_above(path, known):
        if above == body:
            return path
        path = above
    return None


def _names(texts: Iterable[str], path: str) -> bool:
    return any(text.startswith(f"step {path!r} ") for text in texts)


def _attempt(path: str) -> str:
    """What the paths of one attempt of a body begin with."""
    return path.rpartition("/")[0]
