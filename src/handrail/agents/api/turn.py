"""One turn of a model API, through pydantic-ai."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any, cast

import anyio

from handrail.agents.api.asyncio_guest import Emit
from handrail.agents.api.errors import API, diagnose, hint_of
from handrail.agents.prices import cost_of
from handrail.agents.transport.parser import Ending
from handrail.agents.transport.turn_state import TurnState
from handrail.errors import AgentErrorKind, MissingExtra
from handrail.model.agent_options import AgentOptions
from handrail.model.dataclass import dataclass
from handrail.model.events import AgentMessage, AgentReasoning, AgentToolCompleted, AgentToolStarted
from handrail.model.launch import AgentError
from handrail.model.results import Usage, add_usage
from handrail.ports.agent import AgentReply, AgentTurn

IDLE_S = 600.0
"""How long a model may be silent. Providers hide a model's reasoning, so minutes of silence are no
hang; 600 s is also the default timeout of their clients."""
TOOL_S = 1800.0


class Watch:
    """Ends a turn in which the model is silent for too long. Mutable."""

    def __init__(self, options: AgentOptions) -> None:
        self._idle_s = options.idle_timeout_s or IDLE_S
        self._start_s = options.start_timeout_s or self._idle_s
        self._tool_s = options.tool_timeout_s or TOOL_S
        self._total_s = options.timeout_s
        self._waiting_s = self._start_s
        self.silence = anyio.CancelScope()
        self.total = anyio.move_on_after(options.timeout_s)

    def start(self) -> None:
        """A request is about to be sent."""
        self._wait(self._start_s)

    def sign(self) -> None:
        """The model sent something."""
        self._wait(self._idle_s)

    def tools(self) -> None:
        """The model has answered; now the tools that it called run."""
        self._wait(self._tool_s)

    def _wait(self, seconds: float) -> None:
        self._waiting_s = seconds
        self.silence.deadline = anyio.current_time() + seconds

    @property
    def reason(self) -> str:
        """Why the turn was ended, in words."""
        if self.total.cancelled_caught and self._total_s is not None:
            return f"it took longer than {self._total_s:g} s"
        return f"nothing was heard of it for {self._waiting_s:g} s"


def usage_of(counted: Any, model: str | None) -> Usage | None:
    """The usage of a run; None before its first response.

    Zero input tokens mean that the provider reported no counts. The cost comes from the price list
    of pydantic-ai (genai-prices), or else from ``handrail.agents.prices``.
    """
    requests = _count(counted, "requests")
    if not requests:
        return None
    is_counted = _count(counted, "input_tokens") > 0 and not _count(counted, "unmeasured_requests")
    cost = getattr(counted, "cost", None)
    usage = Usage(
        input_tokens=_count(counted, "input_tokens") if is_counted else None,
        output_tokens=_count(counted, "output_tokens") if is_counted else None,
        cost_usd=float(cost) if is_counted and cost is not None else None,
        turns=requests,
        cached_tokens=_count(counted, "cache_read_tokens") if is_counted else None,
        cache_write_tokens=_count(counted, "cache_write_tokens") if is_counted else None,
        reasoning_tokens=(_count(counted, "output_reasoning_tokens") or None)
        if is_counted
        else None,
        cost_source="table" if is_counted and cost is not None else None,
    )
    return cost_of(model, usage)


def _count(counted: Any, name: str) -> int:
    value = getattr(counted, name, 0)
    return value if isinstance(value, int) else 0


_EFFORTS: Mapping[str, Any] = {
    **{word: word for word in ("minimal", "low", "medium", "high", "xhigh", "max")},
    "none": False,
}
_CUT: Mapping[str, tuple[AgentErrorKind, str]] = {
    "length": ("output_limit", "the answer was cut at the model's output limit"),
    "content_filter": ("refusal", "the provider withheld the answer"),
    "error": ("transient", "the model ended with an error"),
}
_OUTPUT_TOOL = "final_result"
"""pydantic-ai's name for the tool with which a model submits a structured answer."""


