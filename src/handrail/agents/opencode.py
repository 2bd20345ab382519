"""opencode through the JSON events of ``opencode run``, one process a turn.

There is no last event: a turn is over when a step has ended with ``stop`` and the program has
exited. opencode compacts a conversation that does not fit the model for ever, so the first such
error ends the turn. Tools are reported once they are done. An error is classified by its name, then
the API's status, then its words.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import ClassVar

import attrs

from handrail.agents.transport.cli import Lines, ProgramBackend, non_blank
from handrail.agents.transport.failures import (
    MAY_PASS,
    VAGUE,
    Diagnosis,
    better_kind,
    kind_of_status,
    rows,
)
from handrail.agents.transport.loose_json import (
    Object,
    count_in,
    number_in,
    object_in,
    text_in,
    whole_in,
)
from handrail.agents.transport.parser import Ending
from handrail.agents.transport.programs import OPENCODE
from handrail.agents.transport.reset_times import reset_time
from handrail.agents.transport.turn_state import EventReader
from handrail.errors import AgentErrorKind
from handrail.model.agent_options import AgentOptions
from handrail.model.events import (
    AgentCompaction,
    AgentMessage,
    AgentReasoning,
    AgentUsage,
    Notice,
)
from handrail.model.results import Usage
from handrail.ports.agent import AgentReply, AgentTurn, Capabilities


@attrs.frozen
class OpencodeBackend(ProgramBackend):
    """``opencode run`` with its JSON events, one process a turn; it continues sessions.

    Models are ``"provider/model"``. opencode denies whatever it would have to ask for, unless
    ``permission="full"``. It reports a tool once the tool is done, and nothing while it retries a
    request, which may last for ever. A blank prompt, which opencode refuses, is sent as
    ``Continue.``.
    """

    executable: str = "opencode"

    name: ClassVar[str] = "opencode-run"
    program = OPENCODE
    variables: ClassVar[Mapping[str, str]] = {"OPENCODE_DISABLE_AUTOUPDATE": "1", "NO_COLOR": "1"}
    capabilities: ClassVar[Capabilities] = Capabilities(
        options=frozenset({"model", "effort", "permission", "cwd", "env", "extra_args"}),
        permissions=frozenset({"full"}),
        sessions=True,
        fork=True,
        usage=True,
        cost=True,
        reset_times=True,
    )

    async def complete(self, turn: AgentTurn, /) -> AgentReply:
        """The last text of the turn, once the model ended a step as its last.

        Raises:
            AgentError: there was no such step; the error has the reason and its kind.
        """
        options = turn.options.over(self.options)
        argv = opencode_argv(self.executable, turn, options)
        parser = OpencodeParser(turn, model=options.profile_and_model[1])
        return await self._run(turn, argv, Lines(parser, non_blank(turn.prompt)))


def opencode_argv(executable: str, turn: AgentTurn, options: AgentOptions) -> list[str]:
    """The command line of one turn; the prompt goes to stdin."""
    _, model = options.profile_and_model
    argv = [executable, "run", "--format", "json", "--thinking"]
    argv += [] if model is None else ["-m", model]
    argv += [] if options.effort is None else ["--variant", options.effort]
    argv += ["--auto"] if options.permission == "full" else []
    if turn.session is not None:
        argv += ["-s", turn.session, *(["--fork"] if turn.fork else [])]
    return [*argv, *(options.extra_args or ())]


# The kind of a failure: by its name, then by the API's status and its words.

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
_ROWS = (
    *rows(
        {*VAGUE, "auth"},
        (
            "context_overflow",
            r"prompt is too long|context (?:length|window|limit)|maximum context",
        ),
    ),
    *rows(
        VAGUE,
        ("usage_cap", r"usage limit|daily (?:quota|limit)|quota will reset|per ?day"),
        ("rate_limit", r"retry in \d"),  # Google mentions billing then, too
    ),
    *rows(
        {*VAGUE, "auth"},
        (
            "spending_cap",
            r"\bcredits?\b|billing|quota exceeded|insufficient[_ ](?:quota|balance|funds)",
            r"current quota",
        ),
    ),
)
_NETWORK = re.compile(r"unable to connect|fetch failed|socket|econn|timed? ?out|network|overloaded")


def diagnose(error: Object, now: float) -> Diagnosis:
    """The meaning of an error event's ``error``."""
    name, data = text_in(error, "name"), object_in(error, "data")
    said = text_in(data, "message") or text_in(error, "message")
    status = whole_in(data, "statusCode")
    kind = _NAMES.get(name) or better_kind(kind_of_status(status), said, _ROWS)
    if kind is None:
        is_unknown = name == "UnknownError" and not _NETWORK.search(said.lower())
        kind = "bad_request" if is_unknown else "transient"  # for example an unknown model
    at = retry_at_of(data, now) if kind in MAY_PASS else None
    return Diagnosis(kind, said or name or "no reason", at, status)


def retry_at_of(data: Object, now: float) -> float | None:
    """When a retry may work, by the response's headers, or else by its words."""
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


