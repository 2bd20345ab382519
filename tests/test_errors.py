"""Each public error: its text, its parts, and that it survives pickle and copy."""

from __future__ import annotations

import copy
import inspect
import json
import os
import pickle  # noqa: TID251  # that errors survive it is what is tested
import re
from typing import Any

import pytest

import handrail
from handrail import (
    AgentError,
    AnswerRejected,
    BlobMissing,
    BudgetExceeded,
    CancelledFromWithin,
    CannotSteer,
    CassetteMismatch,
    CassetteMissing,
    ClaimDeadlock,
    ClaimLost,
    ClaimsFailed,
    ClaimTimeout,
    ClusterRefused,
    ClusterUnreachable,
    CodeNotFound,
    CommandFailed,
    CommandNotFound,
    CommandNotStarted,
    ContextNotAMapping,
    CoreStalled,
    DamagedExport,
    DefinitionError,
    DoesNotFit,
    DuplicateStepName,
    FileRefused,
    GateClosed,
    GateNotFound,
    GateRefusal,
    GroupFailed,
    HandrailError,
    HubFailed,
    InputsDiffer,
    InsideEventLoop,
    InvalidAnswer,
    InvalidInput,
    InvalidSignal,
    JournalDamaged,
    JournalFailed,
    LeaseLost,
    LimitExceeded,
    MissingExtra,
    NoArmChosen,
    NotAStep,
    NotClean,
    NotDeterministic,
    NotPortable,
    NotReady,
    NotRecorded,
    NoWorker,
    OpenGate,
    OutOfSequence,
    OutputChanged,
    OutputNotSerializable,
    OutsideStep,
    PatchRefused,
    PromptError,
    ReplayMismatch,
    RunCancelled,
    RunIdTaken,
    RunLocked,
    RunNotFound,
    RunTerminated,
    SandboxUnavailable,
    ScopeViolated,
    ServerNotStarted,
    SourceUnavailable,
    StageFailed,
    StageResult,
    StagesMissing,
    StepChange,
    StepFailed,
    StepIsPoisonous,
    StepResult,
    StepTimeout,
    StepWasInterrupted,
    TooEarly,
    TooLarge,
    UnreadableRecord,
    Unresolvable,
    ValidationFailed,
    ValidationResult,
    ValidationRoundResult,
    WaitsFor,
    WorkflowError,
    WorkflowFailed,
    WorkflowMistake,
    WorkflowNotFound,
    WorkflowResult,
    WorktreeConflict,
    WrongUse,
)

FAILED: StepResult[Any] = StepResult(
    "b", "a/b", "call", "failed", error="no", error_type="m.Boom", attempts=3, traceback="T"
)
ONCE: StepResult[Any] = StepResult("b", "a/b", "call", "failed", error="no", error_type="m.Boom")
STAGE = StageResult("lint", False, "E501", "exit code 1: E501")
SILENT_STAGE = StageResult("lint", False)
ROUND = ValidationRoundResult(1, (STAGE,))
RUN: WorkflowResult[Any] = WorkflowResult("ship", "ship-1", "failed", error="step 'a' failed")
WAITING: WorkflowResult[Any] = WorkflowResult(
    "ship", "ship-1", "suspended", waiting=(OpenGate("q", "Merge?"),)
)

