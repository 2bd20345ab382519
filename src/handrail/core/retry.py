"""Decides whether another attempt follows a failed one, and after how long.

``attempt_failed`` decides. The action ``Attempt`` has ``core.attempts.attempt`` begin the next one,
at once or when the timer of the pause fires (``core.waits``). ``on=`` has set ``retryable`` before:
``core.attempt_ends`` for leaves, ``failing.fail`` for the rest. If no attempt follows,
``core.failing`` takes over.
"""

from __future__ import annotations

from handrail.core import commands as cmd
from handrail.core.failing import failure_on_record, fall_back, record_failure
from handrail.core.failures import AttemptFailure, failure_of
from handrail.core.nodes import Phase
from handrail.core.run_state import Attempt, RunState, StepNode
from handrail.model import events as ev
from handrail.model.policy import Backoff, Retry
from handrail.record.outputs import members_results


def attempt_failed(run: RunState, event: ev.AttemptFailed) -> None:
    """Decide what follows a journaled failure: another attempt, or none."""
    node = run.step_at(event.path)
    if node is None:
        return
    failure = node.failure = failure_on_record(event)
    if event.composed and event.output is None:
        failure.output = members_results(run.recorded, event.path, event.attempt, node.step)
    if node.stop is not None:
        run.end_cancelled(node)
        return
    pause = pause_s(
        event.attempt,
        retryable=failure.retryable,
        retry=node.step.modifiers.retry,
        seed=f"{run.setting.run_id}/{node.path}",
    )
    if pause is None:
        fall_back(run, node, failure)
    elif pause == 0:
        run.push(Attempt(node))
    else:
        node.phase = Phase.PAUSED
        due = run.now + pause
        run.record(ev.TimerSet(node.path, due, "retry", event.attempt))
        node.timer = run.wait(node, due)


def retry_judged(
    run: RunState, node: StepNode, failure: AttemptFailure, report: cmd.Evaluated
) -> None:
    """Record the failure as retryable or not, by the answer of the ``on=`` predicate.

    If the predicate raised, its error is recorded instead, and no retry follows.
    """
    if report.error is not None:
        record_failure(run, node, failure_of(report.error), retryable=False)
    else:
        record_failure(run, node, failure, retryable=bool(report.value))


def pause_s(attempt: int, *, retryable: bool, retry: Retry | None, seed: str) -> float | None:
    """The pause in seconds after failed attempt ``attempt`` (from 1); None if no attempt follows.

    ``seed`` names run and path: the same seed and attempt give the same jitter.
    """
    if retry is None or not retryable or attempt >= retry.max_attempts:
        return None
    return delay_s(retry.backoff, attempt, seed)


def delay_s(backoff: Backoff, attempt: int, seed: str) -> float:
    """The backoff in seconds after failed attempt ``attempt``, shortened by the jitter."""
    try:
        pause = min(backoff.initial_s * backoff.factor ** (attempt - 1), backoff.max_s)
    except OverflowError:
        pause = backoff.max_s if backoff.initial_s else 0.0
    if backoff.jitter == 0 or pause == 0:
        return pause
    return pause * (1 - backoff.jitter * _fraction(f"{seed}#{attempt}"))


def _fraction(seed: str) -> float:
    """A number from 0 to below 1 that depends on the text alone."""
    import hashlib  # 2 ms that most processes need not pay

    digest = hashlib.blake2b(seed.encode("utf-8", "surrogatepass"), digest_size=6).digest()
    return int.from_bytes(digest, "big") / (1 << 48)
