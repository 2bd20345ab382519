"""A scripted agent for tests: it answers, records its calls, and reports mismatches."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Self, TypeAlias, TypeGuard

from handrail.agents.fake import call_reply, is_like, replies_of, resolve_reply
from handrail.errors import WrongUse
from handrail.model.launch import AgentError
from handrail.model.policy import seconds_of
from handrail.model.results import AgentResult
from handrail.model.shapes import AgentRequest
from handrail.typed.jsonsafe import short_repr
from handrail.typed.schema import describe_type

_Place: TypeAlias = tuple[str, Any]
"""A context key and its value."""
By: TypeAlias = "Callable[[Mapping[str, Any]], Any] | Mapping[str, Mapping[Any, Any]]"


class FakeAgent:
    """An agent with scripted answers.

    ``replies`` are used one a call, in order. A reply is a value (the output, this very object; an
    ``AgentResult`` is used whole), an exception (instance or class), which is raised, or a sync or
    async callable of the context that returns one of these. ``delay`` passes before each reply, on
    the executor's clock.

    The prompt of the agent that it replaces is rendered from the context, as in a launch, and fails
    as it would there. ``prompts`` lists these prompts.

    ``by`` chooses by context, for calls in an unknown order: a callable of the context that
    returns a reply, or a mapping of a context key to replies by its value, each used any number of
    times: ``by={"file": {"a.py": "fine", "b.py": ValueError("bad")}}``. A call that is not in the
    mapping takes the next of ``replies``.

    An output must be of the ``output=`` type of the agent that it replaces; else the attempt fails
    with a ``WrongUse`` that names the line which created the fake. A call without a reply fails
    with an ``AgentError``. ``assert_exhausted()``, or the end of a ``with`` block, reports both
    again, and unused replies. ``calls`` lists the contexts, ``requests`` the whole requests.
    Mutable.
    """

    def __init__(
        self,
        name: str,
        replies: Sequence[Any] = (),
        *,
        by: By | None = None,
        delay: float | timedelta = 0.0,
    ) -> None:
        self.name = name
        self._made_at = _maker_of(self)
        self.calls: list[Mapping[str, Any]] = []
        self.requests: list[AgentRequest] = []
        self._given = replies_of(replies, f"FakeAgent {name!r}")
        self._left = deque(self._given)
        self._choice, self._table = _chosen_by(by, name, replies)
        self._chosen: set[_Place] = set()
        self._problems: list[str] = []
        self._uncalled = ""
        self._delay_s = seconds_of(delay, f"delay of FakeAgent {name!r}")

    def __repr__(self) -> str:
        return f"<FakeAgent {self.name!r}, {len(self.calls)} calls so far>"

    async def run(self, request: AgentRequest, /) -> AgentResult[Any]:
        """The scripted answer to this call.

        Raises:
            AgentError: the script has no reply for it.
            WrongUse: the reply is not of this agent's output type.
            BaseException: as scripted.
        """
        context = dict(request.context)
        self.calls.append(context)
        self.requests.append(request)
        reply = await self._choose(context)
        if self._delay_s:
            await request.sleep(self._delay_s)
        made = await resolve_reply(reply, context)
        result: AgentResult[Any] = made if _is_result(made) else AgentResult(made)
        # An agent without output= answers with text; a test may use any value instead.
        if request.output is not str and not is_like(result.output, request.output):
            raise WrongUse(self._note_unlike(result.output, request))
        return result

    def ended_uncalled(self, path: str, error: BaseException) -> None:
        """Note, for ``assert_exhausted()``, that a step of its agent failed before it called it."""
        self._uncalled = f"step {path!r} failed before it called this agent: {error}"

    @property
    def prompts(self) -> list[str]:
        """The prompt that each call rendered, of the agent that this one replaces."""
        return [request.prompt for request in self.requests]

    @property
    def unused(self) -> tuple[Any, ...]:
        """The replies not used so far."""
        chosen = self._chosen
        return (*self._left, *(self._table[place] for place in self._table if place not in chosen))

    def assert_exhausted(self) -> None:
        """Do nothing if every reply was used and every call had one.

        Raises:
            AssertionError: lists unused replies, unexpected calls and replies of another type.
        """
        problems = list(dict.fromkeys(self._problems))  # each attempt may add the same problem
        unused = self.unused
        if unused:
            shown = ", ".join(short_repr(reply) for reply in unused)
            why = self._uncalled
            if not self.calls and not why:
                why = "it was never called: look at the run's error"
            problems.append(f"{_replies(len(unused))} not used: {shown}{why and f'; {why}'}")
        if problems:
            raise AssertionError(f"agent {self.name!r}: {'; '.join(problems)}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:  # otherwise that error is the cause, and unused replies follow from it
            self.assert_exhausted()

    async def _choose(self, context: Mapping[str, Any]) -> Any:
        if self._choice is not None:
            return await call_reply(self._choice, context)
        for place in context.items():
            if _hashable(place) and place in self._table:
                self._chosen.add(place)
                return self._table[place]
        if not self._left:
            raise AgentError(self.name, self._note_unexpected(context))
        return self._left.popleft()

    def _note_unexpected(self, context: Mapping[str, Any]) -> str:
        shown = ", ".join(f"{key}={short_repr(value, 60)}" for key, value in context.items())
        call = f"unexpected call {len(self.calls)} with context ({shown})"
        self._problems.append(call)
        script = f"it was given {_replies(len(self._given))}" + ", all used" * bool(self._given)
        if self._table:
            script = f"its by= has no reply for it, and {script}"
        return f"{call}: {script}"

    def _note_unlike(self, output: object, request: AgentRequest) -> str:
        wanted = describe_type(request.output, fields=False)
        problem = (
            f"{self._made_at}: FakeAgent {self.name!r} answered with {short_repr(output)}, "
            f"which is of type {type(output).__name__}, but its agent at {request.path!r} has "
            f"output={wanted}. Give it a reply of that type, which is used as it is."
        )
        if self._table and isinstance(output, list):
            problem += " A list in by= is one reply: for one after another give it a function."
        self._problems.append(problem)
        return problem


def _chosen_by(
    by: object, name: str, replies: Sequence[Any]
) -> tuple[Callable[..., Any] | None, dict[_Place, Any]]:
    """``by`` as a function, a table of replies, or neither."""
    if by is None:
        return None, {}
    if _is_mapping(by):
        return None, _table(by, name)
    return _choice(by, name, replies), {}


def _table(by: Mapping[Any, Any], name: str) -> dict[_Place, Any]:
    """The replies by context key and value."""
    table: dict[_Place, Any] = {}
    for key, replies in by.items():
        if not _is_mapping(replies):
            raise WrongUse(
                f"FakeAgent {name!r}: by= maps a context key to the replies by its value, "
                f"like {{'file': {{'a.py': reply}}}}; under {key!r} is {short_repr(replies)}"
            )
        table.update({(key, value): reply for value, reply in replies.items()})
    return table


def _choice(by: object, name: str, replies: Sequence[Any]) -> Callable[..., Any]:
    if not callable(by):
        raise WrongUse(
            f"FakeAgent {name!r}: by= takes a function of the context or a mapping, "
            f"got {short_repr(by)}"
        )
    if replies:
        raise WrongUse(
            f"FakeAgent {name!r}: a function in by= chooses every reply, so those of replies= "
            f"would never be given. Keep one of the two."
        )
    return by


def _maker_of(fake: FakeAgent) -> str:
    """``file:line`` of the code that creates it: the first frame outside its own methods."""
    frame = inspect.currentframe()
    frame = None if frame is None else frame.f_back
    while frame is not None and frame.f_locals.get("self") is fake:
        frame = frame.f_back
    return "here" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _is_result(output: object) -> TypeGuard[AgentResult[Any]]:
    return isinstance(output, AgentResult)


def _is_mapping(value: object) -> TypeGuard[Mapping[Any, Any]]:
    return isinstance(value, Mapping)


def _hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _replies(count: int) -> str:
    return f"{count} {'reply' if count == 1 else 'replies'}"
