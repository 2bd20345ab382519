"""A sink that keeps every event in memory, with assertions for tests."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, TypeVar

from handrail.model import events as ev
from handrail.model.events import Event, Progress
from handrail.model.results import RunStatus, StepResult, StepStatus

E = TypeVar("E", bound=ev.Stamped)


class MemorySink:
    """Keeps every event and progress notice in ``events``, in the order in which they came.

    The ``assert_*`` methods raise ``AssertionError`` with what really happened, step by step.
    """

    def __init__(self) -> None:
        self.events: list[Event | Progress] = []

    def emit(self, event: Event | Progress, /) -> None:
        """Keep the event."""
        self.events.append(event)

    def clear(self) -> None:
        """Forget everything, for example between two runs."""
        self.events.clear()

    # -- reading -----------------------------------------------------------------------------

    def of(self, kind: type[E]) -> list[E]:
        """The events of one class: ``sink.of(StepCompleted)``."""
        return [event for event in self.events if isinstance(event, kind)]

    def paths(self) -> list[str]:
        """The path of every step that started, in order of start."""
        return [event.path for event in self.of(ev.StepStarted)]

    def results(self) -> dict[str, StepResult[Any]]:
        """The result of every step that ended, by path, in order of end; of replayed steps too."""
        ended = [
            event for event in self.events if isinstance(event, (ev.StepCompleted, ev.StepReplayed))
        ]
        return {event.path: event.result for event in ended if event.result is not None}

    def result(self, path: str) -> StepResult[Any]:
        """How the step at this path ended.

        Raises:
            AssertionError: it did not end.
        """
        found = self.results().get(path)
        if found is None:
            raise self._wrong(f"step {path!r} did not end")
        return found

    def timeline(self) -> str:
        """What happened, one event a line, for people: ``  3 StepCompleted plan succeeded``."""
        return "\n".join(_event_text(event) for event in self.events)

    # -- asserting ---------------------------------------------------------------------------

    def assert_ended(self, path: str, status: StepStatus = "succeeded") -> None:
        """Assert that the step at this path ended with this status."""
        result = self.result(path)
        if result.status != status:
            error = f" ({result.error})" if result.error else ""
            raise self._wrong(
                f"expected step {path!r} to end {status}, but it {result.status}{error}"
            )

    def assert_run_ended(self, status: RunStatus = "succeeded") -> None:
        """Assert that the last drive ended with this status."""
        ends = [e for e in self.events if isinstance(e, ev.DriveEnded)]
        if not ends:
            raise self._wrong(f"expected the run to end {status}, but it has no end")
        last = ends[-1]
        found = last.status if isinstance(last, ev.WorkflowCompleted) else "suspended"
        if found != status:
            error = getattr(last, "error", None)
            why = f" ({error})" if error else ""
            raise self._wrong(f"expected the run to end {status}, but it {found}{why}")

    def assert_not_started(self, *paths: str) -> None:
        """Assert that none of these steps started."""
        started = [path for path in paths if path in set(self.paths())]
        if started:
            raise self._wrong(f"expected these steps not to start: {', '.join(started)}")

    def assert_order(self, *paths: str) -> None:
        """Assert that these steps ran one after the other, each ended before the next started."""
        for before, after in pairwise(paths):
            _, ended = self._span(before)
            started, _ = self._span(after)
            if ended > started:
                raise self._wrong(f"expected step {before!r} to end before {after!r} started")

    def assert_overlap(self, *paths: str) -> None:
        """Assert that there was a moment at which all these steps were running."""
        spans = [self._span(path) for path in paths]
        if max(started for started, _ in spans) > min(ended for _, ended in spans):
            raise self._wrong(f"expected these steps to run at the same time: {', '.join(paths)}")

    def _span(self, path: str) -> tuple[float, float]:
        """The indices in ``events`` of the step's last start and its end (infinity: no end yet)."""
        started, ended = -1.0, float("inf")
        for position, event in enumerate(self.events):
            match event:
                case ev.StepStarted(path=here) if here == path:
                    started, ended = position, float("inf")
                case ev.StepCompleted(path=here) if here == path:
                    ended = position
                case ev.StepReplayed(path=here) if here == path:
                    started = ended = position
                case _:
                    pass
        if started < 0:
            raise self._wrong(f"step {path!r} did not start")
        return started, ended

    def _wrong(self, what: str) -> AssertionError:
        return AssertionError(f"{what}. What happened:\n{self.timeline() or '  nothing'}")


def _event_text(event: Event | Progress) -> str:
    parts = [f"{event.seq:>5}", type(event).__name__]
    for attribute in ("path", "status", "error"):
        value = getattr(event, attribute, None)
        if value:
            parts.append(str(value))
    return " ".join(parts)