CASES: list[tuple[BaseException, str, dict[str, Any]]] = [
    (HandrailError("something"), r"something", {}),
    (RunCancelled("not wanted"), r"not wanted", {"reason": "not wanted"}),
    (
        SandboxUnavailable("bwrap is not installed", "Install bubblewrap."),
        r"no sandbox here: bwrap is not installed\. Install bubblewrap\.",
        {"why": "bwrap is not installed", "advice": "Install bubblewrap."},
    ),
    (RunCancelled(), r"cancelled", {"reason": "cancelled"}),
    (DefinitionError("no"), r"no", {}),
    (WrongUse("no"), r"no", {}),
    (StepFailed(FAILED), r"step 'a/b' failed after 3 attempts: Boom: no", {"result": FAILED}),
    (StepFailed(ONCE), r"step 'a/b' failed: Boom: no", {"result": ONCE}),
    (
        WorkflowFailed(RUN),
        r"run ship-1 of workflow 'ship' failed: step 'a' failed",
        {"result": RUN},
    ),
    (
        WorkflowFailed(WAITING),
        r"run ship-1 .* suspended, waiting for an answer to 'q'.*resume",
        {},
    ),
    (WorkflowError("tests are red"), r"tests are red", {"reason": "tests are red"}),
    (WorkflowMistake("a mistake"), r"a mistake", {}),
    (
        NotAStep("None", "flow.py:3", "Write this."),
        r"flow\.py:3: a workflow must yield steps, got None\. Write this\.",
        {"got": "None", "where": "flow.py:3", "hint": "Write this."},
    ),
    (
        DuplicateStepName("a/b", "flow.py:3", "Name them apart."),
        r"flow\.py:3: .*'a/b' is already taken.* Name them apart\.",
        {"path": "a/b", "where": "flow.py:3", "hint": "Name them apart."},
    ),
    (
        LimitExceeded("max_steps", 3, "at step 'd'"),
        r"limit max_steps=3: at step 'd'\. .*Limits",
        {"name": "max_steps", "value": 3, "why": "at step 'd'"},
    ),
    (
        BudgetExceeded("build", "usd", 4.5, 5.0, 1.0),
        r"budget of step 'build' .*usd 4\.5 of 5 used or reserved, and it is expected to use 1\.",
        {"scope": "build", "name": "usd", "used": 4.5, "limit": 5.0, "next": 1.0},
    ),
    (NotClean("flow", ["a", "b/c"]), r"'flow' is not clean: .*a, b/c\.", {"paths": ("a", "b/c")}),
    (LimitExceeded("timeout_s", 0.5), r"limit timeout_s=0\.5\. ", {"value": 0.5}),
    (
        InvalidInput("count", "'x'", "an int"),
        r"input 'count': got 'x', expected an int",
        {"parameter": "count", "got": "'x'", "expected": "an int"},
    ),
    (
        OutputNotSerializable("step 'a'", "output", "it is a lock"),
        r"step 'a': output cannot be recorded: it is a lock\. .*dataclass",
        {"where": "step 'a'", "field": "output", "why": "it is a lock"},
    ),
    (
        ReplayMismatch("r", [StepChange("a", "python m:f [1]", "python m:f [2]")]),
        r"run r: .*step 'a' was python m:f \[1\], is python m:f \[2\]\. .*reuse.*rerun.*nothing",
        {"run_id": "r", "changes": (StepChange("a", "python m:f [1]", "python m:f [2]"),)},
    ),
    (
        NotRecorded("r", "a/b", ["a/c"]),
        r"run r has no recorded step 'a/b'\. Did you mean 'a/c'\?",
        {"run_id": "r", "path": "a/b", "known": ("a/c",)},
    ),
    (NotRecorded("r", "a"), r"run r has no recorded step 'a'\.", {"known": ()}),
    (
        HubFailed("h.db", "is used by another hub", "Stop the other"),
        r"hub h\.db is used by another hub\. Stop the other\.",
        {"hub": "h.db", "why": "is used by another hub", "hint": "Stop the other"},
    ),
    (
        LeaseLost("r", 12, "host"),
        r"run r was taken over by process 12 on host.*records nothing more",
        {"run_id": "r", "pid": 12, "host": "host"},
    ),
    (
        ClaimTimeout("step 'a' of run r", "src/**", 2.5, ["a person", "step 'b' of run r"]),
        r"step 'a' of run r did not get src/\*\* within 2\.5 s, behind a person, .*claims`",
        {"what": "src/**", "seconds": 2.5, "holders": ("a person", "step 'b' of run r")},
    ),
    (ClaimTimeout("ann", "git", 0), r"ann did not get git at once\. Wait longer", {"holders": ()}),
    (
        ClaimDeadlock("step 'a' of run r", "git", ["a waits for b", "b waits for a"]),
        r"cannot wait for git: it would wait for itself\. a waits for b; b waits for a\. ",
        {"what": "git", "circle": ("a waits for b", "b waits for a")},
    ),
    (
        ClaimLost("step 'a' of run r", "src/**", 7, "ann"),
        r"lost its claim of src/\*\* \(epoch 7\), and ann has it now.*Nothing was merged.*again",
        {"claimant": "step 'a' of run r", "what": "src/**", "epoch": 7, "holder": "ann"},
    ),
    (
        ClaimsFailed("claims.db", "claiming", "disk full", "Make room."),
        r"claims claims\.db: claiming failed: disk full\. Make room\.",
        {"store": "claims.db", "doing": "claiming", "why": "disk full", "hint": "Make room."},
    ),
    (
        JournalFailed("x.db", "writing", "disk full", "Make room."),
        r"journal x\.db: writing failed: disk full\. Make room\.",
        {"journal": "x.db", "doing": "writing", "why": "disk full", "hint": "Make room."},
    ),
    (
        JournalDamaged("x.db", "reading", "record 3 of run r is damaged"),
        r"journal x\.db: reading failed: record 3 of run r is damaged\.",
        {"hint": ""},
    ),
    (
        StepWasInterrupted("a"),
        r"step 'a' has started before.*once.*rerun",
        {"path": "a"},
    ),
    (
        StepIsPoisonous("a", 5),
        r"died 5 times while step 'a' was running.*rerun",
        {"path": "a", "crashes": 5},
    ),
    (
        Unresolvable("m:C", "no module m is imported"),
        r"value of m:C cannot be read: no module m is imported\. Import",
        {"tag": "m:C", "why": "no module m is imported"},
    ),
    (
        UnreadableRecord("r", 3, "Odd", "no such event"),
        r"run r: record 3 \(Odd\) cannot be read: no such event",
        {"run_id": "r", "seq": 3, "kind": "Odd", "why": "no such event"},
    ),
    (
        RunLocked("r", 12, "host", 3.4),
        r"run r .* process 12 on host \(since 3 s\)\. .*[Ss]top it",
        {"run_id": "r", "pid": 12, "host": "host", "age_s": 3.4},
    ),
    (
        InputsDiffer("r", "n", "1", "2"),
        "run r was started with n=1, not 2. Give the same inputs",
        {"run_id": "r", "name": "n", "recorded": "1", "given": "2"},
    ),
    (
        OutputChanged("b", "a", ".x"),
        "step 'b' changed in place what step 'a' returned: its output.x.",
        {"path": "b", "owner": "a", "field": ".x"},
    ),
    (
        DamagedExport("f.jsonl", 7, "it ends before its end"),
        r"line 7: it ends.* The 6 lines before it are whole\. Nothing was imported\. Export",
        {"file": "f.jsonl", "line": 7, "why": "it ends before its end"},
    ),
    (
        CannotSteer("r", "it has failed", "resume() goes on."),
        r"run 'r': it has failed\. resume\(\) goes on\.",
        {"run_id": "r", "why": "it has failed", "instead": "resume() goes on."},
    ),
    (RunIdTaken("r"), r"run 'r' already.*[Rr]esume", {"run_id": "r"}),
    (
        CancelledFromWithin("a"),
        r"step 'a' was cancelled from within: something it awaited was cancelled",
        {"path": "a"},
    ),
    (CoreStalled(), r"neither continue nor end.*defect", {}),
    (
        OutOfSequence("r", 7, 5),
        r"run r: .*number 7 where 5 is next",
        {"run_id": "r", "seq": 7, "expected": 5},
    ),
    (RunNotFound("r", ["s", "t"]), r"no run 'r'.* s, t", {"run_id": "r", "known": ("s", "t")}),
    (RunNotFound("r"), r"no run 'r'.* no runs", {"known": ()}),
    (
        WorkflowNotFound("ship", ["other"]),
        r"'ship'.*other.*resume\(\).*workflows=",
        {"name": "ship", "known": ("other",)},
    ),
    (
        GateClosed("q", "yes", "ann", 5.0),
        r"gate 'q' is closed: .*by ann with 'yes'",
        {"gate": "q", "answer": "yes", "by": "ann", "at": 5.0},
    ),
    (GateClosed("q", 3, None, 5.0), r"gate 'q' is closed: it was answered with 3", {"by": None}),
    (
        GateClosed("q", None, "timeout", 5.0),
        r"^gate 'q' is closed: nobody answered it in time$",
        {"by": "timeout", "answer": None},
    ),
    (
        GateClosed("q", "no", "timeout", 5.0),
        r"nobody answered it in time, so it got its default, 'no'$",
        {"answer": "no"},
    ),
    (
        InvalidAnswer("q", "maybe", "one of yes, no"),
        r"gate 'q': 'maybe' is not a valid answer.*expected one of yes, no",
        {"gate": "q", "answer": "maybe", "expected": "one of yes, no"},
    ),
    (
        InvalidSignal("paid", "x", "int"),
        r"signal 'paid': 'x' is not what the run waits for, expected int\. It was not sent\.",
        {"signal": "paid", "payload": "x", "expected": "int"},
    ),
    (GateRefusal("q", "no default"), r"'q'.*no default", {"gate": "q", "why": "no default"}),
    (
        GateNotFound("r", "q", ["p"]),
        r"run r has no gate 'q'.*p",
        {"run_id": "r", "gate": "q", "open_gates": ("p",)},
    ),
    (NotPortable("a", "action"), r"'a'.*action.*importable", {"path": "a", "part": "action"}),
    (
        NotPortable("a", "args[0].lock", "it is not data", "flows.py:3"),
        r"flows\.py:3: step 'a'.*args\[0\]\.lock.*not data.*top level",
        {"part": "args[0].lock", "why": "it is not data", "where": "flows.py:3"},
    ),
    (
        CodeNotFound("flows:add", "No module named 'flows'"),
        r"flows:add cannot be found here.*No module.*worker where module 'flows'",
        {"name": "flows:add", "why": "No module named 'flows'"},
    ),
    (
        NotDeterministic("w", ("f.py:3: HR201 the clock",)),
        r"workflow 'w'.*\n.*f\.py:3: HR201",
        {"workflow": "w", "findings": ("f.py:3: HR201 the clock",)},
    ),
    (
        TooLarge("the output of 'a'", 3_000_000, 2_000_000),
        r"3,000,000 bytes.*2,000,000.*blobs=",
        {"what": "the output of 'a'", "size_bytes": 3_000_000, "limit_bytes": 2_000_000},
    ),
    (
        ClusterUnreachable("h:1", "refused"),
        r"h:1 cannot be reached: refused.*runs continue once it does",
        {"address": "h:1", "why": "refused"},
    ),
    (
        NoWorker("r", "q", "silence"),
        r"run r on task queue 'q': silence.*handrail worker",
        {"run_id": "r", "task_queue": "q"},
    ),
    (RunTerminated("r", "terminated"), r"run r was terminated.*resume\(\)", {"how": "terminated"}),
    (
        BlobMissing("ab", "/store", damaged=True),
        r"ab is damaged in /store.*--blobs",
        {"name": "ab", "where": "/store", "damaged": True},
    ),
    (ServerNotStarted("no program"), r"could not be started: no program", {"why": "no program"}),
    (ClusterRefused("a", "too big"), r"step 'a'.*cluster: too big", {"path": "a"}),
    (
        MissingExtra("sinks.otel", "opentelemetry", "otel"),
        r'sinks\.otel needs opentelemetry: pip install "handrail\[otel\]"',
        {"who": "sinks.otel", "library": "opentelemetry", "extra": "otel"},
    ),
    (
        InsideEventLoop("ship(...)", "Write: await ship.run(...)."),
        r"ship\(\.\.\.\).*running event loop.*await ship\.run",
        {"name": "ship(...)", "instead": "Write: await ship.run(...)."},
    ),
    (
        TooEarly("r-1", "has not begun yet"),
        r"run r-1 has not begun yet",
        {"run_id": "r-1", "why": "has not begun yet"},
    ),
    (StepTimeout("a", 1.5), r"step 'a' .*timeout of 1\.5 s", {"path": "a", "seconds": 1.5}),
    (
        CommandFailed("'ls x'", 2, "out", "no such file"),
        r"'ls x' exited with 2: no such file",
        {"argv": "'ls x'", "exit_code": 2, "stdout": "out", "stderr": "no such file"},
    ),
    (CommandFailed("'x'", 1, "said on stdout", ""), r"exited with 1: said on stdout", {}),
    (CommandFailed("'x'", 1, "", ""), r"exited with 1 and printed nothing", {}),
    (
        CommandNotFound("gti", "no program of this name is on PATH"),
        r"cannot start 'gti': no program",
        {"program": "gti", "why": "no program of this name is on PATH"},
    ),
    (
        CommandNotStarted("x", "too many processes"),
        r"cannot start 'x': too many processes",
        {"program": "x", "why": "too many processes"},
    ),
    (AgentError("coder", "quota"), r"agent 'coder': quota", {"agent": "coder", "reason": "quota"}),
    (
        AgentError("coder", "No session nope", kind="bad_request", hint="Begin a new one."),
        r"agent 'coder' \(bad request\): No session nope\. Begin a new one\.",
        {"hint": "Begin a new one."},
    ),
    (
        AgentError("coder", "Who are you?", kind="auth", hint="Run `x login`."),
        r"agent 'coder' \(auth\): Who are you\? Run `x login`\.",
        {"kind": "auth"},
    ),
    (NotReady("there is no backend"), "there is no backend", {}),
    (AnswerRejected("coder", "no JSON"), r"agent 'coder': no JSON", {"reason": "no JSON"}),
    (
        ScopeViolated("coder", ["a (added)"], "/q/x y.patch", ["src/**"], ["HEAD is back."]),
        r"'coder' changed 1 file .*\('src/\*\*'\):\n  a \(added\)\n.*HEAD is back\.\n.*'/q/x ",
        {"files": ("a (added)",), "patch": "/q/x y.patch", "allowed": ("src/**",), "kind": None},
    ),
    (
        ScopeViolated("coder", [f"f{n} (added)" for n in range(30)], None),
        r"changed 30 files .*\(nothing\).*f19 .*\n  and 10 more\n[^\n]*kept\.\Z",
        {"patch": None, "notes": ()},
    ),
    (
        WorktreeConflict("coder", "/w", "handrail/r/s", "a.py: conflict"),
        r"a\.py: conflict\nThe worktree is kept in /w.*git merge handrail/r/s.*worktree remove",
        {"folder": "/w", "branch": "handrail/r/s", "reason": "a.py: conflict"},
    ),
    (
        CassetteMismatch("coder", "a/b", 2, "coder/a/b-1.json", "-x\n+y"),
        r"launch 2 of agent 'coder' at 'a/b' .*coder/a/b-1\.json:\n-x\n\+y\nRecord it again",
        {"launch": 2, "recording": "coder/a/b-1.json", "difference": "-x\n+y"},
    ),
    (
        CassetteMissing("coder", "a", 1, "/t", [f"{n}.json" for n in range(30)]),
        r"not recorded in /t\. Recorded: 0\.json, .* and 10 more\. Record it again",
        {"path": "a", "folder": "/t"},
    ),
    (
        PatchRefused("x.patch", "/r", "no such file"),
        r"x\.patch does not apply to /r, .*left as it is: no such file\nBring the files",
        {"patch": "x.patch", "folder": "/r", "reason": "no such file"},
    ),
    (PromptError("coder", "no 'x'"), r"agent 'coder': no 'x'", {"reason": "no 'x'"}),
    (
        StagesMissing("verify", ["tset"], ["test"]),
        r"step 'verify'.*tset.*Known: test\..*pyproject\.toml.*Executor\(stages=.*Stage\(",
        {"path": "verify", "names": ("tset",), "known": ("test",)},
    ),
    (StagesMissing("verify", [], []), r"'verify' needs at least one stage\. None", {"known": ()}),
    (StageFailed(STAGE), r"exit code 1: E501", {"result": STAGE}),
    (StageFailed(SILENT_STAGE), r"stage 'lint' did not pass", {"result": SILENT_STAGE}),
    (
        ValidationFailed("verify", ValidationResult(False, (ROUND,))),
        r"did not pass in 1 round: lint: exit code 1: E501",
        {"path": "verify", "result": ValidationResult(False, (ROUND,))},
    ),
    (
        ValidationFailed("verify", ValidationResult(False, (ROUND, ROUND))),
        r"in 2 rounds: lint",
        {},
    ),
    (NoArmChosen("b", "none"), r"branch 'b': none", {"path": "b", "why": "none"}),
    (GroupFailed("g", "too few"), r"group 'g': too few", {"path": "g", "why": "too few"}),
    (OutsideStep(), r"handrail\.current\(\)", {}),
    (
        ContextNotAMapping("a", "3"),
        r"step 'a' must return a mapping.*got 3",
        {"path": "a", "got": "3"},
    ),
    (
        SourceUnavailable("f", "it is a lambda", "Write it as a def."),
        r"'f' cannot be read: it is a lambda\. Write it as a def\.",
        {"name": "f", "why": "it is a lambda", "hint": "Write it as a def."},
    ),
    (
        FileRefused("a.yaml", 3, "`skills:` has no counterpart", "Leave it out.", 2),
        r"^a\.yaml:3: `skills:` has no counterpart\. Leave it out\. \(2 more: handrail check a",
        {"line": 3, "instead": "Leave it out."},
    ),
    (DoesNotFit("expected an int"), r"expected an int", {}),
]

