"""How a session of claude is made smaller: by a command of its own, before the prompt."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from handrail.agents.claude.backend import ClaudeBackend
from handrail.model.events import (
    AgentCompaction,
    AgentFinished,
    AgentSessionStarted,
    AgentUsage,
)
from tests.agents.fake_program import path_with
from tests.agents.recorded import recorded, turn_of

COST = 0.005220000000000001


@pytest.fixture
def compacting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A claude that knows the command /compact; the file of its calls."""
    monkeypatch.setenv("PATH", path_with(tmp_path))
    script, calls = tmp_path / "claude", tmp_path / "calls.jsonl"
    for case in ("resume_6_compact", "resume_2_same_cwd"):
        (tmp_path / case).write_bytes(recorded("claude", case))
    script.write_text(
        f"#!{sys.executable}\n"
        "import json, sys\n"
        "asked = sys.stdin.read()\n"
        f"print(json.dumps([asked, sys.argv[5:]]), file=open({str(calls)!r}, 'a'))\n"
        "case = 'resume_6_compact' if asked == '/compact' else 'resume_2_same_cwd'\n"
        f"sys.stdout.buffer.write(open({str(tmp_path)!r} + '/' + case, 'rb').read())\n",
        "utf-8",
    )
    script.chmod(0o755)
    return calls


def calls_in(file: Path) -> list[Any]:
    """The prompt and the arguments of each call."""
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


async def test_a_session_is_made_smaller_before_the_prompt(
    compacting: Path, run_id: str, emitted: list[Any]
) -> None:
    """Two calls in the same session, told as one turn, whose usage is that of both."""
    session = "aaaaaaaa-1111-4222-8333-444444444444"
    turn = turn_of(
        run_id=run_id,
        emitted=emitted,
        session=session,
        compact=True,
        schema={"type": "object"},
        prompt="Go on",
    )
    reply = await ClaudeBackend().complete(turn)
    asked = calls_in(compacting)
    assert [prompt for prompt, _ in asked] == ["/compact", "Go on"]
    assert asked[0][1] == [f"--resume={session}"]
    assert asked[1][1][0] == f"--resume={session}"
    assert asked[1][1][1].startswith("--json-schema=")
    assert reply.usage is not None
    assert reply.usage.input_tokens == 3800 + 1900
    assert reply.usage.cost_usd == pytest.approx(3 * COST)
    kinds = [type(notice) for notice in emitted]
    assert (kinds.count(AgentSessionStarted), kinds.count(AgentFinished)) == (1, 1)
    assert kinds.count(AgentCompaction) == 2
    assert emitted[-1].usage == reply.usage
    assert [one for one in emitted if isinstance(one, AgentUsage)][-1].usage == reply.usage


async def test_a_copy_is_made_before_it_is_made_smaller(compacting: Path, run_id: str) -> None:
    """What is copied stays as it was: the compaction is in the copy, the prompt goes there."""
    await ClaudeBackend().complete(turn_of(run_id=run_id, session="old", fork=True, compact=True))
    first, second = (argv for _, argv in calls_in(compacting))
    assert first[:2] == ["--resume=old", "--fork-session"]
    assert first[2].startswith("--session-id=")
    assert second == ["--resume=aaaaaaaa-1111-4222-8333-444444444444"]


async def test_a_new_session_is_not_made_smaller(compacting: Path, run_id: str) -> None:
    """Without a session to go on in there is nothing to compact."""
    await ClaudeBackend().complete(turn_of(run_id=run_id, compact=True))
    assert len(calls_in(compacting)) == 1
