"""Real programs in a sandbox: they work, and stay within it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from handrail import Agent, AgentOptions, Executor, Sandbox, Steps, step, workflow
from handrail.model import events as ev
from handrail.sandbox.bubblewrap import why_unavailable
from handrail.sinks.memory import MemorySink
from tests.live.conftest import Session
from tests.live.stub_server import Text

pytestmark = [pytest.mark.live_cli, pytest.mark.live_on("claude", "codex")]

LINE = (
    "echo hi > new.txt; git add new.txt; git -c user.name=a -c user.email=a@b commit -qm New; "
    "echo x > ../../../../beside.txt; cat $HOME/.ssh/id_ed25519; git config user.name evil; "
    "git log -1 --format=%s"
)


@pytest.mark.skipif(why_unavailable() is not None, reason=str(why_unavailable()))
async def test_a_real_program_commits_within_its_bounds(
    open_session: Callable[..., Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It edits, runs commands and commits on its own branch; what is not its own stays as it is."""
    session = open_session()
    live, home = session.live, session.home
    repo = home / "work"
    key = home / ".ssh" / "id_ed25519"
    key.parent.mkdir()
    key.write_text("canary-1f2e\n")
    for words in (["init", "-q"], ["config", "user.name", "t"], ["config", "user.email", "t@t"]):
        subprocess.run(["git", *words], cwd=repo, check=True)  # noqa: ASYNC221
    (repo / "a.txt").write_text("a\n")
    subprocess.run("git add . && git commit -qm One", shell=True, cwd=repo, check=True)  # noqa: ASYNC221
    session = open_session(live.tool(LINE), Text("done"), permission="full")
    monkeypatch.setenv("HOME", str(home))
    backend: Any = session.backend
    agent = Agent("a", "Go.", backend=backend, options=AgentOptions(sandbox=Sandbox()))
    sink = MemorySink()

    @workflow
    def flow() -> Steps[str]:
        return (yield from step("a").agent(agent, worktree=True)).output

    monkeypatch.chdir(repo)
    result = await Executor(sinks=[sink]).run(flow)
    assert result.unwrap() == "done"
    assert (repo / "new.txt").read_text() == "hi\n"
    assert not [path async for path in anyio.Path(home).rglob("beside.txt")]
    asked = "".join(str(request.body) for request in session.stub.requests)
    assert "canary-1f2e" not in asked
    assert "Permission denied" in asked
    assert "New" in asked
    assert [event for event in sink.of(ev.SandboxDenied) if ".git/config" in event.what]
