"""What every agent backend must do."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, get_args

import anyio
import pytest

from handrail.errors import AgentErrorKind
from handrail.model.events import AgentFinished, AgentMessage, AgentSessionStarted
from handrail.model.launch import AgentError
from handrail.ports.agent import AgentBackend, AgentReply, AgentTurn
from handrail.system.marker import carries, environ_of, live_pids

ANSWER = "It is done.\nTwo files were changed: ä.py and b.py."
PROMPTS = ["Do it.", "", "ünïcödé \N{ROCKET}\n\n```json\n{}\n```\n", "long " * 100_000]

MakeBackend: TypeAlias = Callable[[str], AgentBackend]
KINDS = {None, *get_args(AgentErrorKind)}


class BackendContract:
    """The tests of ``handrail.ports.agent.AgentBackend``; subclass it and override the fixtures.

    Tests are async and need anyio's pytest plugin: ``anyio_mode = "auto"``, or mark the subclass
    with ``pytest.mark.anyio``.
    """

    run_id = f"contract-{uuid.uuid4().hex}"  # so that suites at the same time do not collide

    @pytest.fixture
    def make_backend(self) -> MakeBackend:
        """A function that makes a backend, which answers all prompts with the given text."""
        raise NotImplementedError("override the fixture make_backend in your subclass")

    @pytest.fixture
    def failing_backend(self) -> AgentBackend:
        """A backend that cannot answer: its program fails, its model refuses."""
        raise NotImplementedError("override the fixture failing_backend in your subclass")

    @pytest.fixture
    def endless_backend(self) -> AgentBackend:
        """A backend that works on its answer and never ends."""
        raise NotImplementedError("override the fixture endless_backend in your subclass")

    def turn(self, prompt: str = "Do it.", path: str = "step", **more: Any) -> AgentTurn:
        """A prompt for the backend."""
        return AgentTurn(agent="worker", prompt=prompt, run_id=self.run_id, path=path, **more)

    async def test_it_has_a_name(self, make_backend: MakeBackend) -> None:
        """Its name is text that is not blank."""
        name = make_backend(ANSWER).name
        assert isinstance(name, str)
        assert name.strip()

    @pytest.mark.parametrize("prompt", PROMPTS, ids=["plain", "empty", "unicode", "long"])
    async def test_any_prompt_is_answered_whole(
        self, make_backend: MakeBackend, prompt: str
    ) -> None:
        """The reply's text is the whole answer, whatever was asked."""
        reply = await make_backend(ANSWER).complete(self.turn(prompt))
        assert reply.text.strip() == ANSWER

    async def test_turns_at_the_same_time_are_all_answered(self, make_backend: MakeBackend) -> None:
        """One backend serves many steps at once."""
        backend = make_backend(ANSWER)
        replies: dict[str, AgentReply] = {}

        async def ask(path: str) -> None:
            replies[path] = await backend.complete(self.turn(path=path))

        paths = [f"review/{number}" for number in range(5)]
        async with anyio.create_task_group() as tasks:
            for path in paths:
                tasks.start_soon(ask, path)
        assert {path: reply.text.strip() for path, reply in replies.items()} == dict.fromkeys(
            paths, ANSWER
        )

    async def test_progress_is_of_the_step_that_asked(self, make_backend: MakeBackend) -> None:
        """Every notice that it emits carries the path of its turn."""
        told: list[Any] = []
        await make_backend(ANSWER).complete(self.turn(path="a/b", emit=told.append))
        assert {notice.path for notice in told} == {"a/b"}

    async def test_the_last_that_it_tells_is_how_it_ended(self, make_backend: MakeBackend) -> None:
        """AgentFinished comes once, after all else, with the usage and session of the reply."""
        told: list[Any] = []
        reply = await make_backend(ANSWER).complete(self.turn(emit=told.append))
        finished = last_of(told)
        assert (finished.status, finished.kind, finished.error) == ("completed", "", "")
        assert (finished.usage, finished.session) == (reply.usage, reply.session)

    async def test_a_session_is_told_once_and_before_what_is_said_in_it(
        self, make_backend: MakeBackend
    ) -> None:
        """AgentSessionStarted comes once, with the reply's session, before any message."""
        told: list[Any] = []
        reply = await make_backend(ANSWER).complete(self.turn(emit=told.append))
        begun = [notice for notice in told if isinstance(notice, AgentSessionStarted)]
        assert [notice.session for notice in begun] == ([reply.session] if reply.session else [])
        spoken = [isinstance(notice, AgentMessage) for notice in told]
        if begun and any(spoken):
            assert told.index(begun[0]) < spoken.index(True)

    async def test_no_answer_is_an_error_that_names_the_agent(
        self, failing_backend: AgentBackend
    ) -> None:
        """A backend that cannot answer raises an AgentError with the agent, a reason, and a kind
        that is known, or none.
        """
        with pytest.raises(AgentError) as caught:
            await failing_backend.complete(self.turn())
        assert caught.value.agent == "worker"
        assert caught.value.reason.strip()
        assert caught.value.kind in KINDS

    async def test_a_failure_is_told_last(self, failing_backend: AgentBackend) -> None:
        """AgentFinished comes once, after all else, with the kind of the error."""
        told: list[Any] = []
        with pytest.raises(AgentError) as caught:
            await failing_backend.complete(self.turn(path="a/b", emit=told.append))
        finished, kind = last_of(told), caught.value.kind
        assert finished.status == ("interrupted" if kind == "interrupted" else "failed")
        assert finished.kind == (kind or "")
        assert {notice.path for notice in told} == {"a/b"}

    async def test_cancelling_stops_it_and_leaves_nothing_running(
        self, endless_backend: AgentBackend
    ) -> None:
        """A cancelled turn gives no reply, emits its end, and leaves no process running."""
        replies: list[AgentReply] = []
        told: list[Any] = []

        async def ask() -> None:
            replies.append(await endless_backend.complete(self.turn(emit=told.append)))

        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask)
                await anyio.wait_all_tasks_blocked()
                tasks.cancel_scope.cancel()
        assert replies == []
        assert self.left_running() == []
        assert last_of(told).status == "interrupted"

    def left_running(self) -> list[int]:
        """The processes that still work on a turn of this contract (Linux: by their marker)."""
        if sys.platform != "linux":
            return []
        return [pid for pid in live_pids() if carries(environ_of(pid), self.run_id, below=True)]


def last_of(told: Sequence[Any]) -> AgentFinished:
    """The last notice, which is the one that says how the turn ended."""
    ends = [notice for notice in told if isinstance(notice, AgentFinished)]
    assert len(ends) == 1, f"AgentFinished must be emitted once in a turn, was {len(ends)} times"
    last = told[-1]
    assert isinstance(last, AgentFinished), f"{type(last).__name__} was emitted after AgentFinished"
    return last