class ApiTurn(TurnState):
    """One prompt to a model, and its results so far. Mutable; lives as long as the turn."""

    def __init__(
        self, turn: AgentTurn, options: AgentOptions, session: Session, emit: Emit
    ) -> None:
        super().__init__(turn, API)
        self.session = session.id
        self._options = options
        self._earlier = session
        self._emit = emit
        self._watch = Watch(options)
        self._run: Any = None
        self._responses: list[Any] = []
        self._wrapped = False
        self._streamed = False

    # -- asking ----------------------------------------------------------------------------------

    async def ask(self, agent: Any, model: Any = None) -> AgentReply:
        """The answer of a ``pydantic_ai.Agent``, with ``model`` in place of its own if set.

        Raises:
            AgentError: there is no answer.
        """
        result: Any = None
        try:
            with self._watch.total, self._watch.silence:
                result = await self._run_to_end(agent, model)
        except Exception as error:  # noqa: BLE001  # classified and raised again
            return self._without_result(error)
        if result is None:
            raise self.error("timeout", self._watch.reason)
        return self._reply(result.output)

    async def _run_to_end(self, agent: Any, model: Any) -> Any:
        async with self._open_run(agent, model) as run:
            self._run = run
            self._watch.start()
            async for node in run:
                if agent.is_model_request_node(node):
                    self._on_request(node.request)
                    self._watch.start()
                    if can_stream(model if model is not None else agent.model):
                        await self._listen(node)
                elif agent.is_call_tools_node(node):
                    self._on_response(node.model_response)
                    self._watch.tools()
            return run.result

    @contextlib.asynccontextmanager
    async def _open_run(self, agent: Any, model: Any) -> AsyncGenerator[Any]:
        """A run of the agent, without retries in the library: the recovery ladder retries."""
        options = self._options
        limits = library("pydantic_ai.usage").UsageLimits(request_limit=options.max_turns)
        added = options.append_system_prompt
        replaced: Any = contextlib.nullcontext()
        if options.system_prompt is not None:
            said = [options.system_prompt] if added is None else [options.system_prompt, added]
            replaced = agent.override(instructions=said)
        servers = _toolsets(options.mcp_servers or {}, self.error)
        if options.tools is not None:
            servers = [toolset.filtered(self._is_listed) for toolset in (*agent.toolsets, *servers)]
            listed: Any = agent.override(toolsets=servers, tools=())
            servers = []
        else:
            listed = contextlib.nullcontext()
        with replaced, listed:
            async with (
                agent,
                agent.iter(
                    self.turn.prompt,
                    output_type=self._output_type(),
                    message_history=list(self._earlier.messages),
                    model=model,
                    instructions=added,
                    toolsets=servers,
                    model_settings=self._settings(model if model is not None else agent.model),
                    usage_limits=limits,
                    infer_name=False,
                ) as run,
            ):
                yield run

    def _is_listed(self, _: Any, tool: Any) -> bool:
        return tool.name in (self._options.tools or ())

    async def _listen(self, node: Any) -> None:
        """Stream a response. Its pieces are signs of life; it is reported once it is whole."""
        self._streamed = True
        async with node.stream(self._run.ctx) as pieces:
            async for _ in pieces:
                self._watch.sign()

    def _settings(self, model: Any) -> dict[str, Any]:
        ignored = getattr(unwrap_model(model), "unsupported_settings", frozenset[str]())
        settings: dict[str, Any] = {} if "max_retries" in ignored else {"max_retries": 0}
        for name in ("temperature", "max_tokens"):
            if (chosen := getattr(self._options, name)) is not None:
                settings[name] = chosen
        if (effort := self._options.effort) is not None:
            if effort not in _EFFORTS:
                known = ", ".join(_EFFORTS)
                refused = self.error("config", f"effort={effort!r} is unknown. Known: {known}.")
                refused.hint = ""
                raise refused
            settings["thinking"] = _EFFORTS[effort]
        return settings

    def _output_type(self) -> Any:
        """A dictionary type for the schema; ``str`` without a schema, or if it is recursive."""
        schema = self.turn.schema
        if schema is None:
            return str
        whole, wrapped = wrap_schema(schema)
        package = library()
        try:
            structured = package.StructuredDict(whole, name="answer")
        except library("pydantic_ai.exceptions").UserError:
            return str
        self._wrapped = wrapped
        return structured

    # -- reporting -------------------------------------------------------------------------------

    def _on_response(self, response: Any) -> None:
        """Report a model's response, part by part."""
        self._responses.append(response)
        self.model = getattr(response, "model_name", None)
        self.text = _text(response.parts)
        path = self.path
        for part in response.parts:
            match part.part_kind:
                case "thinking" if part.content:
                    self._emit(AgentReasoning(path, part.content))
                case "text" if part.content:
                    self._emit(AgentMessage(path, part.content))
                case "tool-call" if part.tool_name != _OUTPUT_TOOL:
                    called = _json(part.args)
                    self._emit(AgentToolStarted(path, part.tool_call_id, part.tool_name, called))
                case _:
                    pass
        self._count()
        self.calls = len(self._responses)
        for notice in self.used(self.usage):
            self._emit(notice)

    def _on_request(self, request: Any) -> None:
        """Report tool results, which are part of the next request to the model."""
        path = self.path
        for part in request.parts:
            kind, name = part.part_kind, getattr(part, "tool_name", None) or _OUTPUT_TOOL
            if kind not in {"tool-return", "retry-prompt"} or name == _OUTPUT_TOOL:
                continue
            ok = kind == "tool-return" and getattr(part, "outcome", "success") == "success"
            said = str(part.model_response_str() if kind == "tool-return" else part.content)
            self._emit(AgentToolCompleted(path, part.tool_call_id, name, ok, said))

    # -- concluding ------------------------------------------------------------------------------

    def _reply(self, output: Any) -> AgentReply:
        """The reply, if the model itself completed its answer.

        Raises:
            AgentError: the answer was cut off.
        """
        finish: str | None = (
            getattr(self._responses[-1], "finish_reason", None) if self._responses else None
        )
        if finish is not None and finish in _CUT and not isinstance(output, dict):
            details: Any = getattr(self._responses[-1], "provider_details", None) or {}
            if "context_window" in str(details.get("finish_reason")):
                raise self.error("context_overflow", "the conversation fills the context window")
            raise self.error(*_CUT[finish])
        if finish is None and not isinstance(output, dict) and self._is_cut:
            raise self.error("transient", "the answer ended before the model said that it is done")
        self._count()
        text = self.text if isinstance(output, dict) else str(output)
        reply = self.reply(text=text, stop_reason=finish)
        if not isinstance(output, dict):
            return reply
        return self._with_value(reply, cast("dict[str, Any]", output))

    @property
    def _is_cut(self) -> bool:
        """True if a provider streamed the last response: it would have said why it ended."""
        by = getattr(self._responses[-1], "provider_name", None) if self._responses else None
        return self._streamed and by not in (None, "test", "function")

    def _with_value(self, reply: AgentReply, output: Mapping[str, Any]) -> AgentReply:
        """The reply with the value that the model submitted.

        pydantic-ai also accepts values anywhere within a text. handrail parses such a text itself,
        and takes the last value that fits.
        """
        called = any(part.part_kind == "tool-call" for part in self._responses[-1].parts)
        if not called and _json(self.text) != output:
            return reply
        if self._wrapped and set(output) != {"value"}:
            return reply if reply.text else replace(reply, text=_to_json(output))
        value = output["value"] if self._wrapped else output
        return replace(reply, text=_to_json(value), value=value, has_value=True)

    def _without_result(self, error: Exception) -> AgentReply:
        """The text of a model that wrote its value as text instead of submitting it.

        Raises:
            AgentError: for any other failure, with its kind.
        """
        if isinstance(error, (AgentError, MissingExtra)):
            raise error
        diagnosis = diagnose(error, None if self.turn.now is None else self.turn.now())
        if diagnosis.kind == "invalid_output" and self.turn.schema is not None and self.text:
            return self._reply(self.text)
        self._count()
        failed = self.failed(diagnosis, Ending(None))
        failed.hint = hint_of(diagnosis)
        raise failed from error

    def updated_session(self) -> Session:
        """The session with this turn; without messages that no model has seen yet."""
        if self._run is None or not self._responses:
            return self._earlier
        messages = list(self._run.all_messages())
        while messages and messages[-1].kind != "response":
            messages.pop()
        self._count()
        return Session(self._earlier.id, tuple(messages), self.session_usage)

    def _count(self) -> None:
        """Take the usage so far from the run."""
        if self._run is None:
            return
        self.usage = usage_of(self._run.usage, self.model)
        earlier = self.turn.session_usage or self._earlier.usage
        is_known = earlier is not None or not self._earlier.messages
        self.session_usage = add_usage(earlier, self.usage) if is_known and self.usage else None


