"""The turns an agent takes to an answer of its type: asked once, and again while none fits."""

from __future__ import annotations

from typing import Any

from handrail.agents.wording import asked_again, rejected, with_schema
from handrail.errors import AnswerRejected
from handrail.model.convert import DoesNotFit, fit
from handrail.model.events import AgentTurnCompleted, AgentTurnStarted
from handrail.model.extract import Found, NotFound, last_fitting
from handrail.model.results import AgentResult, Usage
from handrail.model.schema import Schema, describe_type, json_schema, plain
from handrail.model.shapes import AgentRequest
from handrail.ports.agent import AgentBackend, AgentReply, AgentTurn


def schema_for(output: Any) -> Schema | None:
    """The JSON schema of an output type, or None for text, which is taken as it is.

    Raises:
        DefinitionError: no JSON is of this type.
    """
    return None if plain(output) is str else json_schema(output)


def read(reply: AgentReply, output: Any) -> Found | NotFound:
    """The answer in a reply: its structured value if it has one, else what its text holds."""
    if not reply.has_value or plain(output) is str:
        return last_fitting(reply.text, output)
    try:
        return Found(fit(reply.value, output), reply.text)
    except DoesNotFit as misfit:
        return NotFound(str(misfit))


class Conversation:
    """One agent step's exchange with a backend: what was said and used so far. Mutable."""

    def __init__(
        self, agent: str, backend: AgentBackend, output: Any, request: AgentRequest
    ) -> None:
        self._agent = agent
        self._backend = backend
        self._output = output
        self._request = request
        self._schema = schema_for(output)
        self._turn = 0
        self._session: str | None = None
        self._model: str | None = None
        self._usage: Usage | None = None

    async def hold(self, prompt: str, *, max_reasks: int) -> AgentResult[Any]:
        """The first answer that fits.

        Raises:
            AnswerRejected: none does, after the prompt and ``max_reasks`` more.
        """
        task = prompt if self._schema is None else with_schema(prompt, self._schema)
        prompt = task
        while True:
            reply = await self._ask(prompt)
            answer = self._heard(reply)
            if isinstance(answer, Found):
                return AgentResult(
                    answer.value, self._usage, self._model, self._session, self._turn
                )
            if self._turn > max_reasks:
                wanted = describe_type(self._output)
                why = rejected(wanted, self._turn, answer.reason, reply.text)
                raise AnswerRejected(self._agent, why)
            remembered = self._session is not None
            prompt = asked_again(task, reply.text, answer.reason, remembered=remembered)

    async def _ask(self, prompt: str) -> AgentReply:
        self._turn += 1
        request = self._request
        request.emit(AgentTurnStarted(request.path, self._turn, prompt))
        return await self._backend.complete(
            AgentTurn(
                agent=self._agent,
                prompt=prompt,
                run_id=request.run_id,
                path=request.path,
                turn=self._turn,
                session=self._session,
                schema=self._schema,
                context=request.context,
                emit=request.emit,
                sleep=request.sleep,
            )
        )

    def _heard(self, reply: AgentReply) -> Found | NotFound:
        """The answer in the reply, which is counted in and told of."""
        self._session = reply.session or self._session
        self._model = reply.model or self._model
        if reply.usage is not None:
            self._usage = (self._usage or Usage()) + reply.usage
        answer = read(reply, self._output)
        problem = answer.reason if isinstance(answer, NotFound) else None
        path = self._request.path
        self._request.emit(AgentTurnCompleted(path, self._turn, problem, reply.usage))
        return answer
