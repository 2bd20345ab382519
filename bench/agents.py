"""What agents' programs cost: to read what they print, to start and end them, to hear many."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from bench.measure import Row, interleaved
from handrail import (
    Agent,
    AgentOptions,
    AgentTurn,
    ClaudeBackend,
    Executor,
    FakeBackend,
    MemorySink,
    Steps,
    Workflow,
    step,
    workflow,
)
from handrail.agents.claude.protocol import ClaudeTurn
from handrail.agents.copilot.stream import CopilotParser
from handrail.agents.routes import make_backend
from handrail.agents.transport.parser import TurnParser
from handrail.model.events import (
    AgentFinished,
    AgentMessage,
    AgentToolCompleted,
    AgentTranscript,
    Notice,
)
from handrail.system.live import LineFramer
from handrail.testing import Says, Tool, fake_cli
from handrail.testing.fake_programs.cli import Program

LEAST_MB_S = 50.0
"""How much of a program's stream must be read in a second."""
TURN_MS = 1.5
"""How much longer a turn may take than the program alone."""
TOOLS = 100
OUTPUT = "the quick brown fox jumps over the lazy dog\n" * 90
"""What a tool of the turn that is read prints: 4 KiB, as a file or the end of a test run is."""
AGENTS, MESSAGES = 200, 20
FILES, OUTSIDE = 30_000, 3_000
CHECK_S, UNDO_S = 5.0, 3.0
"""How long it may take to check the scope of a launch in a repository of so many files, and how
much longer to undo so many new ones.
"""

PARSERS: dict[str, tuple[Program, Callable[[AgentTurn], TurnParser]]] = {
    "claude": ("claude", ClaudeTurn),
    "copilot": ("copilot", CopilotParser),
}


def turn_of(emit: Callable[[Any], None] = lambda _: None, **options: Any) -> AgentTurn:
    """A turn of a step that nobody else has to do with."""
    chosen = AgentOptions(**options)
    return AgentTurn("bench", "Say hello.", "bench", "s", emit=emit, options=chosen)


def stream_of(backend: str, program: Program) -> bytes:
    """What a program prints in a long turn, of many tools, in its own protocol."""
    lines: list[str] = []

    def hear(notice: Notice) -> None:
        if isinstance(notice, AgentTranscript):
            lines.append(notice.line)

    tools = [Tool(f"cat {number}", OUTPUT) for number in range(TOOLS)]
    with tempfile.TemporaryDirectory(prefix="handrail-bench-") as folder:
        acts = [Says("Done. " * 100, tools=tools)]
        with fake_cli(program, acts, path=Path(folder) / program):
            turn = turn_of(hear, permission="full", cwd=folder)
            anyio.run(make_backend(backend).complete, turn)
    return "".join(f"{line}\n" for line in lines).encode()


def read(stream: bytes, parser: TurnParser) -> None:
    """Read a stream as it comes from a pipe: cut into lines, and each line understood."""
    framer = LineFramer("stdout")
    tools = 0
    for start in range(0, len(stream), 65_536):
        for line in framer.feed(stream[start : start + 65_536]):
            for notice in parser.feed(line.data):
                tools += type(notice) is AgentToolCompleted
    assert tools == TOOLS


def read_anew(stream: bytes, make: Callable[[AgentTurn], TurnParser]) -> None:
    """The same, by a new parser."""
    read(stream, make(turn_of()))


def _parsing(rounds: int) -> Iterator[Row]:
    for backend, (program, make) in PARSERS.items():
        stream = stream_of(backend, program)
        (best,) = interleaved(rounds, partial(read_anew, stream, make))
        rate = len(stream) / best / 1e6
        size = len(stream) / (stream.count(b"\n") or 1)
        note = f"of {LEAST_MB_S:.0f} MB/s, at {rate:.0f}, {size:.0f} bytes a line"
        yield Row(f"parse {backend}", "", 0.0, 1e6 / rate, LEAST_MB_S / rate, 1.0, note)


@contextmanager
def said_once(folder: Path) -> Iterator[Path]:
    """A program that reads its stdin and prints a short turn of claude's, and does no more."""
    lines: list[str] = []

    def hear(notice: Notice) -> None:
        if isinstance(notice, AgentTranscript):
            lines.append(notice.line)

    with fake_cli("claude", [Says("Hello.")], path=folder / "fake"):
        anyio.run(ClaudeBackend().complete, turn_of(hear))
    script = folder / "claude"
    said = " ".join(shlex.quote(line) for line in lines)
    script.write_text(f"#!/bin/sh\ncat > /dev/null\nprintf '%s\\n' {said}\n")
    script.chmod(0o755)
    yield script


