"""What the tests of the live page run in other processes: workflows, who drives them, a server."""

from __future__ import annotations

import enum
import os
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import anyio.lowlevel

from handrail import (
    Agent,
    AgentReply,
    AgentTurn,
    ArtifactsSink,
    CallbackSink,
    Executor,
    Found,
    SqliteJournal,
    Steps,
    Task,
    current,
    step,
    workflow,
)
from handrail.agents.transport.turn import finished_notice
from handrail.model.events import (
    AgentMessage,
    AgentReasoning,
    AgentSessionStarted,
    AgentToolCompleted,
    AgentToolStarted,
    WorkflowStarted,
)
from handrail.ports.agent import Capabilities
from handrail.ports.sink import Sink

TOKEN = "a-token-of-tests"
FLOOD = 10 * 1024 * 1024
EVIL = "<script>alert('x')</script>"


@dataclass(frozen=True)
class Plan:
    """What is released."""

    version: str
    waves: int = 3
    notify: bool = True


async def wait_for(name: str) -> str:
    """Wait for a file beside the journal: the test says when a step ends."""
    folder = Path(str(current().config["folder"]))
    while not (folder / name).exists():  # noqa: ASYNC110  # another process makes it
        await anyio.sleep(0.02)
    return f"{name} came"


def checked(number: int) -> str:
    """Fail for one of them."""
    if number == 1:
        raise ValueError(f"number {number} is odd {EVIL}")
    return f"{number} is fine"


@workflow
def ship(task: str = "the fix") -> Steps[str]:
    """Wait, check some, ask twice, wait for a signal."""
    yield from step("prepare").call(wait_for, "go")
    yield from step("each").for_each(
        range(3), lambda n: step("check").call(checked, n), on_error="continue"
    )
    yield from step("slow").call(wait_for, "slow")
    answer = yield from step("merge?").ask(f"Merge {task}?", choices=["yes", "no"])
    plan = yield from step("which?").ask("Which release?", type=Plan)
    deployed = yield from step("deploy").wait_for("deployed", str)
    return f"{answer} {plan.version} {plan.waves} {deployed}"


@workflow
def flood(size: int = FLOOD) -> Steps[str]:
    """Print that much, and wait."""
    program = f"import sys, time\nfor n in range({size} // 64): print('x' * 63)\n"
    wait = "print('that was all', flush=True)\ntime.sleep(60)"
    yield from step("print").command([sys.executable, "-c", program + wait])
    return "done"


