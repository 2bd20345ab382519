"""What a history says of its steps, as far as it still counts: when each began and ended, and how.

What a later drive dropped does not count; of what comes more than once the last does.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from handrail.model import events as ev


class Standing:
    """What stands of a history; all but paths are places in it, from 0. Not to be changed."""

    def __init__(self, history: Iterable[ev.Event]) -> None:
        self.known: set[str] = set()
        """The paths of all steps and members that ever began."""
        self.begun_at: dict[str, int] = {}
        """When each step began, for the first time: later drives may enter it again."""
        self.cleaning_up: dict[str, int] = {}
        """The steps that bodies yielded while they were cancelled, and when they began."""
        self.ends: dict[str, ev.StepCompleted | ev.MemberCompleted] = {}
        self.ended_at: dict[str, int] = {}
        self.undone: dict[str, int] = {}
        """The steps whose rollback ran and that did not run again since; and when."""
        self.said: dict[str, list[str]] = {}
        """What each path said of its failures: first which step's, if a body passed it on."""
        self._unwinding = False
        for index, event in enumerate(history):
            if isinstance(event, ev.StepStarted):
                self.known.add(event.path)
                self.begun_at.setdefault(event.path, index)
                if event.cleanup:
                    self.cleaning_up[event.path] = index
            elif isinstance(event, (ev.StepCompleted, ev.MemberCompleted)):
                self.ends[event.path], self.ended_at[event.path] = event, index
                if event.result.error:
                    self.said.setdefault(event.path, []).append(event.result.error)
            elif isinstance(event, ev.MemberStarted):
                self.known.add(event.path)
            elif isinstance(event, ev.AttemptFailed):
                self.said.setdefault(event.path, []).append(event.error)
            elif isinstance(event, ev.RollbackCompleted):
                self.undone[event.path] = index
            elif isinstance(event, ev.RunResumed):
                self._drop(event.superseded)
            elif isinstance(event, (ev.CancelRequested, ev.WorkflowCompleted)):
                self._unwinding = isinstance(event, ev.CancelRequested)

    def _drop(self, paths: Iterable[str]) -> None:
        """Drop what a resume did. One that goes on cancelling the run drops no more than ends."""
        outcomes = (self.ends, self.ended_at, self.said, self.undone, self.cleaning_up)
        for path in paths:
            for found in outcomes:
                found.pop(path, None)
            if not self._unwinding:
                self.begun_at.pop(path, None)

    def ended_as(self, status: str) -> dict[str, int]:
        """What ended so, and when."""
        return {
            path: self.ended_at[path] for path, end in self.ends.items() if end.status == status
        }

    def settled(self, but: Container[str] = ()) -> dict[str, int]:
        """What has an end that the run went on from, and when it came to it: a success, or a
        failure that was handled; ``but`` those.
        """
        return {
            path: self.ended_at[path]
            for path, end in self.ends.items()
            if end.status != "cancelled" and path not in but
        }


def begun(history: Iterable[ev.Event]) -> set[str]:
    """The paths of all steps and members that ever began."""
    kinds = (ev.StepStarted, ev.MemberStarted)
    return {event.path for event in history if isinstance(event, kinds)}
