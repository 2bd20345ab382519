"""The public names, where they come from, and how little importing them costs."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import subprocess
import sys
from typing import Any

import pytest

import handrail
from handrail import errors
from handrail.model import events as ev

CONTRACT = [
    "Executor",
    "Steps",
    "step",
    "workflow",
    "Workflow",
    "WorkflowDefinition",
    "WorkflowParameter",
    "Step",
    "Stage",
    "Agent",
    "AgentLike",
    "AgentBackend",
    "WorkflowLike",
    "StepResult",
    "WorkflowResult",
    "CommandResult",
    "AgentResult",
    "BranchResult",
    "Choice",
    "ValidationResult",
    "StageResult",
    "Skipped",
    "RollbackError",
    "OpenGate",
    "Usage",
    "WorkflowContext",
    "current",
    "Limits",
    "Backoff",
    "Secrets",
    "Sink",
    "ConsoleSink",
    "JsonlSink",
    "StructlogSink",
    "CallbackSink",
    "MemorySink",
    "FakeBackend",
    "CommandBackend",
    "HandrailError",
    "RunCancelled",
    "StepFailed",
    "WorkflowFailed",
    "WorkflowError",
    "DuplicateStepName",
    "NotAStep",
    "ReplayMismatch",
    "RunLocked",
    "OutputNotSerializable",
    "NotPortable",
    "GateClosed",
    "InvalidAnswer",
    "Journal",
    "Clock",
    "Sandbox",
    "SandboxUnavailable",
]

EVENTS = [
    "WorkflowStarted",
    "WorkflowCompleted",
    "StepStarted",
    "AttemptFailed",
    "StepMoved",
    "StepInterrupted",
    "StepCompleted",
    "GroupStarted",
    "GroupCompleted",
    "MemberStarted",
    "MemberCompleted",
    "SubworkflowStarted",
    "SubworkflowEnded",
    "ValidationRound",
    "GateOpened",
    "GateAnswered",
    "TimerSet",
    "SignalReceived",
    "LimitReached",
    "RollbackStarted",
    "RollbackCompleted",
    "CancelRequested",
    "RunSuspended",
    "RunResumed",
    "StepOutput",
    "StepReplayed",
    "AgentMessage",
    "AgentTurnStarted",
    "AgentTurnCompleted",
    "AgentReasoning",
    "AgentToolStarted",
    "AgentToolCompleted",
    "AgentRetry",
    "AgentCompaction",
    "AgentLimit",
    "AgentPermission",
    "AgentUsage",
    "AgentFinished",
    "AgentSessionStarted",
    "ClaimWaiting",
    "ClaimGranted",
    "ClaimLost",
    "SandboxDenied",
    "LadderStep",
    "BudgetReserved",
    "BudgetSettled",
    "SinkDropped",
]


@pytest.mark.parametrize("name", CONTRACT)
def test_every_name_of_the_contract_is_importable(name: str) -> None:
    """`from handrail import <name>` works."""
    assert getattr(handrail, name) is not None
    assert name in handrail.__all__


@pytest.mark.parametrize("name", EVENTS)
def test_every_event_of_the_contract_exists(name: str) -> None:
    """The event has its name, and is a frozen, slotted dataclass with run_id, seq and at."""
    kind = getattr(ev, name)
    assert kind.__dataclass_params__.frozen
    assert "__slots__" in vars(kind)
    assert {"run_id", "seq", "at"} <= set(kind.__dataclass_fields__)


@pytest.mark.extra("jinja2", "rich")
def test_all_lists_each_public_name_once_and_all_exist() -> None:
    """Every name of `__all__` can be had, none twice, and `dir` shows them."""
    assert len(set(handrail.__all__)) == len(handrail.__all__)
    missing = [name for name in handrail.__all__ if not hasattr(handrail, name)]
    assert missing == []
    assert set(handrail.__all__) <= set(dir(handrail))


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    """`handrail.nonsense` says what is missing."""
    with pytest.raises(AttributeError, match="nonsense"):
        handrail.nonsense  # noqa: B018  # to look it up is the test


def public_errors() -> list[type[BaseException]]:
    """Every error class of the package that has no leading underscore, wherever it is defined."""
    found: dict[str, type[BaseException]] = {}
    for info in pkgutil.walk_packages(handrail.__path__, "handrail."):
        if info.name.endswith("__main__") or info.name.startswith("handrail.cli"):
            continue  # the command line shows its own errors, and nobody can catch them
        try:
            module = importlib.import_module(info.name)
        except ImportError:
            continue  # of an extra that is not installed
        for name, value in inspect.getmembers(module, inspect.isclass):
            own = value.__module__ == module.__name__
            if own and issubclass(value, errors.HandrailError) and not name.startswith("_"):
                found[name] = value
    return list(found.values())


def test_every_public_error_is_importable_from_handrail() -> None:
    """An error that the library may raise at a user can be caught by its name in `handrail`."""
    missing = [one.__name__ for one in public_errors() if not hasattr(handrail, one.__name__)]
    assert missing == []


def test_every_public_error_has_the_one_base() -> None:
    """All errors derive from HandrailError, but RunCancelled, a BaseException, and a warning."""
    exceptions = [
        value
        for value in (getattr(handrail, name) for name in handrail.__all__)
        if inspect.isclass(value) and issubclass(value, BaseException)
    ]
    others = [one for one in exceptions if not issubclass(one, handrail.HandrailError)]
    assert others == [handrail.RunCancelled, handrail.StepNotYielded]
    assert issubclass(handrail.HandrailError, Exception)
    assert not issubclass(handrail.RunCancelled, Exception)


SLOW = [
    "asyncio",
    "cyclopts",
    "jinja2",
    "pydantic",
    "rich",
    "sqlite3",
    "structlog",
    "trio",
    "logging",
    "subprocess",
    "anyio",
]


def loaded_by(code: str, names: list[str]) -> list[str]:
    """Which of these modules a fresh interpreter has loaded after the code."""
    shown = f"{code}\nimport sys\nprint(*(n for n in {names!r} if n in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", shown], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.split()


def test_importing_handrail_imports_nothing_that_is_slow() -> None:
    """`import handrail` loads none of the slow or optional libraries."""
    before = loaded_by("", SLOW)
    assert set(loaded_by("import handrail", SLOW)) <= set(before)


ONE_STEP = """\
import sys
from handrail import Executor, step, workflow
@workflow
def flow():
    return (yield step("one").call(int))
