"""Review each changed file of a git repository, side by side, and ask before writing the report.

    python examples/review_files.py [REPOSITORY [BASE]]
    handrail run examples/review_files.py --input repo=. --input base=main

No model is needed: the reviewer's backend reads the diff itself and finds what a script can find.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from handrail import (
    Agent,
    AgentError,
    AgentReply,
    AgentTurn,
    ConsoleSink,
    Executor,
    OpenGate,
    StepResult,
    Steps,
    step,
    workflow,
)


@dataclass(frozen=True)
class Changed:
    """One file to review: what it differs from is `base`."""

    repo: Path
    base: str
    file: str


@dataclass(frozen=True)
class Review:
    """What the reviewer has to say about one file."""

    verdict: str
    remarks: list[str]


class Scripted:
    """A backend is anything with a name and this method; yours may call any program or model."""

    name = "script"

    async def complete(self, turn: AgentTurn, /) -> AgentReply:
        """Remark on added lines that somebody forgot to take out."""
        diff = str(turn.context["diff"])
        if "Binary files" in diff:
            raise AgentError(turn.agent, "a binary file says nothing to a reviewer")
        added = [line[1:] for line in diff.splitlines() if line.startswith("+")]
        remarks = [f"left in: {line.strip()}" for line in added if is_leftover(line)]
        verdict = "needs work" if remarks else "fine"
        return AgentReply("", value={"verdict": verdict, "remarks": remarks}, has_value=True)


def is_leftover(line: str) -> bool:
    """True for traces of debugging and for promises."""
    return any(mark in line for mark in ("print(", "breakpoint(", "TODO", "FIXME"))


reviewer = Agent(
    "reviewer",
    "Review this change to {{ file }}. Be brief, and name what must change.\n\n{{ diff }}",
    output=Review,
    backend=Scripted(),
)


@workflow(description="Review the changed files of a repository, and report if somebody agrees")
def review_files(
    repo: Path = Path(), base: str = "HEAD~1", report: Path = Path("REVIEW.md")
) -> Steps[str]:
    """The report; it is on disk as well if the person at the gate said yes."""
    listed = yield from step("changed").command(
        ["git", "diff", "--name-only", "-z", base], cwd=repo
    )
    changes = [Changed(repo, base, file) for file in listed.stdout.split("\0") if file]
    if not changes:
        return f"Nothing differs from {base}.\n"

    # Four at a time; one that fails is reported like the others instead of ending them.
    results = yield from step("review").for_each(
        changes, review_one, key=path_of, max_concurrency=4, on_error="continue"
    )
    text = report_on(changes, results)

    question = f"Write the review of {len(changes)} files to {report}?"
    if (yield from step("write?").ask(question, choices=["yes", "no"])) == "yes":
        yield from step("write").call(write, repo / report, text)
    return text


def review_one(changed: Changed) -> Steps[Review]:
    """The steps for one file; they nest under review/<file>/."""
    command = ["git", "diff", changed.base, "--", changed.file]
    diff = yield from step("diff").command(command, cwd=changed.repo)
    context = {"file": changed.file, "diff": diff.stdout}
    answer = yield from step("read").agent(reviewer, context)
    return answer.output


def path_of(changed: Changed) -> str:
    """The key of a file's steps: the same however many files come before it."""
    return changed.file


def report_on(changes: list[Changed], results: list[StepResult[Review]]) -> str:
    """The reviews as Markdown."""
    lines = ["# Review", ""]
    for changed, result in zip(changes, results, strict=True):
        if not result.success:
            lines.append(f"- {changed.file}: not reviewed, {result.error}")
            continue
        review = result.unwrap()
        lines.append(f"- {changed.file}: {review.verdict}")
        lines += [f"    - {remark}" for remark in review.remarks]
    return "\n".join(lines) + "\n"


def write(file: Path, text: str) -> None:
    """Write the report."""
    file.write_text(text, "utf-8")


if __name__ == "__main__":
    console = ConsoleSink()

    def ask(gate: OpenGate) -> str:
        """A gate handler is any function of the gate; this one asks with `input`."""
        with console.pause():
            return input(f"{gate.question} {'/'.join(gate.choices)} ")

    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    since = sys.argv[2] if len(sys.argv) > 2 else "HEAD~1"
    result = Executor(sinks=[console], gates=ask).run_sync(review_files, folder, since)
    print(result.unwrap())
