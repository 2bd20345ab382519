"""opencode through the JSON events of ``opencode run``, a process a turn.

There is no last event: a turn is over when a step ended with ``stop`` and the program has gone. A
conversation that does not fit the model is compacted for ever, so the first such error is the end.
Tools are told when they are done. An error is known by its name, then the status of the API, then
its words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from email.utils import parsedate_to_datetime
from pathlib import Path

import attrs

from handrail.agents.transport.cli import (
    child_environment,
    home_of,
    json_file,
    probe_program,
    run_cli,
    unblank,
)
from handrail.agents.transport.failures import kind_of_status
from handrail.agents.transport.loose_json import (
    Object,
    count_in,
    number_in,
    object_in,
    object_of,
    text_in,
    whole_in,
)
from handrail.agents.transport.parser import Ending, kind_of_end, lost_session, words_of_end
from handrail.agents.transport.reset_times import reset_time
from handrail.errors import AgentErrorKind
from handrail.model.agent_options import NO_OPTIONS, AgentOptions
from handrail.model.events import (
    AgentCompaction,
    AgentMessage,
    AgentReasoning,
    AgentSessionStarted,
    AgentToolCompleted,
    AgentToolStarted,
    AgentUsage,
    Notice,
)
from handrail.model.launch import AgentError
from handrail.model.results import Usage
from handrail.ports.agent import AgentReply, AgentTurn, Capabilities, Probe

INSTALL = "npm install -g opencode-ai"

_QUIET = {"OPENCODE_DISABLE_AUTOUPDATE": "1", "NO_COLOR": "1"}


@attrs.frozen
class OpencodeBackend:
    """``opencode run`` with its JSON events, one process a turn; it goes on in sessions.

    ``options`` hold unless an agent or a step says otherwise; models are ``"provider/model"``. What
    it would have to ask for is denied, unless ``permission="full"``. It tells of a tool when that
    is done, and nothing while it tries a request again, which it may do for ever. A blank
    prompt, which opencode refuses, is sent as ``Continue.``.
    """

    executable: str = "opencode"
    options: AgentOptions = attrs.field(default=NO_OPTIONS, kw_only=True)

    @property
    def name(self) -> str:
        """``"opencode-run"``."""
        return "opencode-run"

    @property
    def capabilities(self) -> Capabilities:
        """Sessions, forks, tokens, costs and reset times; no schema."""
        return _CAPABILITIES

    async def complete(self, turn: AgentTurn, /) -> AgentReply:
        """The last text of the turn, after a step of which the model said that it was the last.

        Raises:
            AgentError: there was none, with the reason and its kind.
        """
        options = turn.options.over(self.options)
        return await run_cli(
            turn,
            opencode_argv(self.executable, turn, options),
            OpencodeParser(turn, model=options.profile_and_model[1]),
            stdin=unblank(turn.prompt),
            env=child_environment(options, add=_QUIET),
            cwd=options.cwd,
            options=options,
            program="opencode",
            install=INSTALL,
        )

    async def probe(self) -> Probe:
        """Whether opencode is there, its version, and whether it has a login."""
        return await probe_program(
            self.executable,
            child_environment(self.options, add=_QUIET),
            logged_in=opencode_logged_in,
            install=INSTALL,
            login="opencode auth login",
        )


_CAPABILITIES = Capabilities(
    options=frozenset({"model", "effort", "permission", "cwd", "env", "extra_args"}),
    permissions=frozenset({"full"}),
    sessions=True,
    fork=True,
    usage=True,
    cost=True,
    reset_times=True,
)


def opencode_argv(executable: str, turn: AgentTurn, options: AgentOptions) -> list[str]:
    """The arguments of one turn; the prompt goes to stdin."""
    _, model = options.profile_and_model
    argv = [executable, "run", "--format", "json", "--thinking"]
    argv += [] if model is None else ["-m", model]
    argv += [] if options.effort is None else ["--variant", options.effort]
    argv += ["--auto"] if options.permission == "full" else []
    if turn.session is not None:
        argv += ["-s", turn.session, *(["--fork"] if turn.fork else [])]
    return [*argv, *(options.extra_args or ())]


def opencode_logged_in(env: Mapping[str, str]) -> bool | None:
    """Whether opencode has a login; None if none is stored, for variables and settings may do."""
    data = Path(env.get("XDG_DATA_HOME") or home_of(env) / ".local" / "share")
    return True if json_file(data / "opencode" / "auth.json") else None


_ENDS: dict[str, AgentErrorKind] = {"length": "output_limit", "content-filter": "refusal"}
_DENIED = re.compile(r"rejected permission|user rejected|rule which prevents", re.IGNORECASE)


class OpencodeParser:
    """Reads one turn of opencode. Mutable."""

    open_tools = 0
    patience_s = 0.0

    def __init__(self, turn: AgentTurn, *, model: str | None = None) -> None:
        self._turn = turn
        self._model = model
        self._session: str | None = None
        self._text = ""
        self._told: set[str] = set()
        self._usage: Usage | None = None
        self._end = ""
        self._denied = ""
        self._error: Object | None = None
        self._overflow: Object | None = None

    @property
    def finished(self) -> bool:
        """True once the conversation was too long; else only its exit tells that it is done."""
        return self._overflow is not None

    def feed(self, line: bytes, /) -> Iterable[Notice]:
        """What a line means, in order."""
        event = object_of(line)
        if event is None or not text_in(event, "type") or self._is_of_other(event):
            return ()
        return tuple(self._read(text_in(event, "type"), event, object_in(event, "part")))

    def feed_stderr(self, _line: bytes, /) -> Iterable[Notice]:
        """Nothing: what matters there is looked at in the end."""
        return ()

    def conclude(self, ending: Ending, /) -> AgentReply:
        """The answer, if the last step ended by itself.

        Raises:
            AgentError: it did not.
        """
        error = self._overflow or self._error
        if error is not None:
            raise self._failed(error, ending)
        if self._end == "stop":
            return self._reply()
        if self._end in _ENDS:
            raise self._made(_ENDS[self._end], f"the model ended its answer with {self._end!r}")
        alive = self._session is not None
        lost = None if alive else lost_session(self._turn, ending, "opencode", NO_SESSION)
        if lost is not None:
            raise lost
        if self._denied and not ending.exit_code and ending.stopped is None:
            refused = self._made("config", f"opencode did not allow it to go on: {self._denied}")
            refused.hint = 'Allow it with permission="full", or in opencode\'s own configuration.'
            raise refused
        kind = kind_of_end(ending, alive=alive)
        raise self._made(kind, words_of_end("opencode", ending, alive=alive))

    def _reply(self) -> AgentReply:
        before = self._turn.session_usage if self._turn.session is not None else Usage()
        usage = self._usage
        return AgentReply(
            self._text,
            model=self._model,
            session=self._session,
            usage=usage,
            session_usage=None if before is None or usage is None else before + usage,
            stop_reason=self._end,
        )

    def _failed(self, error: Object, ending: Ending) -> AgentError:
        data, kind = object_in(error, "data"), kind_of_error(error)
        if kind == "interrupted" and ending.stopped is not None:
            kind = kind_of_end(ending, alive=True)
        made = self._made(kind, message_of(error) or text_in(error, "name") or "no reason")
        made.http_status = whole_in(data, "statusCode")
        made.retry_at = retry_at_of(data, ending.now) if kind in MAY_PASS else None
        return made

    def _made(self, kind: AgentErrorKind, reason: str) -> AgentError:
        return AgentError(
            self._turn.agent,
            reason,
            kind=kind,
            session=self._session or (None if self._turn.fork else self._turn.session),
            text=self._text,
            usage=self._usage,
            model=self._model,
            hint=HINTS.get(kind, ""),
        )

    def _read(self, name: str, event: Object, part: Object) -> Iterator[Notice]:
        path = self._turn.path
        yield from self._session_known(event)
        match name:
            case "step_start":
                self._end, self._error = "", None  # it goes on
            case "text":
                yield from self._said(part)
            case "reasoning":
                if thought := text_in(part, "text"):
                    yield AgentReasoning(path, thought)
            case "tool_use":
                yield from self._tool(part)
            case "step_finish":
                yield from self._step_done(part)
            case "error":
                said = {"message": text_in(event, "error")}
                self._error = object_in(event, "error") or said
                if text_in(self._error, "name") == "ContextOverflowError":
                    self._overflow = self._overflow or self._error
            case _:
                pass

    def _is_of_other(self, event: Object) -> bool:
        """True for what another session says, such as that of an agent which this one started."""
        session = text_in(event, "sessionID")
        return bool(session) and self._session is not None and session != self._session

    def _session_known(self, event: Object) -> Iterator[Notice]:
        session = text_in(event, "sessionID")
        if session and self._session is None:
            self._session = session
            yield AgentSessionStarted(self._turn.path, session, "opencode-run", self._model)

    def _said(self, part: Object) -> Iterator[Notice]:
        text, ref = text_in(part, "text"), text_in(part, "id")
        if part.get("synthetic") is True:
            if object_in(part, "metadata").get("compaction_continue"):
                yield AgentCompaction(self._turn.path, "completed")
        elif text and ref not in self._told:
            self._told.update({ref} if ref else ())
            self._text = text
            yield AgentMessage(self._turn.path, text)

    def _tool(self, part: Object) -> Iterator[Notice]:
        state = object_in(part, "state")
        ref, name = text_in(part, "callID"), text_in(part, "tool")
        status, code = text_in(state, "status"), whole_in(object_in(state, "metadata"), "exit")
        if status in ("pending", "running") or ref in self._told:
            return
        self._told.update({ref} if ref else ())
        is_ok = status != "error" and code in (None, 0)
        output = text_in(state, "output", "error")
        self._denied = output if not is_ok and _DENIED.search(output) else ""
        yield AgentToolStarted(self._turn.path, ref, name, state.get("input"))
        yield AgentToolCompleted(self._turn.path, ref, name, is_ok, output, code)

    def _step_done(self, part: Object) -> Iterator[Notice]:
        self._end = text_in(part, "reason")
        step = _usage(part)
        if step != Usage():
            self._usage = step if self._usage is None else self._usage + step
            yield AgentUsage(self._turn.path, self._usage)


def _usage(part: Object) -> Usage:
    """What a step used; opencode tells cached tokens and thoughts besides the others."""
    tokens = object_in(part, "tokens")
    cache, cost = object_in(tokens, "cache"), number_in(part, "cost")
    read, written = count_in(cache, "read"), count_in(cache, "write")
    thoughts = count_in(tokens, "reasoning")
    return Usage(
        input_tokens=_sum(count_in(tokens, "input"), read, written),
        output_tokens=_sum(count_in(tokens, "output"), thoughts),
        cost_usd=cost,
        cached_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=thoughts,
        cost_source=None if cost is None else "reply",
    )


def _sum(count: int | None, *more: int | None) -> int | None:
    return None if count is None else count + sum(one or 0 for one in more)


HINTS: dict[AgentErrorKind, str] = {
    "auth": "Run `opencode auth login`.",
    "spending_cap": "Add credits to the provider's account.",
    "config": "Compare the arguments with `opencode run --help`.",
}

_NAMES: dict[str, AgentErrorKind] = {
    "ContextOverflowError": "context_overflow",
    "ProviderAuthError": "auth",
    "MessageOutputLengthError": "output_limit",
    "MessageAbortedError": "interrupted",
    "ProviderModelNotFoundError": "bad_request",
    "ProviderInitError": "config",
    "ConfigInvalidError": "config",
    "ConfigJsonError": "config",
}
NO_SESSION = re.compile(r"session not found", re.IGNORECASE)
"""How opencode says that it does not have a session."""
_OVERFLOW = re.compile(r"prompt is too long|context (?:length|window|limit)|maximum context")
_WAIT = re.compile(r"retry in \d")  # Google speaks of billing then too
_CAP = re.compile(r"usage limit|daily (?:quota|limit)|quota will reset|per ?day")
_CREDIT = re.compile(
    r"\bcredits?\b|billing|quota exceeded|insufficient[_ ](?:quota|balance|funds)|current quota"
)
_NETWORK = re.compile(r"unable to connect|fetch failed|socket|econn|timed? ?out|network|overloaded")
_VAGUE = frozenset({None, "bad_request", "rate_limit", "auth"})
"""What words may say more exactly."""
MAY_PASS: frozenset[AgentErrorKind] = frozenset({"rate_limit", "usage_cap", "transient"})
"""Kinds of failures that may be over some time."""


def kind_of_error(error: Object) -> AgentErrorKind:
    """The kind of an error event's ``error``."""
    name, data = text_in(error, "name"), object_in(error, "data")
    if name in _NAMES:
        return _NAMES[name]
    kind = kind_of_status(whole_in(data, "statusCode"))
    said = message_of(error).lower()
    if kind in _VAGUE and (worded := _worded(said, kind)) is not None:
        return worded
    if name == "UnknownError" and not _NETWORK.search(said):
        return kind or "bad_request"  # such as a model that is not known
    return kind or "transient"


def message_of(error: Object) -> str:
    """What an error says in words; empty if nothing."""
    return text_in(object_in(error, "data"), "message") or text_in(error, "message")


def _worded(said: str, kind: AgentErrorKind | None) -> AgentErrorKind | None:
    if _OVERFLOW.search(said):
        return "context_overflow"
    if kind != "auth" and _CAP.search(said):
        return "usage_cap"
    if kind != "auth" and _WAIT.search(said):
        return "rate_limit"
    return "spending_cap" if _CREDIT.search(said) else None


def retry_at_of(data: Object, now: float) -> float | None:
    """When to try again, by the answer's headers, else by its words."""
    given = {key.lower(): one for key, one in object_in(data, "responseHeaders").items()}
    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        if (after := _number(given.get(name))) is not None:
            return now + after * unit_s
    date = _date(given.get("retry-after"))
    return reset_time(text_in(data, "message"), now) if date is None else date


def _number(value: object) -> float | None:
    text = str(value).strip()
    return float(text) if re.fullmatch(r"\d{1,9}(?:\.\d{1,6})?", text) else None


def _date(value: object) -> float | None:
    try:
        return parsedate_to_datetime(value).timestamp() if isinstance(value, str) else None
    except (ValueError, OverflowError, OSError):
        return None
