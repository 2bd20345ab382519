"""One event of each kind, for suites that must see them all."""

from __future__ import annotations

from typing import Any, get_args

from handrail.model import events as ev
from handrail.model.launch import Launch
from handrail.model.results import (
    OpenGate,
    RollbackError,
    StageResult,
    StepResult,
    Usage,
    ValidationRoundResult,
)
from handrail.model.work import Found, Task

RUN = "sample-1"


def sample_events(run_id: str = RUN) -> list[ev.Event]:
    """One event of each kind that is journaled, numbered from 1, as one run might have them."""
    done = StepResult("plan", "plan", "python", "succeeded", "text", duration_ms=1.5)
    failed: StepResult[Any] = StepResult(
        "lint", "check/1/lint", "stage", "failed", None, "exit code 1", "builtins.ValueError",
        ("builtins.Exception",), "Traceback ...", 2.0, 2, usage=Usage(10, 5, 0.01, 1),
    )  # fmt: skip
    member: StepResult[Any] = StepResult("0", "each/0", "member", "skipped")
    found: StepResult[Any] = StepResult(
        "a", "grow/a", "member", "succeeded", Found(1, [Task("a/1", None, 0.5)])
    )
    stages = (StageResult("lint", passed=False, output="E1", error="exit code 1"),)
    gate = OpenGate("merge?", "Merge?", ("yes", "no"), since=3.0, deadline=60.0)
    kinds: list[ev.Event] = [
        ev.WorkflowStarted("sample", {"task": "x"}, {"team": "a"}),
        ev.StepStarted("plan", "python", "f1", verdict=True),
        ev.StepCompleted("plan", done),
        ev.StepStarted("check", "validate"),
        ev.StepStarted("check/1/lint", "stage"),
        ev.AttemptFailed("check/1/lint", 1, "exit code 1", "builtins.ValueError"),
        ev.TimerSet("check/1/lint", 9.0, "retry", 1),
        ev.StepCompleted("check/1/lint", failed, used_before=Usage(4)),
        ev.ValidationRound("check", 1, passed=False, round=ValidationRoundResult(1, stages)),
        ev.StepStarted("each", "for_each"),
        ev.GroupStarted("each", "for_each", 1),
        ev.MemberStarted("each/0", 0, "0", "d1"),
        ev.MemberCompleted("each/0", 0, member),
        ev.GroupCompleted("each", "for_each", 1, skipped=1),
        ev.StepStarted("grow", "work"),
        ev.GroupStarted("grow", "work", 1, "continue", 2),
        ev.TasksQueued("grow", (Task("a", {"n": 1}), Task("b", "text", 2.0))),
        ev.MemberStarted("grow/a", 0, "a", "d2"),
        ev.WorkEdited("grow", (Task("c"),), ("b",), {"c": -1.0}, "ann"),
        ev.MemberCompleted("grow/a", 0, found, "", (), (("a/1", 0.5),)),
        ev.WorkStopped("grow", 1, "enough", 1),
        ev.GroupCompleted("grow", "work", 1, 1, order=("a",), why_stopped="enough"),
        ev.StepStarted("child", "subworkflow"),
        ev.SubworkflowStarted("child", "other", {"n": 1}),
        ev.StepMoved("child/step", 2),
        ev.StepInterrupted("child/step", "SIGTERM"),
        ev.SubworkflowEnded("child", "other", "failed", "no luck"),
        ev.StepStarted("merge?", "ask"),
        ev.GateOpened("merge?", gate),
        ev.RunSuspended((gate,), ("go",), "waiting"),
        ev.SignalReceived("go", {"n": 1}, "ann"),
        ev.GateAnswered("merge?", "yes", "ann"),
        ev.RunResumed(("child",), ("plan",), ("each",)),
        ev.LimitReached("max_steps", 10.0, "plan"),
        ev.CancelRequested("enough"),
        ev.RunSteered("pause", by="ann"),
        ev.RunSteered("complete", "code", {"n": 1}, "ann"),
        ev.StepStarted("code", "agent"),
        ev.BudgetReserved("code", 1, 20_000, 0.5),
        ev.AgentSessionStarted("code", "s-1", "claude", "opus"),
        ev.ClaimWaiting("code", "src/**", "step 'a' of run b"),
        ev.ClaimGranted("code", "src/**", 7),
        ev.ClaimLost("code", "src/**", 7, "step 'a' of run b"),
        ev.SandboxDenied("code", "evil.test:443", "proxy"),
        ev.LadderStep(
            "code",
            1,
            "usage_cap",
            "the plan is used up",
            Launch(2, rung="wait", session="s-1", spent=Usage(10, 5)),
            due=90.0,
            backend="claude",
            session="s-1",
        ),
        ev.RunSteered("guide", "code", "use tabs", "ann"),
        ev.AgentGuided(
            "code",
            1,
            Launch(3, rung="guide", session="s-1", guidance=("use tabs",), said=("be quick",)),
            (2,),
            ("ann",),
        ),
        ev.BudgetSettled("code", 1, Usage(10, 5, 0.01, 1, 4, cost_source="reply"), 2.5),
        ev.BudgetWarning("code", "", "cost_usd", 0.9, 1.0),
        ev.BudgetRaised("code", ""),
        ev.RollbackStarted("plan"),
        ev.RollbackCompleted("plan", "no way back", "builtins.OSError"),
        ev.WorkflowCompleted(
            "failed",
            error="enough",
            failed_step="plan",
            rollback_errors=(RollbackError("plan", "no way back", "builtins.OSError"),),
            duration_ms=12.0,
        ),
    ]
    _check_complete(kinds, ev.Event)
    return [ev.stamp(event, run_id, seq, float(seq)) for seq, event in enumerate(kinds, 1)]


