"""Compares a whole record with today's code, up to the first place where they differ."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from handrail.codec.unresolved import Unresolved
from handrail.core import commands as cmd
from handrail.core.changes import change_of, item_change
from handrail.core.failures import body_error_text
from handrail.core.generators import call
from handrail.core.mistakes import not_a_step
from handrail.core.retracing import Outcome, Place, Retracing, Traversal
from handrail.core.run_state import RunState
from handrail.errors import LimitExceeded, StepChange
from handrail.model import events as ev
from handrail.model.history import Divergence
from handrail.model.outcome import RAISED, RETURNED
from handrail.model.results import qualified
from handrail.record.comparing import equal
from handrail.steps.bodies import Validation
from handrail.steps.declared import returned_by
from handrail.steps.leaves import StageCheck
from handrail.steps.verbs import Modifiers, Step, take
from handrail.typed.jsonsafe import short_repr

_NO_STEP = "no such step"


class Diverged(Exception):
    """The code differs from the record here."""

    def __init__(self, divergence: Divergence) -> None:
        super().__init__(divergence)
        self.divergence = divergence


class Comparison(Retracing):
    """Retraces all that is recorded of a run; raises ``Diverged`` where the code differs. Mutable.

    ``begun``: every path that ever began in the run, also those whose record was dropped to run
    them again. ``end``: the end of the run, if it has one.
    """

    counts_open = 1

    def __init__(
        self, run: RunState, begun: Collection[str], end: ev.WorkflowCompleted | None
    ) -> None:
        super().__init__(run)
        self._begun, self._end = begun, end

    def of_run(self) -> Traversal:
        """Retraces the whole run."""
        run, end = self.run, self._end
        value = None if end is None else end.value
        if isinstance(value, Unresolved) and run.codec is not None:
            value = run.codec.load(value.text, returned_by(run.definition))
        place = Place("", "", 1, _outcome(end), value)
        what, generator = self.call(call, run.definition, run.root.inputs)
        if what != RETURNED:
            self.body_ended(place, RAISED, generator, stopped=False)
            return
        yield self.body(place, generator, run.root.inputs)

    # -- hooks ----------------------------------------------------------------------------------

    def enters(self, path: str) -> bool:
        """True for all that is recorded."""
        return self.recorded.knows(path)

    def enters_attempt(self, place: Place) -> bool:
        """True for all attempts."""
        del place
        return True

    def goes_on(self, place: Place, *, left: bool, beyond: bool) -> bool:
        """True up to the last item if the group succeeded; else as far as the record goes."""
        return place.outcome == "succeeded" or super().goes_on(place, left=left, beyond=beyond)

    def on_recorded(self, path: str, step: Step[Any], *, yielded: bool) -> None:
        """Diverge if the step has changed, unless somebody accepted its record."""
        del yielded
        self._changed(change_of(self.run, path, step, self.recorded.fingerprint_of(path)))

    def on_recorded_item(self, place: Place, path: str, item: Any, index: int) -> None:
        """Diverge if the item has changed, unless somebody accepted its record."""
        del place, index
        self._changed(item_change(self.run, path, item))

    def _changed(self, change: StepChange | None) -> None:
        if change is not None and not self.recorded.is_reused(change.path):
            self._diverge(change.path, change.was, change.now)

    def on_unrecorded(
        self, place: Place, path: str, step: Step[Any] | None, *, stopped: bool
    ) -> None:
        """Diverge if the recorded run would have begun this step, or member."""
        if path in self._begun:
            return
        past = place.outcome == "succeeded" or (place.outcome == "failed" and step is not None)
        if (past and not stopped) or (step is not None and self._unreached(place)):
            now = "a member" if step is None else self.run.fingerprint(step)
            self._diverge(path, _NO_STEP, now or "a step")

    def body_ended(self, place: Place, what: int, given: Any, *, stopped: bool) -> None:
        """Diverge if the body left out a recorded step, or ended otherwise than recorded."""
        self.group_ended(place)
        if stopped or place.outcome in {"stopped", "open"}:
            return
        error: BaseException | None = None
        if what == RAISED:
            error = given
        elif what != RETURNED:
            error = not_a_step(given, self.line)
        elif place.outcome == "failed":
            error = self.run.unrecordable(given, f"step {place.path!r}")
        status = "succeeded" if error is None else "failed"
        identity = self.run.codec.identity if self.run.codec is not None else repr
        same = place.outcome == status
        if same and (error is not None or equal(given, place.value, identity)):
            return
        now = _describe_end(status, given) if error is None else f"failed: {body_error_text(error)}"
        self._diverge(place.path, self._recorded_end_text(place), now, place.line)

    def group_ended(self, place: Place) -> None:
        """Diverge if the code did not reach something that is recorded."""
        for path in self._unreached(place):
            known = self.recorded.at(path)
            self._diverge(path, known.fingerprint or "a member", _NO_STEP, place.line)

    def stages(self, place: Place, verb: Validation) -> Traversal:
        """Diverge if a stage has changed.

        Stages that cannot be looked up here, because only an executor knows them by name, are not
        compared.
        """
        report: cmd.Evaluated = yield cmd.FindStages(place.path, verb.stages)
        found = {} if report.error is not None else {one.name: one for one in report.value}
        for path in self.in_place(place):
            stage = found.get(path.rpartition("/")[2])
            if stage is not None:
                current: Step[Any] = Step(stage.name, StageCheck(stage), Modifiers())
                take(current)  # nobody forgot it
                self.on_recorded(path, current, yielded=False)

    # -- differences ----------------------------------------------------------------------------

    def _unreached(self, place: Place) -> list[str]:
        """The recorded children that the code did not reach, except those the run left out."""
        record = self.recorded.at(place.path)
        out = set(record.unreached_children)
        if not place.path and self._end is not None:
            out.update(self._end.orphaned)
        return [
            path
            for path in self.in_place(place)
            if path not in place.seen
            and path not in out
            and (self.recorded.at(path).started_at is not None or self.recorded.at(path).ended())
        ]

    def _recorded_end_text(self, place: Place) -> str:
        if place.outcome == "succeeded":
            return _describe_end("succeeded", place.value)
        record = self.recorded.at(place.path)
        end = record.end or record.failure if place.path else self._end
        return f"failed: {'' if end is None else end.error}"

    def _diverge(self, path: str, was: str, now: str, line: str | None = None) -> None:
        raise Diverged(Divergence(path, was, now, self.line if line is None else line))


def _describe_end(status: str, value: Any) -> str:
    return f"{status} with {short_repr(value)}"


def _outcome(end: ev.WorkflowCompleted | None) -> Outcome:
    if end is None:
        return "open"
    if end.status == "cancelled" or end.error_type == qualified(LimitExceeded):
        return "stopped"
    return "succeeded" if end.status == "succeeded" else "failed"
