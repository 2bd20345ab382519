"""How attempts fail, and what follows if none is left: fallback, default, or failure.

The order is fixed: ``retry`` (``core.retry``), then ``on_error``, then ``default`` or
``skip_on_error``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from handrail.core import commands as cmd
from handrail.core.failures import AttemptFailure, failure_from, failure_of
from handrail.core.nodes import Phase
from handrail.core.run_state import EndStopped, RunState, StepNode
from handrail.errors import NotAStep, StepIsPoisonous, StepWasInterrupted
from handrail.model import events as ev
from handrail.model.launch import NotReady
from handrail.model.paths import join
from handrail.model.policy import RetryOn
from handrail.model.results import Skipped, StepFailed, StepResult, qualified
from handrail.steps.verbs import Step

_NOT_READY = qualified(NotReady)


def fail(run: RunState, node: StepNode, failure: AttemptFailure) -> None:
    """Fail an attempt that the engine did not report as failed; a retry or fallback may follow."""
    run.drop_timers(node)
    retry = node.step.modifiers.retry
    retryable = failure.retryable and not is_not_ready(failure)
    if retry is not None and retry.on is not None and retryable:
        on = retry.on
        if not isinstance(on, (type, tuple)):
            node.failure, node.phase = failure, Phase.PAUSED
            predicate = _predicate_of_record(on, failure)
            run.ask(node, cmd.AskPredicate(node.path, predicate, run.view(node), -1))
            return
        retryable = _is_covered(retry.on, failure)
    record_failure(run, node, failure, retryable=retryable)


def fail_with(
    run: RunState, node: StepNode, error: BaseException, *, retryable: bool = True
) -> None:
    """``fail`` with an exception that the core made or caught."""
    fail(run, node, failure_of(error, retryable=retryable))


def fail_for_good(
    run: RunState,
    node: StepNode,
    failure: AttemptFailure,
    handled: tuple[AttemptFailure, ...] = (),
) -> None:
    """End a step as failed, bypassing every modifier that could still save it."""
    run.end_step(
        node,
        "failed",
        output=failure.output,
        failure=failure,
        handled=handled,
        derived=failure.derived,
    )


def fail_rather_than_repeat(run: RunState, node: StepNode) -> bool:
    """Fail an interrupted leaf that is ``once`` or crashed too often; True if it was failed."""
    record = run.recorded.at(node.path)
    error: StepWasInterrupted | StepIsPoisonous | None = None
    if node.step.modifiers.once:
        error = StepWasInterrupted(node.path)
    elif record.crashes >= run.setting.max_crashes:
        error = StepIsPoisonous(node.path, record.crashes)
    if error is not None:
        failure = failure_of(error, retryable=False)
        failure.usage = record.interrupted_usage
        fail(run, node, failure)
    return error is not None


def fallback_chosen(run: RunState, node: StepNode, report: cmd.Evaluated) -> None:
    """Run the step that the handler returned; an error, or anything else, settles the failure."""
    chosen: Step[Any] = report.value
    if report.error is not None:
        _settle(run, node, failure_of(report.error), _primary(node))
    elif not isinstance(chosen, Step):
        error = NotAStep(
            repr(chosen), run.where(node), "", "the handler of .on_error() must return a step"
        )
        _settle(run, node, failure_of(error), _primary(node))
    else:
        path = join(node.path, chosen.name)
        if run.reserve_path(node, path, "Give the fallback step a name of its own.", node.path):
            run.open_child(node, chosen, path, len(node.seen or ()))


def fallback_ended(run: RunState, node: StepNode, result: StepResult[Any]) -> None:
    """End with the fallback's output; if the fallback failed too, its failure counts."""
    if node.stop is not None:
        run.push(EndStopped(node))
    elif result.success:
        run.end_step(node, "succeeded", output=result.output, handled=_primary(node))
    else:
        text = f"fallback {result.name!r} failed too: {result.error}"
        _settle(run, node, failure_from(result, text), _primary(node))


