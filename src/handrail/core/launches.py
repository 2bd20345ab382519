"""Launches of agents: each attempt of an agent step may take several, one after the other.

A launch that fails is reported, not recorded: what follows from it is, as a ``LadderStep``, and
acted on when that is in the journal. Only when nothing is left to try does the attempt fail.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from handrail.core import commands as cmd
from handrail.core.ladder import GiveUp, Next, Park, following
from handrail.core.node import Node, Phase
from handrail.core.spending import Scope
from handrail.model import events as ev
from handrail.model.launch import FIRST, Launch
from handrail.model.results import Incident
from handrail.record.results import incident_of
from handrail.record.run_record import PathRecord
from handrail.steps.verbs import AgentCall, Generation

if TYPE_CHECKING:
    from handrail.core.machine import Machine

LAUNCHED = (AgentCall, Generation)
"""The verbs that launch agents."""
_BROKEN_OFF = "the process that was running it ended"


class Launches:
    """Makes launches, and climbs from one that failed to the next. Mutable."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.parked: dict[str, str] = {}
        """What a person must do, by path of the step that waits for it."""
        recorded = machine.setting.recorded
        self.incidents: list[Incident] = [] if recorded is None else list(recorded.incidents)
        """The failures that the run lived through, in all its drives."""

    # -- launching ------------------------------------------------------------------------------

    def begin(self, node: Node, *, interrupted: bool) -> None:
        """Make the first launch of an attempt."""
        recorded = self.machine.setting.recorded
        if not node.launched and recorded is not None:  # made before its record was superseded
            node.launched = recorded.launched.get(node.path, 0)
        node.ladder = ()
        node.spent_s = 0.0
        self.go(node, Launch(node.launched + 1, reasks=node.reasks), interrupted=interrupted)

    def go(self, node: Node, launch: Launch, *, interrupted: bool = False) -> None:
        """Have the engine make this launch; where there are budgets, once it is its turn."""
        step, machine = node.step, self.machine
        assert step is not None
        node.phase = Phase.RUNNING
        node.pending = None
        node.launched = launch.number
        node.reasks = launch.reasks
        scopes = machine.spending.scopes(node)
        if scopes:
            machine.emit(cmd.Queue(node.path, step, node.attempt, launch, interrupted))
        else:
            self._make(node, launch, scopes, interrupted=interrupted)

    def granted(self, report: cmd.Granted) -> None:
        """Make a launch whose turn it is, if its budgets have room; else give its place back.

        Only now, so that what others used meanwhile counts, and what waits sets nothing aside.
        """
        machine = self.machine
        node = machine.nodes.get(report.path)
        if node is None or node.step is None or node.phase is Phase.ENDING:
            machine.emit(cmd.Release(report.path))
            return
        if node.stop is not None:
            machine.emit(cmd.Release(report.path))
            machine.end_step(node, "cancelled", error=node.stop)
            return
        scopes = machine.spending.scopes(node)
        spending, launch, interrupted = machine.spending, report.launch, report.interrupted
        breach = spending.breach(node, scopes)
        if breach is not None:
            machine.emit(cmd.Release(report.path))  # first: its next attempt may ask for a place
            spending.breached(node, launch, breach)
        elif spending.hold(node, launch, scopes, interrupted=interrupted):
            machine.emit(cmd.Release(report.path))
        else:
            spending.reserve(node, launch, scopes)
            self._make(node, launch, scopes, interrupted=interrupted)

    def _make(
        self, node: Node, launch: Launch, scopes: tuple[Scope, ...], *, interrupted: bool
    ) -> None:
        step, machine = node.step, self.machine
        assert step is not None
        view = machine.view(node, machine.validation_above(node))
        machine.emit(
            cmd.Perform(
                node.path,
                step,
                node.attempt,
                node.started_at,
                view,
                interrupted,
                launch,
                node.spent_s,
                machine.spending.deadline(scopes) if scopes else None,
            )
        )

    # -- climbing -------------------------------------------------------------------------------

    def failed(self, report: cmd.LaunchFailed) -> None:
        """Record what follows: another rung of the ladder, or the failure of the attempt."""
        machine = self.machine
        node = machine.nodes.get(report.path)
        if node is None or node.step is None or node.phase is Phase.ENDING:
            return
        if node.reserved:
            machine.spending.settle(node, report.fault.usage, report.took_s)
        if node.stop is not None:
            machine.end_step(node, "cancelled", error=node.stop)
            return
        node.spent_s += report.took_s
        fault = report.fault
        seed = f"{machine.setting.run_id}/{node.path}"
        chosen = (
            GiveUp()
            if node.step.modifiers.once  # it may have taken effect
            else following(fault, node.ladder, machine.now, seed)
        )
        match chosen:
            case Next(launch, due):
                self._climb(node, report, fault.reason, launch, due)
            case Park(advice, launch):
                self._climb(node, report, advice, launch, machine.now, parked=True)
            case GiveUp():
                machine.record(report.failed)

    def _climb(
        self,
        node: Node,
        report: cmd.LaunchFailed,
        error: str,
        launch: Launch,
        due: float,
        *,
        parked: bool = False,
    ) -> None:
        fault = report.fault
        self.machine.record(
            ev.LadderStep(
                node.path,
                node.attempt,
                fault.kind,
                error,
                launch,
                due if due > self.machine.now else 0.0,
                fault.backend,
                fault.session,
                parked,
            )
        )

    def stepped(self, event: ev.LadderStep) -> None:
        """Go on from a rung that is in the journal."""
        machine = self.machine
        self.incidents.append(incident_of(event))
        node = machine.nodes.get(event.path)
        if node is None or node.step is None or node.phase is Phase.ENDING:
            return
        node.ladder = (*node.ladder, event)
        if node.stop is not None:
            machine.end_step(node, "cancelled", error=node.stop)
        elif event.parked:
            node.phase = Phase.PAUSED
            self.parked[node.path] = event.error
        elif event.due > machine.now:
            self._told_wait(node, event)
        else:
            self.go(node, event.next)

    def _told_wait(self, node: Node, event: ev.LadderStep) -> None:
        """Wait until the next launch is due, and say so, in each drive."""
        reason: ev.TimerReason = "cap" if event.kind == "usage_cap" else "backoff"
        self.machine.record(ev.TimerSet(node.path, event.due, reason, node.attempt))
        node.phase = Phase.PAUSED
        node.pending = event.next
        node.timer = self.machine.wait(node, event.due)

    # -- resuming -------------------------------------------------------------------------------

    def pick_up(self, node: Node, record: PathRecord, launched: int) -> bool:
        """Go on within an attempt whose ladder, or session, is recorded; False if none is.

        ``launched`` is the number of the last launch, whether its record still counts or not.
        """
        node.launched = launched
        node.reasks = record.reasks
        attempt = record.attempts + 1
        ladder = tuple(step for step in record.ladder if step.attempt == attempt)
        session = record.session
        if record.failure is not None and record.failure.attempt >= attempt:
            return False
        if session is None and not ladder:
            return False
        node.attempt = attempt
        node.ladder = ladder
        last = ladder[-1] if ladder else None
        if session is None and last is not None and last.due > self.machine.now:
            self._told_wait(node, last)
            return True
        if record.interrupted and self.machine.must_not_run_again(node):
            return True
        base = last.next if last is not None else FIRST
        if session is not None:
            base = replace(
                base,
                rung="resume",
                form=None,
                session=session.session,
                backend=session.backend,
                reason=_BROKEN_OFF,
            )
        launch = replace(base, number=max(launched + 1, base.number))
        node.interrupted = False
        self.go(node, launch, interrupted=record.interrupted)
        return True