IDS = [f"{type(error).__name__}-{number}" for number, (error, _, _) in enumerate(CASES)]


@pytest.mark.parametrize(("error", "text", "parts"), CASES, ids=IDS)
def test_an_error_says_what_happened_and_carries_its_parts(
    error: BaseException, text: str, parts: dict[str, Any]
) -> None:
    """The text has the values and what to do; the parts are attributes."""
    assert re.search(text, str(error), re.DOTALL)
    assert {name: getattr(error, name) for name in parts} == parts


@pytest.mark.parametrize("trip", ["pickle", "copy", "deepcopy"])
@pytest.mark.parametrize(("error", "text", "parts"), CASES, ids=IDS)
def test_an_error_survives_pickle_and_copy(
    error: BaseException, text: str, parts: dict[str, Any], trip: str
) -> None:
    """Class, text and parts come back equal."""
    del text
    trips: dict[str, Any] = {
        "pickle": lambda one: pickle.loads(pickle.dumps(one)),
        "copy": copy.copy,
        "deepcopy": copy.deepcopy,
    }
    back = trips[trip](error)
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert {name: getattr(back, name) for name in parts} == parts


def test_every_public_error_has_a_case_here() -> None:
    """No public error is left without a test of its text."""
    public = {
        name
        for name in handrail.__all__
        if inspect.isclass(getattr(handrail, name))
        and issubclass(getattr(handrail, name), BaseException)
        and not issubclass(getattr(handrail, name), Warning)
    }
    assert public - {type(error).__name__ for error, _, _ in CASES} == set()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (DefinitionError, ValueError),
        (WrongUse, TypeError),
        (InvalidInput, ValueError),
        (InvalidAnswer, ValueError),
        (InvalidSignal, ValueError),
        (StepTimeout, TimeoutError),
        (CommandNotFound, FileNotFoundError),
        (InsideEventLoop, RuntimeError),
        (TooEarly, RuntimeError),
        (MissingExtra, ImportError),
        (OutsideStep, LookupError),
        (ContextNotAMapping, TypeError),
        (AnswerRejected, AgentError),
        (PromptError, AgentError),
        (NotAStep, WorkflowMistake),
        (DuplicateStepName, WorkflowMistake),
    ],
)
def test_an_error_is_of_the_builtin_kind_too(
    error: type[BaseException], kind: type[BaseException]
) -> None:
    """What people catch by habit catches it."""
    assert issubclass(error, kind)