def _primary(node: StepNode) -> tuple[AttemptFailure, ...]:
    """The failure for which the handler was asked for a fallback, as a tuple."""
    return () if node.failure is None else (node.failure,)


def record_failure(
    run: RunState, node: StepNode, failure: AttemptFailure, *, retryable: bool
) -> None:
    """Record the failed attempt, and whether it may be retried."""
    run.record(
        ev.AttemptFailed(
            node.path,
            node.attempt,
            *failure.facts,
            retryable,
            failure.output,
            failure.usage,
            node.consumed_signal,
            run.unreached_children(node),
            failure.derived,
            cause=failure.cause,
        )
    )


def fall_back(run: RunState, node: StepNode, failure: AttemptFailure) -> None:
    """Ask the handler of ``on_error``, if there is one, for a step; else settle the failure."""
    handler = node.step.modifiers.on_error
    if handler is None or is_not_ready(failure):
        _settle(run, node, failure)
        return
    node.phase = Phase.FALLING_BACK
    ms = max(0.0, (run.now - node.started_at) * 1000)
    failed = failed_result(node.step, node.path, failure, node.attempt, ms)
    run.ask(node, cmd.AskFallback(node.path, handler, failed, run.view(node)))


def is_not_ready(failure: AttemptFailure) -> bool:
    """True if an agent could not begin at all: nothing stands in for that (``NotReady``)."""
    return _NOT_READY in failure.bases


def _settle(
    run: RunState,
    node: StepNode,
    failure: AttemptFailure,
    before: tuple[AttemptFailure, ...] = (),
) -> None:
    """End the step with its ``default``, as skipped, or as failed.

    ``before``: the failure for which the handler was asked for a fallback, if it was.
    """
    modifiers = node.step.modifiers
    handled = (*before, failure)
    if is_not_ready(failure):
        fail_for_good(run, node, failure, before)
    elif modifiers.default is not None:
        output = modifiers.default.value
        run.end_step(node, "defaulted", output=output, failure=failure, handled=handled)
    elif modifiers.skip_on_error:
        skipped = Skipped(failure.error)
        run.end_step(node, "skipped", output=skipped, failure=failure, handled=handled)
    else:
        if before:
            failure.error += f"; the step itself had failed: {before[0].error}"
        fail_for_good(run, node, failure, before)


def failure_on_record(event: ev.AttemptFailed) -> AttemptFailure:
    """The failure that an event records."""
    failure = AttemptFailure(
        event.error,
        event.error_type,
        event.error_bases,
        traceback=event.traceback,
        output=event.output,
        retryable=event.retryable,
    )
    failure.usage, failure.derived = event.usage, event.composed
    failure.abandoned, failure.cause = event.abandoned, event.cause
    return failure


def failed_result(
    step: Step[Any], path: str, failure: AttemptFailure, attempt: int, duration_ms: float
) -> StepResult[Any]:
    """The result that the handler of ``on_error`` receives."""
    return StepResult(
        step.name,
        path,
        step.verb.kind,
        "failed",
        failure.output,
        *failure.facts,
        duration_ms,
        attempt,
        abandoned=failure.abandoned,
    )


def _is_covered(on: RetryOn, failure: AttemptFailure) -> bool:
    wanted = cast("tuple[type, ...]", on if isinstance(on, tuple) else (on,))
    names = {failure.kind, *failure.bases}
    return any(qualified(kind) in names for kind in wanted)


def _predicate_of_record(
    on: Callable[[BaseException], bool], failure: AttemptFailure
) -> Callable[[Any], bool]:
    """The retry predicate for a failure that exists only as recorded facts, not as an exception."""
    result: StepResult[Any] = StepResult(
        "", "", "", "failed", failure.output, failure.error, failure.kind, failure.bases
    )
    return lambda _context: on(StepFailed(result))