def _to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _text(parts: Iterable[Any]) -> str:
    return "".join(part.content for part in parts if part.part_kind == "text")


def _json(args: Any) -> Any:
    """The arguments of a call as data; the text itself if it is not JSON."""
    if not isinstance(args, str):
        return args
    try:
        return json.loads(args)
    except ValueError:
        return args


KEPT = 1_000
"""How many sessions are kept: the last used ones."""


@dataclass(frozen=True, slots=True)
class Session:
    """A session: its id, the messages so far, and their usage."""

    id: str
    messages: tuple[Any, ...] = ()
    usage: Usage | None = None


class Sessions:
    """The sessions of one backend, for as long as it lives. Mutable."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Session] = OrderedDict()

    def begin(self) -> Session:
        """A new, empty session."""
        return Session(str(uuid.uuid4()))

    def find(self, id: str) -> Session | None:  # noqa: A002
        """The session with this id, if it is still kept."""
        return self._kept.get(id)

    def fork(self, session: Session) -> Session:
        """A new session with the same messages."""
        return Session(str(uuid.uuid4()), session.messages, session.usage)

    def keep(self, session: Session) -> None:
        """Keep the current state of a session; the least recently used one may be dropped."""
        self._kept[session.id] = session
        self._kept.move_to_end(session.id)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)


def library(name: str = "pydantic_ai") -> Any:
    """A module of pydantic-ai.

    Raises:
        MissingExtra: pydantic-ai is not installed.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "pydantic_ai":
            raise
        raise MissingExtra("ApiBackend", "pydantic-ai-slim", "api") from error


