"""Have a task done in a git repository by coding agents, prove it with its tests, and commit it.

    cd your-repository
    handrail run ship.py --backend claude --input task="page_count forgets the last page"

Any backend that edits files will do: codex, copilot, gemini, opencode. `handrail quickstart` runs
this file on a small repository of its own, with scripted agents in the place of these three, so
that you can watch it work without any model.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from handrail import (
    Agent,
    AgentOptions,
    Stage,
    Steps,
    ValidationResult,
    WorkflowContext,
    step,
    workflow,
)
from handrail.sandbox import is_available


@dataclass(frozen=True)
class Plan:
    """What the planner wants done."""

    goal: str
    steps: list[str]
    commit_message: str


@dataclass(frozen=True)
class Change:
    """What a coder did."""

    files: list[str]
    why: str


@dataclass(frozen=True)
class Report:
    """What the run comes to."""

    commit: str
    rounds: int
    changes: list[Change]


# Who carries them out is said by whoever runs it; here only what they may do. Where the machine has
# a sandbox, the kernel holds them to that, and the tests that they wrote, too.
SANDBOX = is_available()
may_read = AgentOptions(permission="read_only", sandbox=SANDBOX)
may_edit = AgentOptions(permission="workspace", sandbox=SANDBOX)

planner = Agent(
    "planner",
    "Read this repository and plan the smallest change for the task. Edit nothing.\n\n{{ task }}",
    output=Plan,
    options=may_read,
)
coder = Agent(
    "coder",
    "Carry out this plan in the repository you are in.\n\n"
    "{{ plan.goal }}\n{% for line in plan.steps %}- {{ line }}\n{% endfor %}",
    output=Change,
    options=may_edit,
)
fixer = Agent(
    "fixer",
    "These checks fail. Repair the code, and leave the tests as they are.\n"
    "{% for stage in failed %}\n{{ stage.name }}:\n{{ stage.output }}\n{% endfor %}",
    output=Change,
    options=may_edit,
)

CHECKS = [
    Stage("tests", [sys.executable, "-m", "unittest"], timeout=300, sandbox=SANDBOX),
    Stage("compile", [sys.executable, "-m", "compileall", "-q", "."], sandbox=SANDBOX),
]


@workflow(description="Plan a task, do it, prove it, commit it")
def ship(task: str, *, rounds: int = 3) -> Steps[Report]:
    """Each `yield from` is a step: it runs, is on record, and gives back a typed output."""
    plan = yield from step("plan").agent(planner, {"task": task})
    change = yield from step("implement").agent(coder, {"plan": plan.output}).retry(2)

    # Run the checks; while one fails, let the fixer at it and run them again.
    fix = step("fix").agent(fixer, what_failed)
    checks = yield from step("verify").validate(CHECKS, retry=rounds, on_failure=fix)

    changes = [change.output, *fixes(checks)]
    files = sorted({file for change in changes for file in change.files})
    yield from step("add").command(["git", "add", "--", *files])
    yield from step("commit").command(["git", "commit", "-m", plan.output.commit_message])
    commit = yield from step("summary").command(["git", "log", "-1", "--format=%h %s"])
    return Report(commit.stdout.strip(), len(checks.rounds), changes)


def what_failed(ctx: WorkflowContext) -> Mapping[str, Any]:
    """The fixer's context: the checks that did not pass, with what they printed."""
    return {"failed": ctx.validation.failed if ctx.validation else ()}


def fixes(checks: ValidationResult) -> list[Change]:
    """What the fixer did between the rounds."""
    return [found.fix.unwrap().output for found in checks.rounds if found.fix]