def _overhead(rounds: int) -> Row:
    with (
        tempfile.TemporaryDirectory(prefix="handrail-bench-") as name,
        said_once(Path(name)) as script,
    ):
        backend = ClaudeBackend(executable=str(script))

        def bare() -> None:
            subprocess.run([script], input=b"Say hello.", capture_output=True, check=True)

        async def ten() -> None:
            for _ in range(10):
                assert (await backend.complete(turn_of())).text == "Hello."

        bare_s, ours = interleaved(rounds, bare, lambda: anyio.run(ten))
    over_ms = (ours / 10 - bare_s) * 1e3
    return Row(
        "a turn of a program, above the program",
        "",
        bare_s * 1e6,
        ours / 10 * 1e6,
        over_ms / TURN_MS,
        1.0,
        f"of {TURN_MS:.0f} ms, at {over_ms:.1f}",
    )


@contextmanager
def repository(folder: Path) -> Iterator[Path]:
    """A repository of many files, all committed; handrail's own files are beside it."""
    root = folder / "repository"
    for number in range(FILES):
        file = root / f"src{number // 300}" / f"{number}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"number = {number}\n" * 20)
    who = ["-c", "user.name=me", "-c", "user.email=me@localhost"]
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "first"]):
        subprocess.run(["git", *words], cwd=root, check=True, capture_output=True)
    before = os.environ.get("XDG_STATE_HOME")
    os.environ["XDG_STATE_HOME"] = str(folder / "state")
    try:
        yield root
    finally:
        os.environ.pop("XDG_STATE_HOME")
        if before is not None:
            os.environ["XDG_STATE_HOME"] = before


def scoped(root: Path, outside: int) -> None:
    """One launch that may write one folder, and writes that many files elsewhere."""

    def act(_: AgentTurn) -> str:
        for number in range(outside):
            (root / f"src{number // 300}" / f"new{number}.py").write_text("no = 1\n")
        return "done"

    agent = Agent("writer", "Write.", backend=FakeBackend([act]))
    inside = AgentOptions(cwd=str(root))

    @workflow
    def flow() -> Steps[object]:
        return (yield from step("write").agent(agent, writes=["docs/**"], options=inside))

    result = Executor(sinks=[MemorySink()]).run_sync(flow)
    assert result.success is not bool(outside), result.error
    assert not outside or not any(root.glob("src*/new*"))


def _scopes(rounds: int) -> Iterator[Row]:
    with (
        tempfile.TemporaryDirectory(prefix="handrail-bench-") as name,
        repository(Path(name)) as root,
    ):
        checked, undone = interleaved(
            rounds, partial(scoped, root, 0), partial(scoped, root, OUTSIDE)
        )
    for what, took, most in (
        (f"check of a scope, {FILES:,} files", checked, CHECK_S),
        (f"{OUTSIDE:,} files undone", undone - checked, UNDO_S),
    ):
        yield Row(what, "", 0.0, took * 1e6, took / most, 1.0, f"of {most:.0f} s, at {took:.2f}")


def talkers() -> Workflow[[], None]:
    """A workflow of many agents at once, each of which says many things."""

    async def talk(turn: AgentTurn) -> str:
        for number in range(MESSAGES):
            turn.emit(AgentMessage(turn.path, str(number)))
            await anyio.lowlevel.checkpoint()
        return "done"

    agent = Agent("talker", "Talk.", backend=FakeBackend([talk] * AGENTS))

    @workflow
    def flow() -> Steps[None]:
        yield from step("all").for_each(range(AGENTS), lambda _: step("talk").agent(agent))

    return flow


def hear_all() -> None:
    """One run of them; no message may be missing, or out of order."""
    sink = MemorySink()
    assert Executor(sinks=[sink]).run_sync(talkers()).success
    heard: dict[str, list[str]] = {}
    for event in sink.events:
        if isinstance(event, AgentMessage):
            heard.setdefault(event.path, []).append(event.text)
    assert len(heard) == AGENTS
    said = [*map(str, range(MESSAGES)), "done"]
    assert all(texts == said for texts in heard.values())
    assert sum(isinstance(event, AgentFinished) for event in sink.events) == AGENTS


def rows(rounds: int) -> Sequence[Row]:
    """The rows of agents."""
    (heard,) = interleaved(max(2, rounds // 3), hear_all)
    us = heard / (AGENTS * MESSAGES) * 1e6
    return [
        *_parsing(max(2, rounds // 3)),
        _overhead(max(3, rounds // 2)),
        *_scopes(2),
        Row(f"a message of {AGENTS} agents at once", "", 0.0, us, 0.0, None, "us; none is missed"),
    ]
