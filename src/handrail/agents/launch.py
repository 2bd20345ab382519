"""One launch of an agent: prompts its backend as the ladder says, and reads the answer."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import attrs

from handrail.agents.prompt import (
    KEPT_CHARS,
    both_ends,
    launch_prompt,
    rejection_reason,
    with_schema,
)
from handrail.agents.routes import Route
from handrail.errors import ClaimLost
from handrail.model import events as ev
from handrail.model.events import Notice
from handrail.model.launch import AgentError, AnswerRejected, Fault, fault_of
from handrail.model.policy import Ladder
from handrail.model.results import UNREPORTED, AgentResult, Usage, add_launch, add_usage
from handrail.model.shapes import AgentRequest
from handrail.ports.agent import AgentReply, AgentTurn, Capabilities, capabilities_of
from handrail.shortening import LONGEST_WORD, shortened
from handrail.typed.convert import DoesNotFit, fit
from handrail.typed.extract import NoAnswer, ParsedAnswer, last_fitting
from handrail.typed.jsonsafe import json_safe, short_repr
from handrail.typed.schema import Schema, describe_type, json_schema, plain
from handrail.workspace.bounds import within_bounds
from handrail.workspace.errors import ScopeViolated, WorktreeConflict

_KEPT = 40
_SHOWN_CHARS = 160
_TEXT_CHARS = 4_000


class Digest:
    """Forwards the notices of one launch, and keeps the last messages and tools. Mutable."""

    def __init__(
        self, emit: Callable[[Notice], None], launch: int, model: str | None = None
    ) -> None:
        self._emit = emit
        self._launch = launch
        self._model = model
        self._kept: deque[str] = deque()
        self._before = ""

    def __call__(self, notice: Notice) -> None:
        """Keep a message or tool, add launch or price where missing, and forward the notice."""
        if isinstance(notice, ev.AgentMessage):
            self._keep(notice.text)
        elif isinstance(notice, ev.AgentToolStarted):
            self._keep(f"\n[used {notice.name}: {short_repr(notice.input, _SHOWN_CHARS)}]\n")
        elif isinstance(notice, ev.AgentSessionStarted):
            notice = replace(notice, launch=self._launch)
        elif isinstance(notice, ev.AgentFinished):
            notice = replace(notice, usage=_with_price(notice.usage, notice.model or self._model))
        self._emit(notice)

    def text(self) -> str:
        """The end of what the agent said and did."""
        kept = "".join(self._kept).rstrip()
        most = min(len(kept), _TEXT_CHARS)
        return shortened(self._before + kept, most, keep="tail", mark="").strip()

    def _keep(self, text: str) -> None:
        """Keep a text; of dropped texts only the end is kept, to find a word's start."""
        self._kept.append(text)
        if len(self._kept) > _KEPT:
            self._before = (self._before + self._kept.popleft())[-LONGEST_WORD - 1 :]


_AT_WORK = frozenset(
    {"invalid_output", "max_turns", "output_limit", "refusal", "timeout", "interrupted", "crashed"}
)
"""Kinds of failures after which a model has used tokens, even if the error reports no usage."""


def schema_for(output: Any) -> Schema | None:
    """The JSON schema of an output type; None for text, which needs none.

    Raises:
        DefinitionError: no JSON is of this type.
    """
    return None if plain(output) is str else json_schema(output)


def read_answer(reply: AgentReply, output: Any) -> ParsedAnswer | NoAnswer:
    """The answer in a reply: its structured value if it has one, or else from its text."""
    if plain(output) is str and not reply.text.strip():
        return NoAnswer("it gave no text")
    if not reply.has_value or plain(output) is str:
        return last_fitting(reply.text, output)
    try:
        return ParsedAnswer(fit(reply.value, output), reply.text)
    except DoesNotFit as misfit:
        inside = last_fitting(json.dumps(json_safe(reply.value)), output)  # in a wrapper
        return inside if isinstance(inside, ParsedAnswer) else NoAnswer(str(misfit))


