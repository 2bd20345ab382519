"""Fix a folder of issues while you sleep; in the morning there is a branch to review for each.

    cd SOME-REPOSITORY
    handrail run overnight.py --backend claude --budget-usd 20 --run-id monday --detach

An issue is a file `issues/NAME.md`. Each is fixed in a git worktree of its own, so your files are
left alone. Its tests have to pass, with two repairs at most; a fix that fails leaves the others be.
Nothing is merged: the table names the branches. Start the same line again after a reboot.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from handrail import (
    Agent,
    AgentOptions,
    Stage,
    Step,
    StepResult,
    Steps,
    WorkflowContext,
    step,
    workflow,
)


@dataclass(frozen=True)
class Issue:
    """One file of the folder, and the command that tests a fix of it."""

    name: str
    text: str
    test: str


@dataclass(frozen=True)
class Fix:
    """What an agent says of its change; its branch is known when it is committed."""

    title: str
    risk: str
    branch: str = ""


edits = AgentOptions(permission="workspace")
fixer = Agent(
    "fixer",
    "Fix this issue with the smallest change, and add a test that fails without it.\n\n{{ issue }}",
    output=Fix,
    options=edits,
)
repairer = Agent(
    "repairer",
    "Your change for the issue below is not right yet.\n\n{{ issue }}\n"
    "{% for stage in failed %}\n{{ stage.name }}:\n{{ stage.output }}{% endfor %}",
    options=edits,
)


@workflow(description="Fix a folder of issues, each on a branch of its own")
def overnight(folder: str = "issues", test: str = "python -m unittest") -> Steps[str]:
    """A table in Markdown: what was fixed, on which branch, and what was not, and why."""
    issues = yield from step("issues").call(read_issues, folder, test)
    ended = yield from step("fix").for_each(
        issues, apart, key=name_of, on_error="continue", max_concurrency=2
    )
    return (yield from step("table").call(table, [issue.name for issue in issues], ended))


def apart(issue: Issue) -> Step[Fix]:
    """Everything about one issue happens in a worktree, which is kept with its branch."""
    return step("tree").worktree(fix, issue, merge="keep")


def fix(issue: Issue) -> Steps[Fix]:
    """What is done about one issue, at `fix/NAME/tree/...`."""
    done = yield from step("change").agent(fixer, {"issue": issue.text})

    def what_failed(ctx: WorkflowContext) -> dict[str, object]:
        return {"issue": issue.text, "failed": ctx.validation.failed if ctx.validation else ()}

    repair = step("repair").agent(repairer, what_failed)
    yield from step("verify").validate([Stage("tests", issue.test)], retry=2, on_failure=repair)
    yield from step("add").command(["git", "add", "--all"])
    # Killed between the commit and its record, it runs again and finds nothing left to commit.
    commit = 'git diff --cached --quiet || git commit --message "$TITLE"'
    yield from step("commit").command(commit, env={"TITLE": done.output.title})
    branch = yield from step("branch").command(["git", "branch", "--show-current"])
    return Fix(done.output.title, done.output.risk, branch.stdout.strip())


def read_issues(folder: str, test: str) -> list[Issue]:
    """The issues of a folder, and how each is tested."""
    files = sorted(Path(folder).glob("*.md"))
    return [Issue(file.stem, file.read_text("utf-8"), test) for file in files]


def name_of(issue: Issue) -> str:
    """The key of an issue: its place in the paths of the run."""
    return issue.name


def table(names: list[str], ended: list[StepResult[Fix]]) -> str:
    """A row for each issue."""
    rows = ["| issue | fix | branch | risk |", "|---|---|---|---|"]
    for name, result in zip(names, ended, strict=True):
        if result.status == "succeeded" and result.output is not None:
            done = result.output
            rows.append(f"| {name} | {done.title} | {done.branch} | {done.risk} |")
        else:
            why = result.reason or result.status
            rows.append(f"| {name} | not fixed: {why} | | |")
    return "\n".join(rows)