_ENDS: dict[str, AgentErrorKind] = {"length": "output_limit", "content-filter": "refusal"}
_DENIED = re.compile(r"rejected permission|user rejected|rule which prevents", re.IGNORECASE)
_REJECTED = re.compile(r"permission requested: (\S{1,80})(.{0,400}); auto-reject")
"""What it prints on stderr when it denies what it would have to ask for."""
_FAILED = frozenset({"error", "failed", "rejected", "denied", "cancelled"})


class OpencodeParser(EventReader):
    """Reads one turn of opencode. Mutable."""

    def __init__(self, turn: AgentTurn, *, model: str | None = None) -> None:
        super().__init__(turn, OPENCODE, backend="opencode-run", model=model)
        self._reported: set[str] = set()
        self._end = ""
        self._denied = ""
        self._told: Counter[bool] = Counter()
        self._error: Object | None = None
        self._overflow: Object | None = None

    @property
    def finished(self) -> bool:
        """True once the conversation is too long; otherwise only the exit ends a turn."""
        return self._overflow is not None

    def conclude(self, ending: Ending, /) -> AgentReply:
        """The answer, if the last step ended by itself.

        Raises:
            AgentError: it did not.
        """
        error = self._overflow or self._error
        if error is not None:
            raise self.failed(diagnose(error, ending.now), ending)
        if self._end == "stop":
            return self.reply(session_usage=self.summed_usage, stop_reason=self._end)
        if self._end in _ENDS:
            raise self.error(_ENDS[self._end], f"the model ended its answer with {self._end!r}")
        if self._denied and not ending.exit_code and ending.stopped is None:
            refused = self.error("config", f"opencode did not allow it to go on: {self._denied}")
            refused.hint = 'Allow it with permission="full", or in opencode\'s own configuration.'
            raise refused
        raise self.unfinished(ending)

    def read(self, name: str, event: Object) -> Iterator[Notice]:
        """The notices of an event; none for an event of another session, such as that of a
        sub-agent.
        """
        session, part = text_in(event, "sessionID"), object_in(event, "part")
        if session and self.session not in (None, session):
            return
        self.saw_protocol = self.saw_protocol or bool(session)
        yield from self.session_named(session)
        match name:
            case "step_start":
                self._end, self._error = "", None  # it continues
            case "text":
                yield from self._on_text(part)
            case "reasoning":
                if thought := text_in(part, "text"):
                    yield AgentReasoning(self.path, thought)
            case "tool_use":
                yield from self._on_tool(part)
            case "step_finish":
                yield from self._on_step_finished(part)
            case "error":
                said = {"message": text_in(event, "error")}
                self._error = object_in(event, "error") or said
                if text_in(self._error, "name") == "ContextOverflowError":
                    self._overflow = self._overflow or self._error
            case _:
                pass

    def _on_text(self, part: Object) -> Iterator[Notice]:
        text, ref = text_in(part, "text"), text_in(part, "id")
        if part.get("synthetic") is True:
            if object_in(part, "metadata").get("compaction_continue"):
                yield AgentCompaction(self.path, "completed")
        elif text and ref not in self._reported:
            self._reported.update({ref} if ref else ())
            self.text = text
            yield AgentMessage(self.path, text)

    def _on_tool(self, part: Object) -> Iterator[Notice]:
        """A tool that is done; opencode reports nothing of it before."""
        state = object_in(part, "state")
        ref, name = text_in(part, "callID"), text_in(part, "tool")
        status, code = text_in(state, "status"), whole_in(object_in(state, "metadata"), "exit")
        if status in ("pending", "running"):
            return
        is_ok = status not in _FAILED and code in (None, 0)
        output = text_in(state, "output", "error")
        is_denied = status in ("rejected", "denied") or _DENIED.search(output) is not None
        self._denied = (output or status) if not is_ok and is_denied else ""
        yield from self.tool_started(ref, name, state.get("input"))
        if self._denied:
            yield from self._rejected(name, output, on_stderr=False)
        yield from self.tool_ended(ref, is_ok=is_ok, output=output, code=code)

    def feed_stderr(self, line: bytes, /) -> Iterable[Notice]:
        """The notice of a tool that was rejected, if the tool itself has not told it."""
        if said := _REJECTED.search(line.decode("utf-8", "replace")):
            return tuple(self._rejected(said[1], said[2].strip(" ()"), on_stderr=True))
        return ()

    def _rejected(self, tool: str, reason: str, *, on_stderr: bool) -> Iterator[Notice]:
        """The notice of a rejected tool, once, though both its event and stderr tell it."""
        self._told[on_stderr] += 1
        if self._told[on_stderr] > self._told[not on_stderr]:
            yield self.denied(tool, reason)

    def _on_step_finished(self, part: Object) -> Iterator[Notice]:
        self._end = text_in(part, "reason")
        step = _usage(part)
        if step != Usage():
            self.usage = step if self.usage is None else self.usage + step
            yield AgentUsage(self.path, self.usage)


def _usage(part: Object) -> Usage:
    """What a step used; opencode counts cached tokens and reasoning besides the others."""
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