def _toolsets(servers: Mapping[str, Any], error: Callable[..., AgentError]) -> list[Any]:
    """The tools of MCP servers, each by the client of pydantic-ai's own extra."""
    if not servers:
        return []
    try:
        client: Any = import_module("fastmcp.client").Client
        make: Any = library("pydantic_ai.mcp").MCPToolset
    except ImportError:
        missing = error("not_installed", "mcp_servers of an ApiBackend need pydantic-ai's client")
        missing.hint = 'Install it: pip install "pydantic-ai-slim[mcp]".'
        raise missing from None
    return [make(client({"mcpServers": {name: dict(one)}})) for name, one in servers.items()]


def wrap_schema(schema: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """The schema, wrapped as the ``value`` of an object unless it is an object's already."""
    bare = {key: value for key, value in schema.items() if key != "$defs"}
    shared = {"$defs": schema["$defs"]} if "$defs" in schema else {}
    target: Mapping[str, Any] = bare
    if isinstance(reference := bare.get("$ref"), str):
        target = shared.get("$defs", {}).get(reference.rpartition("/")[2], {})
    if target.get("type") == "object":
        return {**bare, **shared}, False
    return {
        "type": "object",
        "properties": {"value": bare},
        "required": ["value"],
        "additionalProperties": False,
        **shared,
    }, True


def can_stream(model: Any) -> bool:
    """False only for models that cannot stream their answer."""
    inner = unwrap_model(model)
    if isinstance(inner, str):
        return True
    if hasattr(inner, "stream_function") and inner.stream_function is None:  # a FunctionModel
        return False
    plain = library("pydantic_ai.models").Model.request_stream
    return getattr(inner.__class__, "request_stream", plain) is not plain


def unwrap_model(model: Any) -> Any:
    """The innermost of models that wrap one another."""
    while (inner := getattr(model, "wrapped", None)) is not None:
        model = inner
    return model
