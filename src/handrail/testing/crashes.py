"""Tests that a workflow survives crashes: kills a real process at every record that it writes."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from handrail.engine.outside import refuse_inside_loop
from handrail.engine.parts import definition_of
from handrail.errors import WrongUse
from handrail.executor import Executor
from handrail.model.dataclass import dataclass
from handrail.model.shapes import WorkflowLike
from handrail.ports.journal import Journal
from handrail.testing.crash_trial import (
    Allowed,
    MakeExecutor,
    Plan,
    ProcessLog,
    RunScenario,
    Trial,
    all_points,
    chosen,
    name_of,
    repeated,
    second_point,
    spread,
    times_performed,
)
from handrail.testing.crash_verdict import Verdict, verdict_differences

SHOWN = 3
"""How many failing crashes are reported in full."""


@dataclass(frozen=True, slots=True)
class Crashes:
    """What ``crash_everywhere`` did.

    ``records`` are those of a run without a crash. ``crashes`` counts the runs that were killed,
    ``left_out`` those that ``limit`` left out, ``interrupted`` those that failed because a
    ``.once()`` step was at work. ``executions`` is how often each step was performed at most in one
    run, by all its processes. ``status`` is that of a run without a crash: if it always fails, for
    want of a fake agent perhaps, the test proves little.
    """

    records: tuple[str, ...]
    crashes: int
    left_out: int = 0
    interrupted: int = 0
    executions: Mapping[str, int] = field(default_factory=dict[str, int])
    status: str = "succeeded"

    def __str__(self) -> str:
        more = f", {self.left_out} more were left out" if self.left_out else ""
        ended = "" if self.status == "succeeded" else f" of a run that ended as {self.status}"
        return f"{self.crashes} crashes at {len(self.records)} records{ended}{more}"


def crash_everywhere(
    workflow: WorkflowLike[..., Any],
    /,
    *args: Any,
    executor: MakeExecutor | None = None,
    executions: Mapping[str, int] | None = None,
    default: int | None = None,
    answers: Mapping[str, Any] | None = None,
    signals: Mapping[str, Sequence[Any]] | None = None,
    twice: bool = False,
    limit: int | None = None,
    only: Iterable[Any] = (),
    timeout_s: float = 60.0,
    folder: Path | None = None,
    **kwargs: Any,
) -> Crashes:
    """Kill a workflow's process at each of its records, and assert that a resume ends as it should.

    The workflow runs in child processes. Each is killed with SIGKILL at another record of its
    journal: just before the write (after the effect that the record is about) or just after it. A
    new process resumes the run. The result must be that of a run without a crash, and nothing may
    have been performed more often than allowed.

    ``args`` and ``kwargs`` are the workflow's. ``executor`` makes the executor, on the journal that
    it gets; with a ``JumpClock`` the run never waits. ``executions`` says how often steps may be
    performed by all processes of a run together, by path or name; ``default`` is for all other
    steps (not given: as often as without a crash, and once more for each process that was killed).
    In any case a step with a recorded end must not be performed again, and a ``.once()`` step at
    most once. A run may end because a ``.once()`` step was at work.

    A run that waits gets ``answers`` by the path of the gate, and ``signals`` by name, one payload
    each time it waits for one. ``twice``: some of the processes that resume are killed as well.
    ``limit``: at most so many crashes, evenly spread. ``only``: these crashes, such as
    ``[(7, "before")]``. A process may take ``timeout_s``.

    Processes are forked, so closures and fake agents work; each has its own copy of them. Needs a
    system with ``fork``, and no running event loop.

    Raises:
        AssertionError: the text names each crash after which something was wrong, says what, and
            how to repeat the crash.
        WrongUse: ``executions`` names a step that was not performed, but resembles one that was;
            or ``answers`` a gate that did not open, or ``signals`` one that nothing waited for, and
            the run ends suspended.
    """
    refuse_inside_loop("crash_everywhere()", "Call it from a test that is a plain `def`.")
    name = definition_of(workflow).name
    home = Path(tempfile.mkdtemp(prefix=f"{name}-crashes-", dir=folder))
    scenario = RunScenario(workflow, f"{name}-crash", args, kwargs, answers or {}, signals or {})
    trial = Trial(scenario, executor or _plain, home, timeout_s)
    trial.prepare()
    told = _Proof(trial, Allowed(executions or {}, default)).prove(chosen(only), limit, twice=twice)
    shutil.rmtree(home)
    return told


_OPENED = "GateOpened of "
"""What the record of a gate begins with in a report; its path follows."""
_SENT = "letter SignalReceived of "
"""The same for a signal that was sent; its name follows."""


def _plain(journal: Journal) -> Executor:
    return Executor(journal=journal)


class _Proof:
    """Judges one run after the other. Mutable: it counts, and collects what went wrong."""

    def __init__(self, trial: Trial, allowed: Allowed) -> None:
        self._trial = trial
        self._allowed = allowed
        self._usual = Counter[str]()
        self._most = Counter[str]()
        self._whole: Verdict = {}
        self._wrong: list[str] = []
        self._crashes = self._interrupted = 0

    def prove(self, only: Sequence[Plan], limit: int | None, *, twice: bool) -> Crashes:
        """Run and judge everything; returns the summary.

        Raises:
            AssertionError: something was wrong.
        """
        records = self._without_a_crash()
        if self._whole["status"] == "suspended" and (unasked := self._unasked(records)):
            raise WrongUse(unasked)
        every = only or all_points(len(records))
        plans = spread(every, limit)
        for index, plan in enumerate(plans):
            logs = self._crash(plan)
            if twice and not only and len(logs) > 1:
                self._crash((*plan, second_point(index, len(logs[-1].records))))
        if self._wrong:
            raise AssertionError(self._complaint())
        if misspelt := self._allowed.misspelt(self._most):
            raise WrongUse(misspelt)
        left_out = len(every) - len(plans)
        most, status = dict(self._most), self._whole["status"]
        return Crashes(records, self._crashes, left_out, self._interrupted, most, status)

    def _unasked(self, records: Sequence[str]) -> str:
        """A message on answers or signals to nothing, of a run that waits; empty if all is well."""
        opened = [one.removeprefix(_OPENED) for one in records if one.startswith(_OPENED)]
        unasked = [repr(path) for path in self._trial.scenario.answers if repr(path) not in opened]
        if unasked:
            return (
                f"answers= names {', '.join(unasked)}, and nothing was asked there: the run was "
                f"suspended, and had asked at {', '.join(opened) or 'no gate'}"
            )
        signals = self._trial.scenario.signals.items()
        wanted = [repr(name) for name, payloads in signals if payloads]
        if unsent := [name for name in wanted if f"{_SENT}{name}" not in records]:
            return (
                f"signals= names {', '.join(unsent)}, and nothing waited for that: the run was "
                f"suspended, and waits for these signals: {self._whole['signals waited for']}"
            )
        return ""

    def _without_a_crash(self) -> tuple[str, ...]:
        """The records of a run without a crash; two such runs must have equal results."""
        (first,) = self._trial.run(name="whole")
        (second,) = self._trial.run(name="whole-again")
        raised = first.raised or second.raised
        if raised is not None:
            raise AssertionError(f"without a crash the run has no result: {_last_lines(raised)}")
        assert first.verdict is not None
        assert second.verdict is not None
        self._whole = first.verdict
        changing = verdict_differences(self._whole, second.verdict)
        if changing:
            listed = "\n".join(f"    {one}" for one in changing)
            raise AssertionError(
                f"two runs without a crash differ already, so nothing can be said of a crash. Make "
                f"what the steps give depend on nothing but their arguments:\n{listed}"
            )
        self._usual = self._most = times_performed([first])
        exceeded = self._allowed.exceeded([first], self._usual)
        if exceeded:
            raise AssertionError(f"already without a crash {'; '.join(exceeded)}")
        return tuple(first.records)

    def _crash(self, plan: Plan) -> list[ProcessLog]:
        """Run once, with the crashes of the plan, and collect what is wrong."""
        logs = self._trial.run(plan)
        self._crashes += 1
        self._most |= times_performed(logs)
        wrong = [*repeated(logs), *self._allowed.exceeded(logs, self._usual)]
        last = logs[-1]
        if last.raised is not None:
            wrong.append(f"the last process has no result: {_last_lines(last.raised)}")
        elif last.verdict is not None and _broke_off_once(logs):
            self._interrupted += 1
        elif last.verdict is not None:
            wrong.extend(verdict_differences(self._whole, last.verdict))
        if wrong:
            self._wrong.append(_describe_crash(plan, logs, wrong))
        return logs

    def _complaint(self) -> str:
        name = self._trial.scenario.workflow.definition.name
        wrong, count = self._wrong, len(self._wrong)
        shown = "\n\n".join(wrong[:SHOWN])
        more = f"\n\n... and {count - SHOWN} more" if count > SHOWN else ""
        return (
            f"{name}: {count} of {self._crashes} crashes did not end as they should. What the "
            f"processes did is in {self._trial.home}\n\n{shown}{more}"
        )


def _broke_off_once(logs: Sequence[ProcessLog]) -> bool:
    """True if a ``.once()`` step failed because its process was killed while it was at work."""
    begun = {path for log in logs for kind, path, _ in log.found if kind == "started"}
    return bool(begun.intersection(logs[-1].interrupted))


def _describe_crash(plan: Plan, logs: Sequence[ProcessLog], wrong: Sequence[str]) -> str:
    """The text of what was wrong with a crash, and how to repeat it."""
    killed = [
        f"killed at record {number} ({_name(log, number)}, {when} the write)"
        for (number, when), log in zip(plan, logs, strict=False)
    ]
    listed = "\n".join(f"    {one}" for one in wrong)
    again = list(plan) if len(plan) == 1 else [list(plan)]
    where = f"{name_of(plan)}.db"
    return f"{', then '.join(killed)}:\n{listed}\n    alone: only={again} (its journal: {where})"


def _name(log: ProcessLog, number: int) -> str:
    records = log.records
    return records[number - 1] if number <= len(records) else "which it did not come to"


def _last_lines(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[0] if len(lines) == 1 else f"{lines[-1]}\n        " + "\n        ".join(lines)
