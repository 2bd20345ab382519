"""A team of agents works off a board in one folder, and none overwrites another.

    cd SOME-REPOSITORY && python .../examples/team.py
    handrail run .../examples/team.py --run-id monday
    handrail work monday --add search=null  # put a card on the board
    handrail claims                         # who has which files

No model is needed: the agents are scripted. Three cards are on the board. An agent that builds a
part may find more to do, and puts a card on the board for it; a part is built once. Parts are built
side by side: each agent holds its own folder until that is committed. In the one changelog they
wait in line, and so for git, whose index has one user at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import anyio

from handrail import (
    Agent,
    AgentReply,
    AgentTurn,
    ConsoleSink,
    Executor,
    Found,
    Step,
    Steps,
    Task,
    Work,
    step,
    workflow,
)


@dataclass(frozen=True)
class Built:
    """What an agent says when it is done, and which parts it found to be missing."""

    summary: str
    missing: list[str]


class Scripted:
    """A backend that takes its time between reading a file and writing it, as a model does."""

    name = "script"

    async def complete(self, turn: AgentTurn, /) -> AgentReply:
        """Add a line to the file that the context names; who builds the web misses a part."""
        file = anyio.Path(str(turn.context["file"]))
        before = await file.read_text("utf-8") if await file.exists() else ""
        await anyio.sleep(0.2)
        await file.parent.mkdir(parents=True, exist_ok=True)
        await file.write_text(f"{before}{turn.context['line']}\n", "utf-8")
        missing = '["login"]' if file.parts[-2:] == ("web", "main.py") else "[]"
        return AgentReply(f'{{"summary": "Wrote {file.name}.", "missing": {missing}}}')


builder = Agent("builder", "Add to {{ file }}: {{ line }}", output=Built, backend=Scripted())


@workflow(description="A team of agents works off a board")
def team(parts: list[str] | None = None) -> Steps[str]:
    """The changelog, with a line for each card."""
    cards = [Task(part) for part in parts or ("api", "storage", "web")]
    done = yield from step("board").work(cards, build, max_concurrency=3, at_most=20)
    return (yield from step("changelog").call(changelog, done))


def build(task: Task) -> Step[Found[Built]]:
    """What one agent does about a card; it has the folder of its part over all steps."""
    return step("part").holding([f"src/{task.id}/**"], write, task.id)


def write(part: str) -> Steps[Found[Built]]:
    """The steps of one agent, at board/<part>/part/..., and the cards that they bring."""
    code = {"file": f"src/{part}/main.py", "line": f"NAME = {part!r}"}
    note = {"file": "CHANGELOG.md", "line": f"- {part}: it has a name"}
    built = yield from step("write").agent(builder, code, writes=[f"src/{part}/**"])
    yield from step("git").holding("git", commit, part)
    yield from step("note").agent(builder, note, writes=["./CHANGELOG.md"])
    return Found(built.output, [Task(name) for name in built.output.missing])


def commit(part: str) -> Steps[None]:
    """Two commands, with no one else in between."""
    yield from step("add").command(["git", "add", f"src/{part}"])
    yield from step("commit").command(["git", "commit", "-m", f"Name the {part}", f"src/{part}"])


def changelog(done: Work[Built]) -> str:
    """The changelog, unless a card is left."""
    if done.failed:
        raise RuntimeError(f"{done.failed[0].id}: {done.failed[0].error}")
    return Path("CHANGELOG.md").read_text("utf-8")


if __name__ == "__main__":
    print(Executor(sinks=[ConsoleSink()]).run_sync(team).unwrap(), end="")