class Talker:
    """A backend that says as much as it is asked for, and then waits to be let go."""

    name = "talker"

    async def complete(self, turn: AgentTurn, /) -> AgentReply:
        """Say it."""
        turn.emit(AgentReasoning(turn.path, f"I think. {EVIL}"))
        turn.emit(AgentToolStarted(turn.path, "1", "Bash", {"command": f"ls {EVIL}"}))
        turn.emit(AgentToolCompleted(turn.path, "1", "Bash", output="a.py"))
        line = "ü" + "x" * 510 + "\n"
        for number in range(int(turn.context["size"]) // 512):
            turn.emit(AgentMessage(turn.path, line))
            if number % 64 == 0:
                await anyio.lowlevel.checkpoint()
        turn.emit(AgentMessage(turn.path, "that was all\n"))
        for part in turn.context.get("parts", ()):
            await wait_for(part)
            turn.emit(AgentMessage(turn.path, f"after {part}\n"))
        await wait_for("talked")
        reply = AgentReply("done", files_changed=("a.py",))
        turn.emit(finished_notice(turn.path, reply))
        return reply


@workflow
def talk(size: int = FLOOD) -> Steps[str]:
    """An agent that says that much, and waits."""
    talker = Agent("talker", "Talk about {{ size }}.", backend=Talker())
    return (yield from step("talk").agent(talker, {"size": size})).output


class Listener:
    """A backend that is at work until its words are told to be few."""

    name = "listener"
    capabilities = Capabilities(sessions=True)

    async def complete(self, turn: AgentTurn, /) -> AgentReply:
        """Do as the last words say."""
        turn.emit(AgentSessionStarted(turn.path, "s-1", self.name, None, turn.launch or 1))
        if "be brief" not in turn.prompt:
            await wait_for("never")
        turn.emit(AgentMessage(turn.path, "Brief."))
        return AgentReply("Brief.", session="s-1")


@workflow
def heed() -> Steps[str]:
    """An agent that works until somebody guides it."""
    listener = Agent("listener", "Write a book.", backend=Listener())
    return (yield from step("write").agent(listener, {})).output


@workflow
def chat() -> Steps[str]:
    """An agent that says a little, and more when it is let."""
    talker = Agent("talker", "Talk.", backend=Talker())
    context = {"size": 2048, "parts": ["one", "two", "three"]}
    return (yield from step("talk").agent(talker, context)).output


class Ring(enum.Enum):
    """Who gets it."""

    few = "few"
    half = "half"
    all = "all"


@dataclass(frozen=True)
class Window:
    """When it may go out."""

    day: str
    hours: tuple[int, int] = (9, 17)


@dataclass(frozen=True)
class Release:
    """What goes out, and to whom."""

    version: str
    ring: Ring = Ring.few
    percent: int | None = None
    window: Window | None = None
    notify: list[str] = field(default_factory=list)
    limits: dict[str, float] = field(default_factory=dict)
    note: int | str = ""


@workflow
def asks() -> Steps[tuple[Any, ...]]:
    """Several questions at once."""
    return (
        yield from step("all").parallel(
            step("release").ask("What goes out?", type=Release),
            step("sure").ask("Sure?", type=bool),
            step("many").ask("How many?", type=int),
            step("which").ask("Which ring?", type=Ring),
            step("tags").ask("Which tags?", type=list[str]),
        )
    )


@workflow
def many(count: int = 10_000) -> Steps[int]:
    """So many members, of which some fail; the last ones wait."""
    yield from step("each").for_each(
        range(count), lambda n: step("do").call(lambda: n).inline(), max_concurrency=100
    )
    return count


def done(task: Task) -> Steps[Found[str]]:
    """Wait, if it is the first one or the urgent one; the first one finds another."""
    if task.id not in {"first", "urgent"}:
        return Found((yield from step("do").call(str, task.payload)))
    found = yield from step("do").call(wait_for, "go" if task.id == "first" else "slow")
    return Found(found, [Task("found", priority=1)] if task.id == "first" else [])


@workflow
def backlog() -> Steps[str]:
    """A queue of three tasks, of which one is done at a time; all of them in one line."""
    tasks = [Task("first"), Task("second"), Task("third", priority=2)]
    work = yield from step("queue").work(tasks, done, max_concurrency=1)
    return " ".join(one.id for one in work.done)


@workflow
def claims() -> Steps[str]:
    """A step that no other run may be at meanwhile."""
    return (yield from step("tag").call(wait_for, "go").holds("git"))


FLOWS = {
    "ship": ship,
    "flood": flood,
    "talk": talk,
    "chat": chat,
    "heed": heed,
    "asks": asks,
    "many": many,
    "backlog": backlog,
    "claims": claims,
}


def executor_in(folder: Path, *sinks: Sink) -> Executor:
    """Who drives the runs of a folder."""
    return Executor(
        journal=SqliteJournal(folder / "runs.db", lease_s=2),
        sinks=sinks,
        workflows=list(FLOWS.values()),
        config={"folder": str(folder)},
        linger_s=60,
    )


def files_in(folder: Path) -> ArtifactsSink:
    """The files of what is said in the runs of a folder."""
    return ArtifactsSink(folder / "runs")


Tell: TypeAlias = Callable[[str], None]
"""Tells the test something."""


def drive(tell: Tell, folder: Path, name: str, run_id: str) -> None:
    """Drive a run, and tell when it has begun."""
    os.chdir(folder)  # claims are those of a repository
    flow: Any = FLOWS[name]

    def hear(event: Any) -> None:
        if isinstance(event, WorkflowStarted):
            tell("begun")

    files = [] if flow is many else [files_in(folder)]
    executor_in(folder, *files, CallbackSink(hear)).options(run_id=run_id).run_sync(flow)


def page_of(folder: Path, *, read_only: bool = False) -> Any:
    """The page of a folder, as an application."""
    from handrail.web import create_app

    executor = executor_in(folder, files_in(folder))
    return create_app(
        executor.journal,
        token=TOKEN,
        executor=executor,
        artifacts=folder / "runs",
        read_only=read_only,
    )


class PagesBelow:
    """The page of each folder below one, at its name, made when it is first asked for. Mutable."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pages: dict[str, Any] = {}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Let the page of the folder answer."""
        name = scope["path"].split("/")[1]
        if name not in self._pages:
            self._pages[name] = page_of(self._folder / name)
        await self._pages[name]({**scope, "root_path": f"/{name}"}, receive, send)


def serve(tell: Tell, folder: Path, read_only: bool = False) -> None:
    """Serve the page of a folder, and tell the address."""
    serve_app(page_of(folder, read_only=read_only), tell, folder)


def serve_below(tell: Tell, folder: Path) -> None:
    """Serve the pages of the folders below one, and tell the address."""
    serve_app(PagesBelow(folder), tell, folder)


def serve_app(app: Any, tell: Tell, folder: Path) -> None:
    """Serve on a free port, or on that which was free for this folder before."""
    import uvicorn

    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        port = folder / "port"
        listening.bind(("127.0.0.1", int(port.read_text()) if port.exists() else 0))
        port.write_text(str(listening.getsockname()[1]))
        listening.listen()  # who is told the address may call at once
        tell(f"http://127.0.0.1:{port.read_text()}/")
        config = uvicorn.Config(app, lifespan="off", log_level="error", timeout_graceful_shutdown=1)
        uvicorn.Server(config).run([listening])