assert Executor().run_sync(flow).success
print(*(name for name in sys.modules if name.partition(".")[0] == "handrail"))
"""


def test_a_run_of_one_step_loads_few_modules() -> None:
    """A run of one step in memory loads at most 90 modules of handrail, packages included."""
    done = subprocess.run(
        [sys.executable, "-c", ONE_STEP], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = done.stdout.split()
    assert len(loaded) <= 90, loaded
    assert {"handrail.core.groups", "handrail.record.reading", "handrail.steps.bodies"}.isdisjoint(
        loaded
    )


def test_importing_what_a_workflow_is_written_with_stays_light() -> None:
    """`from handrail import Executor, Steps, step, workflow` loads none of the slow libraries."""
    heavy = ["asyncio", "cyclopts", "jinja2", "pydantic", "rich", "sqlite3", "structlog", "trio"]
    code = "from handrail import Executor, Steps, step, workflow, current, MemorySink, Limits"
    assert loaded_by(code, heavy) == []


def test_importing_a_public_module_directly_works_from_each_start() -> None:
    """No import order matters: each module of the core can be imported first."""
    for module in ("handrail.errors", "handrail.steps.verbs", "handrail.engine.engine"):
        assert loaded_by(f"import {module}", [module]) == [module]


def test_the_executor_takes_what_the_contract_says() -> None:
    """Every parameter of the contract is there, keyword-only, with its default."""
    parameters = inspect.signature(handrail.Executor).parameters
    defaults: dict[str, Any] = {
        "linger_s": 0,
        "suspend_timers_after_s": None,
        "cleanup_timeout_s": 30,
        "max_crashes": 5,
        "durable": False,
        "gates": None,
        "clock": None,
        "journal": None,
    }
    for name, default in defaults.items():
        assert parameters[name].default == default
    named = {"sinks", "agents", "stages", "services", "config", "workflows", "limits", "secrets"}
    assert named <= set(parameters)
    kinds = {one.kind for one in parameters.values()}
    assert kinds == {inspect.Parameter.KEYWORD_ONLY}


@pytest.mark.parametrize("name", ["run", "resume", "answer", "signal", "cancel"])
def test_what_an_executor_does_is_async_and_has_a_sync_twin(name: str) -> None:
    """run, resume, answer, signal and cancel are async, and each has a `_sync` twin that is not."""
    twin = getattr(handrail.Executor, f"{name}_sync")
    assert inspect.iscoroutinefunction(getattr(handrail.Executor, name))
    assert not inspect.iscoroutinefunction(twin)
    assert list(inspect.signature(twin).parameters) == list(
        inspect.signature(getattr(handrail.Executor, name)).parameters
    )
