"""One launch of an agent: prompts its backend as the ladder says, and reads the answer."""

from __future__ import annotations

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
from handrail.model import events as ev
from handrail.model.events import Notice
from handrail.model.launch import AgentError, AnswerRejected, Fault, fault_of
from handrail.model.policy import Ladder
from handrail.model.results import UNREPORTED, AgentResult, Usage, add_launch
from handrail.model.shapes import AgentRequest
from handrail.ports.agent import AgentReply, AgentTurn, capabilities_of
from handrail.shortening import LONGEST_WORD, shortened
from handrail.typed.convert import DoesNotFit, fit
from handrail.typed.extract import NoAnswer, ParsedAnswer, last_fitting
from handrail.typed.jsonsafe import short_repr
from handrail.typed.schema import Schema, describe_type, json_schema, plain
from handrail.workspace.bounds import bounds_of

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
    {
        "invalid_output",
        "max_turns",
        "output_limit",
        "refusal",
        "timeout",
        "interrupted",
        "crashed",
    }
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
        return NoAnswer(str(misfit))


@attrs.frozen
class AgentLaunch:
    """One launch of an agent on one of its routes, as ``request.launch`` describes it."""

    agent: str
    output: Any
    routes: tuple[Route, ...]
    ladder: Ladder
    max_reasks: int
    request: AgentRequest

    async def run(self, prompt: str) -> AgentResult[Any]:
        """The answer.

        Raises:
            AgentError: there is none, or none that fits; ``fault`` says what may follow.
            ScopeViolated, WorktreeConflict: see ``bounds``.
        """
        request, launch = self.request, self.request.launch
        route = self.routes[min(launch.route, len(self.routes) - 1)]
        schema = schema_for(self.output)
        task = prompt if schema is None else with_schema(prompt, schema)
        said = launch_prompt(task, launch, remembered=self._session(route) is not None)
        digest = Digest(request.emit, launch.number, route.options.model)
        request.emit(ev.AgentTurnStarted(request.path, launch.turn, said, route.backend.name))
        if request.settings.lent and launch.session is None and not self._can_copy(route):
            text = f"{route.name} copies no sessions, and this one is another run's: begun anew\n"
            request.emit(ev.StepOutput(request.path, "stderr", text))
        async with bounds_of(request, self.agent, route.backend, route.options) as bounds:
            turn = self._turn(route, said, schema, digest)
            bounds.reply = await self._ask(
                replace(turn, options=bounds.options, boundary=bounds.sandbox), route, digest
            )
            return self._result_of(bounds.reply, route)

    async def _ask(self, turn: AgentTurn, route: Route, digest: Digest) -> AgentReply:
        """The backend's reply; its errors get the usage, text and fault that the ladder needs."""
        try:
            reply = await route.backend.complete(turn)
        except AgentError as error:
            error.usage = _with_price(error.usage, error.model or route.options.model)
            if error.usage is None and error.kind in _AT_WORK:
                error.usage = UNREPORTED
            self._explain(error, route, digest)
            raise
        return replace(reply, usage=_with_price(reply.usage, reply.model or route.options.model))

    def _session(self, route: Route) -> str | None:
        """The session to continue, from the launch or the step's settings; None for a new one."""
        if not capabilities_of(route.backend).sessions:
            return None
        launch = self.request.launch
        if launch.session is not None:
            its_own = launch.backend in ("", route.name)
            return launch.session if its_own else None
        settings = self.request.settings
        if launch.fresh or launch.route or (settings.lent and not self._can_copy(route)):
            return None
        return settings.session

    @staticmethod
    def _can_copy(route: Route) -> bool:
        return capabilities_of(route.backend).fork

    def _turn(self, route: Route, prompt: str, schema: Schema | None, digest: Digest) -> AgentTurn:
        request, launch = self.request, self.request.launch
        session = self._session(route)
        given = session is not None and launch.session is None
        return AgentTurn(
            agent=self.agent,
            prompt=prompt,
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
            fork=given and (request.settings.fork or request.settings.lent),
            compact=launch.rung == "compact",
            session_usage=request.settings.session_usage if given else launch.session_usage,
            now=request.now,
            launch=launch.number,
        )

    def _result_of(self, reply: AgentReply, route: Route) -> AgentResult[Any]:
        """The result of a reply; emits ``AgentTurnCompleted``."""
        request, launch = self.request, self.request.launch
        answer = read_answer(reply, self.output)
        problem = answer.reason if isinstance(answer, NoAnswer) else None
        request.emit(ev.AgentTurnCompleted(request.path, launch.turn, problem, reply.usage))
        if isinstance(answer, ParsedAnswer):
            return AgentResult(
                answer.value,
                add_launch(launch.spent, reply.usage),
                reply.model,
                reply.session or self._session(route),
                launch.turn,
                route.name,
                reply.session_usage,
            )
        raise self._misfit(reply, answer.reason, route)

    def _misfit(self, reply: AgentReply, reason: str, route: Route) -> AnswerRejected:
        launch = self.request.launch
        why = rejection_reason(describe_type(self.output), launch.turn, reason, reply.text)
        error = AnswerRejected(
            self.agent,
            why,
            kind="invalid_output",
            session=reply.session or self._session(route),
            text=both_ends(reply.text, KEPT_CHARS),
            usage=reply.usage,
            model=reply.model,
        )
        error.fault = self._fault(error, route, reason, reply.session_usage)
        return error

    def _explain(self, error: AgentError, route: Route, digest: Digest) -> None:
        """Report a failed launch, and add to its error what the ladder needs to know."""
        request, launch = self.request, self.request.launch
        error.text = error.text or digest.text()
        error.fault = self._fault(error, route, error.reason, None)
        problem = f"{error.kind or 'failed'}: {error.reason}"
        request.emit(ev.AgentTurnCompleted(request.path, launch.turn, problem, error.usage))

    def _fault(
        self, error: AgentError, route: Route, reason: str, session_usage: Usage | None
    ) -> Fault | None:
        fault = fault_of(error, self.request.launch)
        if fault is None:
            return None
        capabilities = capabilities_of(route.backend)
        return replace(
            fault,
            reason=reason,
            session_usage=session_usage,
            backend=route.name,
            ladder=self.ladder,
            max_reasks=self.max_reasks,
            routes=len(self.routes),
            can_resume=capabilities.sessions,
            can_compact=capabilities.compact,
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