def test_step_failed_knows_its_base_classes_by_name() -> None:
    """`is_a` takes a class or its full name."""
    result: StepResult[Any] = StepResult(
        "a",
        "a",
        "call",
        "failed",
        error="no",
        error_type="builtins.FileNotFoundError",
        error_bases=("builtins.OSError", "builtins.Exception"),
    )
    failed = StepFailed(result)
    assert failed.is_a(FileNotFoundError)
    assert failed.is_a(OSError)
    assert failed.is_a("builtins.OSError")
    assert not failed.is_a(ValueError)


def test_a_run_that_is_driven_here_is_told_as_that() -> None:
    """To stop the process that says so would not help."""
    here = str(RunLocked("r", os.getpid(), os.uname().nodename, 1))
    assert "by this same process" in here
    assert "Stop it first" not in here


def test_a_result_in_a_line() -> None:
    """What came of it, how long it took, and what it waits for."""
    done = WorkflowResult[Any]("ship", "r", "succeeded", (), 1500.0, value="v" * 600)
    assert str(done).startswith("ship succeeded in 1.5 s (0 steps, run r): 'vvv")
    assert len(str(done)) < 600
    waits = (WaitsFor("signal", "a", "go", "a sender"),)
    waiting = WorkflowResult[Any]("ship", "r", "suspended", (FAILED,), 10.0, waits_for=waits)
    assert str(waiting) == "ship suspended in 0.01 s (1 step, run r), waits for the signal 'go'"
    assert str(RUN).endswith("step 'a' failed")


@pytest.mark.parametrize("error", [StepFailed(FAILED), WorkflowFailed(RUN)])
def test_an_error_that_was_raised_survives_pickle(error: Exception) -> None:
    """A traceback and a context do not stand in the way."""

    def fail() -> None:
        try:
            json.loads("{")
        except ValueError:
            raise error from None

    with pytest.raises(type(error)) as caught:
        fail()
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(error)