@attrs.frozen
class AgentLaunch:
    """One launch of an agent on one of its routes, as ``request.launch`` describes it."""

    agent: str
    output: Any
    routes: tuple[Route, ...]
    ladder: Ladder
    max_reasks: int
    request: AgentRequest

    @property
    def route(self) -> Route:
        """The route to take."""
        return self.routes[min(self.request.launch.route, len(self.routes) - 1)]

    async def run(self, prompt: str) -> AgentResult[Any]:
        """The answer.

        Raises:
            AgentError: there is none, or none that fits; ``fault`` says what may follow.
            ScopeViolated, WorktreeConflict, ClaimLost: see ``within_bounds``.
        """
        request, launch, route = self.request, self.request.launch, self.route
        able, reply = capabilities_of(route.backend), None
        digest = Digest(request.emit, launch.number, route.options.model)
        turn = self._turn(prompt, route, able, digest)
        request.emit(ev.AgentTurnStarted(turn.path, turn.turn, turn.prompt, route.name))
        if request.settings.lent and launch.session is None and not able.fork:
            text = f"{route.name} copies no sessions, and this one is another run's: begun anew\n"
            request.emit(ev.StepOutput(turn.path, "stderr", text))
        try:
            async with within_bounds(request, turn, route.backend) as turn:
                reply = await self._ask(turn, route, digest)
                return self._result_of(reply, turn, route)
        except (ScopeViolated, WorktreeConflict, ClaimLost) as error:
            known = error.__cause__ if isinstance(error.__cause__, AgentError) else reply
            if known is not None:
                error.usage = add_usage(launch.spent, known.usage)
                if isinstance(error, AgentError):
                    error.model, error.session, error.text = known.model, known.session, known.text
            raise

    async def _ask(self, turn: AgentTurn, route: Route, digest: Digest) -> AgentReply:
        """The backend's reply; its errors get the usage, text and fault that the ladder needs."""
        try:
            reply = await route.backend.complete(turn)
        except AgentError as error:
            error.usage = _with_price(error.usage, error.model or turn.options.model)
            if error.usage is None and error.kind in _AT_WORK:
                error.usage = UNREPORTED
            error.text = error.text or digest.text()
            error.fault = self._fault(error, route, error.reason, None)
            problem = f"{error.kind or 'failed'}: {error.reason}"
            self.request.emit(ev.AgentTurnCompleted(turn.path, turn.turn, problem, error.usage))
            raise
        return replace(reply, usage=_with_price(reply.usage, reply.model or turn.options.model))

    def _session(self, route: Route, able: Capabilities) -> str | None:
        """The session to continue, from the launch or the step's settings; None for a new one."""
        launch, settings = self.request.launch, self.request.settings
        if not able.sessions:
            return None
        if launch.session is not None:
            return launch.session if launch.backend in ("", route.name) else None
        is_kept = not launch.fresh and not launch.route
        return settings.session if is_kept and (able.fork or not settings.lent) else None

    def _turn(self, prompt: str, route: Route, able: Capabilities, digest: Digest) -> AgentTurn:
        request, launch, settings = self.request, self.request.launch, self.request.settings
        schema, session = schema_for(self.output), self._session(route, able)
        given = session is not None and launch.session is None
        task = prompt if schema is None else with_schema(prompt, schema)
        return AgentTurn(
            agent=self.agent,
            prompt=launch_prompt(task, launch, remembered=session is not None),
            run_id=request.run_id,
            mark=request.mark,
            path=request.path,
            turn=launch.turn,
            session=session,
            schema=schema,
            context=request.context,
            emit=digest,
            sleep=request.sleep,
            options=route.options,
            fork=given and (settings.fork or settings.lent),
            compact=launch.rung == "compact",
            session_usage=settings.session_usage if given else launch.session_usage,
            now=request.now,
            launch=launch.number,
        )

    def _result_of(self, reply: AgentReply, turn: AgentTurn, route: Route) -> AgentResult[Any]:
        """The result of a reply; emits ``AgentTurnCompleted``.

        Raises:
            AnswerRejected: the answer does not fit.
        """
        answer, session = read_answer(reply, self.output), reply.session or turn.session
        problem = answer.reason if isinstance(answer, NoAnswer) else None
        self.request.emit(ev.AgentTurnCompleted(turn.path, turn.turn, problem, reply.usage))
        if isinstance(answer, ParsedAnswer):
            return AgentResult(
                answer.value,
                add_launch(self.request.launch.spent, reply.usage),
                reply.model,
                session,
                turn.turn,
                route.name,
                reply.session_usage,
            )
        error = AnswerRejected(
            self.agent,
            rejection_reason(describe_type(self.output), turn.turn, answer.reason, reply.text),
            kind="invalid_output",
            session=session,
            text=both_ends(reply.text, KEPT_CHARS),
            usage=reply.usage,
            model=reply.model,
        )
        error.fault = self._fault(error, route, answer.reason, reply.session_usage)
        raise error

    def _fault(
        self, error: AgentError, route: Route, reason: str, session_usage: Usage | None
    ) -> Fault | None:
        fault, able = fault_of(error, self.request.launch), capabilities_of(route.backend)
        return fault and replace(
            fault,
            reason=reason,
            session_usage=session_usage,
            backend=route.name,
            ladder=self.ladder,
            max_reasks=self.max_reasks,
            routes=len(self.routes),
            can_resume=able.sessions,
            can_compact=able.compact,
        )


def _with_price(usage: Usage | None, model: str | None) -> Usage | None:
    """The usage with a cost from the table of prices, if the backend reported none."""
    if usage is None:
        return None
    if usage.cost_usd is None and model is not None:
        from handrail.agents.prices import cost_of

        usage = cost_of(model, usage)
    unpriced, unknown = int(usage.cost_usd is None), int(usage.tokens is None)
    return replace(usage, unpriced=unpriced, unknown=unknown) if unpriced or unknown else usage
