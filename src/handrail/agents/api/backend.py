"""A backend that is a model's API, through pydantic-ai."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

import anyio
import attrs

from handrail.agents.api.asyncio_guest import Emit, run_on_asyncio
from handrail.agents.api.errors import diagnose, hint_of
from handrail.agents.api.turn import ApiTurn, Session, Sessions, library
from handrail.agents.transport.turn import finished_notice, limit_reached
from handrail.errors import WrongUse
from handrail.model.agent_options import NO_OPTIONS, AgentOptions
from handrail.model.events import AgentFinished, AgentSessionStarted, Notice
from handrail.model.launch import AgentError
from handrail.ports.agent import AgentReply, AgentTurn, Capabilities, Probe
from handrail.typed.jsonsafe import short_repr

_CAPABILITIES = Capabilities(
    options=frozenset(
        {"model", "effort", "system_prompt", "append_system_prompt", "tools", "mcp_servers"}
        | {"temperature", "max_tokens", "max_turns"}
    ),
    sessions=True,
    fork=True,
    schema=True,
    usage=True,
    cost=True,
    reset_times=True,
)
_INSTALL = 'pip install "handrail[api]"'


def _check_model(_: Any, __: attrs.Attribute[Any], model: object) -> None:
    if isinstance(model, str) and ":" not in model and model != "test":
        raise WrongUse(
            f"ApiBackend takes a model as provider:model, such as 'anthropic:claude-opus-5', "
            f"got {model!r}"
        )
    if isinstance(model, (str, type(None))):
        return
    if not hasattr(model, "request") and not hasattr(model, "is_model_request_node"):
        raise WrongUse(
            f"ApiBackend takes a model as text, a Model or an Agent of pydantic-ai, "
            f"got {short_repr(model)}"
        )


@attrs.frozen
class ApiBackend:
    """A model behind its provider's API; needs pydantic-ai: the extra ``api``.

    ``model`` is ``"provider:model"``, a ``Model`` of pydantic-ai, or an ``Agent`` of it with its
    own tools and instructions; without one, ``AgentOptions(model=)`` must name it. pydantic-ai
    reads the keys from the environment. The provider's client does not retry.

    A provider keeps no sessions: they live in this object, so agents can continue them as long as
    the process lives. ``start_timeout_s`` defaults to ``idle_timeout_s``, which defaults to 600 s.
    On trio the library runs on an asyncio loop in a thread.
    """

    model: Any = attrs.field(default=None, validator=_check_model, repr=short_repr)
    options: AgentOptions = attrs.field(default=NO_OPTIONS, kw_only=True)
    _name: str | None = attrs.field(default=None, kw_only=True)
    _sessions: Sessions = attrs.field(factory=Sessions, init=False, eq=False, repr=False)
    _models: dict[str, Any] = attrs.field(factory=dict[str, Any], init=False, eq=False, repr=False)

    @property
    def name(self) -> str:
        """The name that was set, or ``"api"``."""
        return self._name or "api"

    @property
    def capabilities(self) -> Capabilities:
        """Its abilities; a model alone has no tools, so there is nothing to permit or deny."""
        return _CAPABILITIES

    async def complete(self, turn: AgentTurn, /) -> AgentReply:
        """The model's answer.

        Raises:
            AgentError: there is no answer; the error has its kind.
            MissingExtra: pydantic-ai is not installed.
        """
        is_over = False

        def forward(notice: Notice) -> None:
            nonlocal is_over
            is_over = is_over or isinstance(notice, AgentFinished)
            turn.emit(notice)

        async def work(emit: Emit) -> AgentReply:
            return await self._answer_with_notices(turn, emit)

        try:
            return await run_on_asyncio(work, forward)
        except BaseException as error:
            if not is_over:  # the work ended before it began
                turn.emit(finished_notice(turn.path, error))
            raise

    async def _answer_with_notices(self, turn: AgentTurn, emit: Emit) -> AgentReply:
        """The answer; emits ``AgentFinished`` in every case."""
        try:
            reply = await self._answer(turn, emit)
        except BaseException as error:
            for limit in limit_reached(turn.path, error):
                emit(limit)
            emit(finished_notice(turn.path, error))
            raise
        emit(finished_notice(turn.path, reply))
        return reply

    async def _answer(self, turn: AgentTurn, emit: Emit) -> AgentReply:
        options = turn.options.over(self.options)
        # In a thread, because importing the library and a provider's client takes seconds.
        agent, model = await anyio.to_thread.run_sync(self._resolve_model, turn, options)
        session = self._session(turn)
        named = _name_of(model if model is not None else agent.model)
        emit(AgentSessionStarted(turn.path, session.id, self.name, named))
        asked = ApiTurn(turn, options, session, emit)
        try:
            return await asked.ask(agent, model)
        finally:
            self._sessions.keep(asked.updated_session())

    def _session(self, turn: AgentTurn) -> Session:
        if turn.session is None:
            return self._sessions.begin()
        session = self._sessions.find(turn.session)
        if session is None:
            raise AgentError(
                turn.agent,
                f"session {turn.session} was held in the memory of a process that has ended, or "
                f"of another ApiBackend",
                kind="bad_request",
            )
        return self._sessions.fork(session) if turn.fork else session

    def _resolve_model(self, turn: AgentTurn, options: AgentOptions) -> tuple[Any, Any]:
        """The pydantic-ai agent to ask, and the model to use if it is not the agent's own."""
        package = library()
        wanted = options.model or self.model
        if wanted is None:
            raise AgentError(
                turn.agent,
                "no model is named. Say ApiBackend('provider:model') or AgentOptions(model=...).",
                kind="config",
            )
        try:
            model = self._infer_model(wanted) if isinstance(wanted, str) else wanted
            if hasattr(self.model, "is_model_request_node"):
                return self.model, None if model is self.model else model
            return package.Agent(model, retries=0, name=turn.agent), None
        except Exception as error:
            diagnosis = diagnose(error)
            hint = hint_of(diagnosis)
            raise AgentError(
                turn.agent, diagnosis.reason, kind=diagnosis.kind, hint=hint
            ) from error

    def _infer_model(self, text: str) -> Any:
        """The model of this name, created once because it has its provider's client."""
        if text not in self._models:
            self._models[text] = library("pydantic_ai.models").infer_model(text)
        return self._models[text]

    async def probe(self) -> Probe:
        """Whether the library is installed, and whether the provider's key is set."""
        if find_spec("pydantic_ai") is None:
            return Probe(found=False, advice=_INSTALL)
        try:
            library_version = version("pydantic-ai-slim")
        except PackageNotFoundError:
            library_version = None
        wanted = self.options.model or self.model
        named = None if wanted is None else _name_of(wanted)
        found = Probe(found=True, version=library_version, where=named)
        if found.where is None or not isinstance(wanted, str):
            return found
        try:
            await anyio.to_thread.run_sync(self._infer_model, found.where, abandon_on_cancel=True)
        except Exception as error:  # noqa: BLE001  # a probe reports every problem
            diagnosis = diagnose(error)
            return replace(
                found,
                found=diagnosis.kind != "not_installed",
                logged_in=False if diagnosis.kind == "auth" else None,
                advice=" ".join(part for part in (diagnosis.reason, hint_of(diagnosis)) if part),
            )
        return replace(found, logged_in=True)


def _name_of(model: Any) -> str | None:
    return model if isinstance(model, str) else getattr(model, "model_name", None)


__all__ = ["ApiBackend"]