def sample_progress(run_id: str = RUN) -> list[ev.Progress]:
    """One progress notice of each kind."""
    kinds: list[ev.Progress] = [
        ev.StepOutput("plan", "stdout", "half a li"),
        ev.StepReplayed("plan", StepResult("plan", "plan", "python", "succeeded")),
        ev.WorkGrew("plan", 12, 1),
        ev.AgentTurnStarted("plan", 1, "Plan it."),
        ev.AgentTranscript("plan", '{"prompt":"Plan it."}', "sent"),
        ev.AgentReasoning("plan", "Hm."),
        ev.AgentMessage("plan", "Well,"),
        ev.AgentToolStarted("plan", "t-1", "Bash", {"command": "ls"}),
        ev.AgentPermission("plan", "Bash", "denied", "not allowed to"),
        ev.AgentToolCompleted("plan", "t-1", "Bash", ok=False, output="no", exit_code=2),
        ev.AgentRetry("plan", 1, 2.0, "529 overloaded"),
        ev.AgentCompaction("plan", "completed", 90_000, 9_000),
        ev.AgentLimit("plan", "warning", "five_hour", 0.9, 90.0),
        ev.AgentUsage("plan", Usage(1, 2)),
        ev.AgentFinished(
            "plan", "failed", "usage_cap", "it is used up", Usage(1, 2), "opus", "s-1", ("a.py",)
        ),
        ev.AgentTurnCompleted("plan", 1, "it is no JSON", Usage(1, 2)),
        ev.SinkDropped("JsonlSink", "OSError: disk full"),
    ]
    _check_complete(kinds, ev.Progress)
    return [ev.stamp(notice, run_id, 2, 2.0) for notice in kinds]


def _check_complete(samples: list[ev.Event] | list[ev.Progress], union: object) -> None:
    missing = set(get_args(union)) - {type(sample) for sample in samples}
    if missing:
        raise AssertionError(f"no sample of {sorted(kind.__name__ for kind in missing)}")
