"""What follows a failed attempt: another one, a fallback, a default, or the end of the step."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from handrail.core import commands as cmd
from handrail.core.failures import Failure, failure_from, failure_of
from handrail.core.node import Node, Phase
from handrail.core.retry import RetryAfter, next_attempt
from handrail.errors import NotAStep, StepFailed
from handrail.model import events as ev
from handrail.model.paths import join
from handrail.model.policy import RetryOn
from handrail.model.results import Skipped, StepResult, qualified
from handrail.steps.verbs import Step

if TYPE_CHECKING:
    from handrail.core.machine import Machine


class Failing:
    """The order is fixed: ``retry``, then ``on_error``, then ``default`` or ``skip_on_error``."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def fail(self, node: Node, failure: Failure) -> None:
        """Let the attempt of a node that is no leaf fail; retry, fallback and default follow."""
        step = node.step
        assert step is not None
        self.machine.drop_timer(node.deadline)
        self.machine.drop_timer(node.timer)
        node.deadline = node.timer = 0
        retry = step.modifiers.retry
        retryable = failure.retryable
        if retry is not None and retry.on is not None and retryable:
            on = retry.on
            if not isinstance(on, (type, tuple)):
                node.failure, node.phase = failure, Phase.PAUSED
                self.machine.ask(
                    node,
                    cmd.AskPredicate(node.path, _live(on, failure), self.machine.view(node), -1),
                )
                return
            retryable = _covered(retry.on, failure)
        self._record_failure(node, failure, retryable=retryable)

    def _record_failure(self, node: Node, failure: Failure, *, retryable: bool) -> None:
        self.machine.record(
            ev.AttemptFailed(
                node.path,
                node.attempt,
                failure.error,
                failure.kind,
                failure.bases,
                failure.traceback,
                retryable,
                failure.output,
                failure.usage,
                node.took,
                self.machine.left_out(node),
            )
        )

    def fail_with(self, node: Node, error: BaseException, *, retryable: bool = True) -> None:
        """``fail`` with an exception that the core made or caught."""
        self.fail(node, failure_of(error, retryable=retryable))

    def attempt_failed(self, event: ev.AttemptFailed) -> None:
        """Decide what follows."""
        node = self.machine.nodes.get(event.path)
        if node is None or node.step is None or node.phase is Phase.ENDING:
            return
        if node.reserved:
            self.machine.spending.settle_total(node, event.usage)
        failure = node.failure = failure_on_record(event)
        if node.stop is not None:
            self.machine.end_step(node, "cancelled", error=node.stop)
            return
        self._after_failure(node, failure, event.attempt)

    def _after_failure(self, node: Node, failure: Failure, attempt: int) -> None:
        step = node.step
        assert step is not None
        modifiers = step.modifiers
        choice = next_attempt(
            attempt,
            retryable=failure.retryable,
            retry=modifiers.retry,
            seed=f"{self.machine.setting.run_id}/{node.path}",
        )
        if not isinstance(choice, RetryAfter):
            self._fall_back(node, failure)
        elif choice.delay_s == 0:
            self.machine.attempt(node)
        else:
            node.phase = Phase.PAUSED
            due = self.machine.now + choice.delay_s
            self.machine.record(ev.TimerSet(node.path, due, "retry", attempt))
            node.timer = self.machine.wait(node, due)

    def _fall_back(self, node: Node, failure: Failure) -> None:
        step = node.step
        assert step is not None
        handler = step.modifiers.on_error
        if handler is None:
            self._settle(node, failure)
            return
        node.phase = Phase.FALLING_BACK
        ms = max(0.0, (self.machine.now - node.started_at) * 1000)
        failed = failed_result(step, node.path, failure, node.attempt, ms)
        command = cmd.AskFallback(node.path, handler, failed, self.machine.view(node))
        self.machine.ask(node, command)

    def fallback_chosen(self, node: Node, report: cmd.Evaluated) -> None:
        """Run the step that the handler returned; anything else settles the failure."""
        chosen: Step[Any] = report.value
        if report.error is not None:
            self._settle(node, failure_of(report.error))
        elif not isinstance(chosen, Step):
            said = f"the handler of .on_error() must return a step, got {chosen!r}"
            self._settle(node, failure_of(NotAStep(repr(chosen), self.machine.where(node), said)))
        else:
            path = join(node.path, chosen.name)
            node.live = None
            if self.machine.take_path(
                node, path, node.path, "Give the fallback step a name of its own."
            ):
                self.machine.open_child(node, chosen, path, len(node.seen or ()))

    def fallback_ended(self, node: Node, result: StepResult[Any]) -> None:
        """End with what the fallback gave; if it failed too, its failure is the one that counts."""
        if node.stop is not None:
            self.machine.stopping.all_stopped(node)
        elif result.success:
            self.machine.end_step(node, "succeeded", output=result.output)
        else:
            text = f"fallback {result.name!r} failed too: {result.error}"
            self._settle(node, failure_from(result, text))

    def _settle(self, node: Node, failure: Failure) -> None:
        """The step has failed for good; ``default`` or ``skip_on_error`` may still have a say."""
        step = node.step
        assert step is not None
        if step.modifiers.default is not None:
            self.machine.end_step(
                node,
                "defaulted",
                output=step.modifiers.default.value,
                failure=failure,
                usage=failure.usage,
            )
        elif step.modifiers.skip_on_error:
            skipped = Skipped(failure.error)
            self.machine.end_step(
                node, "skipped", output=skipped, failure=failure, usage=failure.usage
            )
        else:
            self.fail_for_good(node, failure)

    def fail_for_good(self, node: Node, failure: Failure) -> None:
        """End as failed, past every modifier that could still save the step."""
        self.machine.end_step(
            node, "failed", output=failure.output, failure=failure, usage=failure.usage
        )

    def retry_judged(self, node: Node, failure: Failure, report: cmd.Evaluated) -> None:
        """Record the failure as retryable or not; a predicate that raised ends the tries."""
        if report.error is not None:
            self._record_failure(node, failure_of(report.error), retryable=False)
        else:
            self._record_failure(node, failure, retryable=bool(report.value))


def failure_on_record(event: ev.AttemptFailed) -> Failure:
    """The failure of which an event tells."""
    failure = Failure(
        event.error,
        event.error_type,
        event.error_bases,
        traceback=event.traceback,
        output=event.output,
        retryable=event.retryable,
    )
    failure.usage = event.usage
    return failure


def failed_result(
    step: Step[Any], path: str, failure: Failure, attempt: int, duration_ms: float
) -> StepResult[Any]:
    """What the handler of ``on_error`` is shown."""
    return StepResult(
        step.name,
        path,
        step.verb.kind,
        "failed",
        failure.output,
        failure.error,
        failure.kind,
        failure.bases,
        failure.traceback,
        duration_ms,
        attempt,
    )


def _covered(on: RetryOn, failure: Failure) -> bool:
    wanted = cast("tuple[type, ...]", on if isinstance(on, tuple) else (on,))
    names = {failure.kind, *failure.bases}
    return any(qualified(kind) in names for kind in wanted)


def _live(on: Callable[[BaseException], bool], failure: Failure) -> Callable[[Any], bool]:
    """A predicate of retry for a composite, whose failure is known by its record alone."""
    result: StepResult[Any] = StepResult(
        "", "", "", "failed", failure.output, failure.error, failure.kind, failure.bases
    )
    return lambda _context: on(StepFailed(result))
