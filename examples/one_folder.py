"""Three agents work in one folder at the same time, and none overwrites another.

    cd SOME-REPOSITORY && python .../examples/one_folder.py

No model is needed: the agents are scripts. Each writes a module of its own, side by side with the
others, and holds it until it is committed. Then each adds a line to the one changelog: there they
wait in line. So they do for git, whose index has one user at a time.
"""

from __future__ import annotations

from pathlib import Path

import anyio

from handrail import (
    Agent,
    AgentReply,
    AgentTurn,
    ConsoleSink,
    Executor,
    Step,
    Steps,
    step,
    workflow,
)

PARTS = ("api", "storage", "web")


class Scripted:
    """A backend that takes its time between reading a file and writing it, as a model does."""

    name = "script"

    async def complete(self, turn: AgentTurn, /) -> AgentReply:
        """Add a line to the file that the context names."""
        file = anyio.Path(str(turn.context["file"]))
        before = await file.read_text("utf-8") if await file.exists() else ""
        await anyio.sleep(0.2)
        await file.parent.mkdir(parents=True, exist_ok=True)
        await file.write_text(f"{before}{turn.context['line']}\n", "utf-8")
        return AgentReply(f"Wrote {file}.")


writer = Agent("writer", "Add to {{ file }}: {{ line }}", backend=Scripted())


@workflow(description="Three agents share a folder")
def one_folder() -> Steps[str]:
    """The changelog, with a line of each agent."""
    yield from step("parts").for_each(PARTS, one_part, key=str)
    return (yield from step("read").call(Path("CHANGELOG.md").read_text, "utf-8"))


def one_part(part: str) -> Step[None]:
    """What one agent does; it has its folder over all steps, also while that is committed."""
    return step("part").holding([f"src/{part}/**"], build, part)


def build(part: str) -> Steps[None]:
    """The steps of one agent; they nest under parts/<part>/part/."""
    code = {"file": f"src/{part}/main.py", "line": f"NAME = {part!r}"}
    note = {"file": "CHANGELOG.md", "line": f"- {part}: it has a name"}
    yield from step("write").agent(writer, code, writes=[f"src/{part}/**"])
    yield from step("git").holding("git", commit, part)
    yield from step("note").agent(writer, note, writes=["./CHANGELOG.md"])


def commit(part: str) -> Steps[None]:
    """Two commands, and nobody else in between."""
    yield from step("add").command(["git", "add", f"src/{part}"])
    yield from step("commit").command(["git", "commit", "-m", f"Name the {part}", f"src/{part}"])


if __name__ == "__main__":
    print(Executor(sinks=[ConsoleSink()]).run_sync(one_folder).unwrap(), end="")
