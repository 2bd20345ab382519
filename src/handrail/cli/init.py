"""``handrail init``: a new workflow that runs, and its test."""

from __future__ import annotations

import keyword
import shlex
from pathlib import Path
from string import Template
from typing import Literal, TypeAlias

from handrail.cli.exits import Exit, Refused
from handrail.cli.quickstart import about_sandbox, find_example

WORKFLOW = Template('''\
"""$title: say here in one line what it is for."""

from __future__ import annotations

from dataclasses import dataclass

from handrail import Agent, AgentOptions, CommandBackend, Steps, step, workflow
from handrail.sandbox import is_available


@dataclass(frozen=True)
class Poem:
    """What the workflow returns."""

    text: str
    words: int


# `cat` stands in for a model, and answers with the prompt itself. Any program will do that
# takes a prompt on stdin and prints its answer: CommandBackend(["claude", "--print"]).
poet = Agent(
    "poet",
    "Write a poem of {{ lines }} lines about {{ topic }}.",
    backend=CommandBackend(["cat"]),
    options=AgentOptions(sandbox=is_available()),  # where the machine has one
)


@workflow(description="Have a poem written, and count its words")
def $name(topic: str = "tea", *, lines: int = 3) -> Steps[Poem]:
    """Each `yield from` is a step; what it gives back is the step's output."""
    context = {"topic": topic, "lines": lines}
    answer = yield from step("write").agent(poet, context).retry(2, backoff=0)
    words = yield from step("count").call(count_words, answer.output)
    return Poem(answer.output, words)


def count_words(text: str) -> int:
    """How many words there are."""
    return len(text.split())
''')

TEST = Template('''\
"""$name, tested without a model: a FakeAgent answers in the place of the real one."""

from __future__ import annotations

from handrail import Executor
from handrail.testing import FakeAgent

from $name import Poem, $name


def test_the_words_of_the_poem_are_counted() -> None:
    """The value holds what the agent wrote, and how many words that is."""
    poet = FakeAgent("poet", ["Steam over the cup"])

    result = Executor(agents={"poet": poet}).run_sync($name, "coffee", lines=1)

    assert result.unwrap() == Poem("Steam over the cup", 4)
    assert poet.calls == [{"topic": "coffee", "lines": 1}]


def test_a_poet_who_fails_once_is_asked_again() -> None:
    """The step is tried a second time, and the run succeeds."""
    poet = FakeAgent("poet", [RuntimeError("out of ink"), "Steam over the cup"])

    result = Executor(agents={"poet": poet}).run_sync($name)

    assert result.success
    assert result.step("write").attempts == 2
''')


Example: TypeAlias = Literal[
    "approvals", "fastest", "overnight", "pipeline", "research", "review_files", "ship", "team"
]


def init(name: str, /, *, template: Example | None = None) -> int:
    """Write a new workflow, NAME.py, and its test, test_NAME.py.

    Parameters
    ----------
    name
        A Python name, optionally after a folder: `flows/review`.
    template
        Write this example of handrail's instead: ship (plan, do, prove, commit), review_files (many
        side by side, a question), research (races), team (claims), fastest (a search), overnight
        (issues are fixed), approvals (a service), pipeline (3,000 items, a redo).
    """
    folder, stem = _target_path(name)
    title = stem.replace("_", " ").strip().capitalize() or stem
    files = {
        folder / f"{stem}.py": WORKFLOW.substitute(name=stem, title=title),
        folder / f"test_{stem}.py": TEST.substitute(name=stem),
    }
    if template is not None:
        files = {folder / f"{stem}.py": find_example(f"{template}.py").read_text("utf-8")}
    for file in files:
        if file.exists():
            raise Refused(str(file), "already exists and is not overwritten")
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in files.items():
        with file.open("x", encoding="utf-8") as stream:
            stream.write(text)
    if template is None:
        _print_next_steps(*files)
    else:
        name = shlex.quote(str(*files))
        print(f"Wrote {name}. Next:\n\n  handrail show {name}\n  handrail check {name}")
    return Exit.SUCCEEDED


def _target_path(name: str) -> tuple[Path, str]:
    path = Path(name)
    stem = path.stem if path.suffix == ".py" else path.name
    if not stem.isidentifier() or keyword.iskeyword(stem):
        valid = "".join(letter if letter.isalnum() else "_" for letter in stem).strip("_")
        hint = f"Try {valid}." if valid.isidentifier() and not keyword.iskeyword(valid) else ""
        raise Refused(repr(name), "is not a valid name for a Python module and function", hint)
    return path.parent, stem


def _print_next_steps(workflow: Path, test: Path) -> None:
    print(f"Wrote {workflow} and {test}. Next:\n")
    for typed in (
        f"handrail run {shlex.quote(str(workflow))}",
        f"handrail run {shlex.quote(str(workflow))} --input topic=rain",
        f"handrail check {shlex.quote(str(workflow))}",
        f"pytest {shlex.quote(str(test))}",
    ):
        print(f"  {typed}")
    print(f"\n{about_sandbox('Its agent runs')}")
