"""Google's Gemini CLI through its JSON events, one process a turn.

The last line is a ``result`` with a status. Messages come in pieces only. While gemini retries a
request, it prints nothing but a line on stderr. A failure is classified by the API's own error in
its message, or else by its words.

Source: the output of gemini 0.61, and its exit codes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar

import attrs

from handrail.agents.transport.cli import (
    Lines,
    ProgramBackend,
    added_folders,
    non_blank,
    private_files,
)
from handrail.agents.transport.failures import (
    VAGUE,
    Diagnosis,
    better_kind,
    kind_of_status,
    reset_time_in,
    rows,
)
from handrail.agents.transport.loose_json import (
    Object,
    as_object,
    count_in,
    json_value,
    object_in,
    text_in,
    toml_value,
    whole_in,
)
from handrail.agents.transport.parser import Ending
from handrail.agents.transport.programs import GEMINI
from handrail.agents.transport.turn_state import EventReader
from handrail.errors import AgentErrorKind
from handrail.model.agent_options import PERMISSIONS, AgentOptions
from handrail.model.events import (
    AgentMessage,
    AgentRetry,
    AgentUsage,
    Notice,
)
from handrail.model.results import Usage
from handrail.ports.agent import AgentReply, AgentTurn, Capabilities

_MODES = {"read_only": "default", "workspace": "auto_edit", "full": "yolo"}


@attrs.frozen
class GeminiBackend(ProgramBackend):
    """``gemini`` with its JSON events, one process a turn; it continues sessions.

    Gemini reports neither reasoning nor costs, and is silent while it retries a request: its idle
    timeout should not be short. A blank prompt, which gemini refuses, is sent as ``Continue.``.
    """

    executable: str = "gemini"

    name: ClassVar[str] = "gemini"
    program = GEMINI
    variables: ClassVar[Mapping[str, str]] = {"GEMINI_CLI_NO_RELAUNCH": "true", "NO_COLOR": "1"}
    capabilities: ClassVar[Capabilities] = Capabilities(
        options=frozenset(
            {"model", "system_prompt", "permission", "tools", "cwd", "add_dirs", "env"}
            | {"extra_args"}
        ),
        permissions=frozenset(PERMISSIONS),
        sessions=True,
        usage=True,
        reset_times=True,
    )

    async def complete(self, turn: AgentTurn, /) -> AgentReply:
        """The last message of the turn, once gemini reported success.

        Raises:
            AgentError: it did not; the error has the reason and its kind.
        """
        options = turn.options.over(self.options)
        argv = gemini_argv(self.executable, turn, options)
        parser = GeminiParser(turn, model=options.profile_and_model[1])
        lines, system = Lines(parser, non_blank(turn.prompt)), options.system_prompt
        with private_files("gemini") as write_file:
            more = {} if system is None else {"GEMINI_SYSTEM_MD": write_file("system.md", system)}
            if options.tools is not None:
                argv += ["--policy", write_file("tools.toml", _policy(options))]
            return await self._run(turn, argv, lines, variables={**self.variables, **more})


_UNASKED = frozenset(
    {"glob", "google_web_search", "grep_search", "list_directory", "read_file", "read_many_files",
     "search_file_content", "update_topic", "write_todos"}
)  # fmt: skip
"""Tools that gemini uses at any level without asking."""


def _policy(options: AgentOptions) -> str:
    """Gemini's rules by which it has these tools alone, and asks for those it would ask for."""
    rules = ['[[rule]]\ntoolName = "*"\ndecision = "deny"\npriority = 900\n']
    writes = {"replace", "write_file"} if options.permission == "workspace" else frozenset[str]()
    for tool in options.tools or ():
        is_free = options.permission == "full" or tool in _UNASKED or tool in writes
        said = {"toolName": tool, "decision": "allow" if is_free else "ask_user", "priority": 950}
        rules.append("[[rule]]\n" + "".join(f"{k} = {toml_value(v)}\n" for k, v in said.items()))
    return "\n".join(rules)


def gemini_argv(executable: str, turn: AgentTurn, options: AgentOptions) -> list[str]:
    """The command line of one turn; the prompt goes to stdin."""
    _, model = options.profile_and_model
    argv = [executable, "--output-format", "stream-json", "--skip-trust"]
    argv += [] if model is None else ["-m", model]
    if options.permission is not None:
        argv += ["--approval-mode", _MODES[options.permission]]
    for folder in added_folders(options):
        argv += ["--include-directories", folder]
    argv += [] if turn.session is None else [f"--resume={turn.session}"]
    return [*argv, *(options.extra_args or ())]


# The kind of a failure: by gemini's type, or else by the API's status and words.

_EXITS: dict[int, AgentErrorKind] = {
    41: "auth",
    42: "config",
    44: "config",
    52: "config",
    53: "max_turns",
    130: "interrupted",
}
"""Exit codes with a meaning; after a failed answer it is the HTTP status modulo 256."""
_TYPES: dict[str, AgentErrorKind] = {
    "FatalAuthenticationError": "auth",
    "FatalInputError": "config",
    "FatalSandboxError": "config",
    "FatalConfigError": "config",
    "FatalTurnLimitedError": "max_turns",
    "FatalCancellationError": "interrupted",
}
_MONEY = r"billing to be enabled|enable billing|billing is (?:not|disabled)"
_ROWS = (
    *rows({"auth"}, ("spending_cap", _MONEY)),
    *rows(
        VAGUE,
        ("spending_cap", _MONEY),
        (
            "auth",
            r"api key not (?:valid|found)|api_key_invalid|permission_denied|unauthenticated",
        ),
        ("usage_cap", r"daily quota|per ?day|daily limit|exhausted your capacity|quota will reset"),
        ("rate_limit", r"retry in \d|retrydelay|per ?minute"),  # mentions billing, too
        ("spending_cap", r"billing|prepayment|credits? (?:are|is) depleted|spending cap"),
        ("output_limit", r"response was truncated"),  # mentions the token limit, too
        ("context_overflow", r"exceeds the maximum number of tokens|context window|token limit"),
        ("rate_limit", r"resource_exhausted|rate limit|too many requests|quota"),
        ("max_turns", r"max(?:imum)? session turns|turn limit"),
        ("refusal", r"prohibited|blocked (?:by safety|due to)|safety settings|recitation"),
        ("bad_request", r"not found|not supported|invalid_argument"),
    ),
)
_API_ERROR = re.compile(r"^\[API Error: (.*)\]", re.DOTALL)  # advice may follow


def diagnose(error: Object, now: float) -> Diagnosis:
    """The meaning of a result's ``error``."""
    message = text_in(error, "message")
    api = api_error_of(message)
    status = whole_in(api, "code")
    known = _TYPES.get(text_in(error, "type"))
    kind = known or better_kind(kind_of_status(status), message, _ROWS) or "transient"
    reason = text_in(api, "message") or message or "gemini does not say why"
    at = reset_time_in(kind, reason, now) or reset_time_in(
        kind, str(api.get("details"))[:2000], now
    )
    return Diagnosis(kind, reason, at, status)


def api_error_of(message: str) -> Object:
    """The API's own error in a message, or an empty one; it may be within another error."""
    found = _API_ERROR.match(message.strip())
    _, value = json_value(found[1]) if found else (False, None)
    outer = object_in(as_object(value), "error") or as_object(value)
    _, within = json_value(text_in(outer, "message"))
    return object_in(as_object(within), "error") or outer


_ATTEMPT = re.compile(rb"Attempt (\d{1,6}) failed(.{0,400})")
_DELAY = re.compile(rb"Retrying after (\d{1,9})\s?ms")
_EMPTY = re.compile(r"returned an empty response with no text")
_BETWEEN = frozenset({"message", "tool_use", "tool_result"})
"""Events that end a text between its pieces; unknown events do not."""
_WORK = _BETWEEN | {"init"}


class GeminiParser(EventReader):
    """Reads one turn of gemini. Mutable."""

    def __init__(self, turn: AgentTurn, *, model: str | None = None) -> None:
        super().__init__(turn, GEMINI, model=model)
        self._is_speaking = False
        self._has_worked = False

    @property
    def finished(self) -> bool:
        """True once gemini printed the result of its last work."""
        return self.end.is_reached

    def feed_stderr(self, line: bytes, /) -> Iterable[Notice]:
        """The notice of a retry of gemini's; its delay extends the patience."""
        if delay := _DELAY.search(line):
            self.extra_silence_s = int(delay[1]) / 1000
        attempt = _ATTEMPT.search(line)
        if attempt is None:
            return ()
        reason = attempt[2].decode("utf-8", "replace").strip(" :.")
        return (AgentRetry(self.path, int(attempt[1]), None, reason),)

    def conclude(self, ending: Ending, /) -> AgentReply:
        """The answer, if the result reports success.

        Raises:
            AgentError: it does not, or there is no result.
        """
        result: Object | None = self.end.outcome
        if result is None:
            known = _EXITS.get(ending.exit_code or 0) if ending.stopped is None else None
            raise self.unfinished(ending, known)
        succeeded = text_in(result, "status") == "success"
        if self._is_empty and (succeeded or _EMPTY.search(self.complaint)):
            said = f"; its last complaint: {self.complaint}" if self.complaint else ""
            raise self.error("refusal", f"gemini gave no answer{said}")
        if succeeded:
            return self.reply(session_usage=self.summed_usage)
        error = object_in(result, "error")
        said = text_in(error, "message") or text_in(result, "error") or self.complaint
        raise self.failed(diagnose({**error, "message": said}, ending.now), ending)

    @property
    def _is_empty(self) -> bool:
        """True if the model was asked and said nothing at all, as with a blocked prompt."""
        counted = self.usage is not None and self.usage.output_tokens
        return not (self.text or self._has_worked or counted)

    def read(self, name: str, event: Object) -> Iterator[Notice]:
        """The notices of an event; notes whether the model may continue its text after it."""
        self.saw_protocol, self.extra_silence_s = True, 0.0
        if name in _WORK:
            self.end.went_on()
        yield from self._read_event(name, event)
        if name in _BETWEEN:
            self._is_speaking = name == "message" and text_in(event, "role") == "assistant"

    def _read_event(self, name: str, event: Object) -> Iterator[Notice]:
        match name:
            case "init":
                self.model = text_in(event, "model") or self.model
                yield from self.session_named(text_in(event, "session_id"))
            case "message" if text_in(event, "role") == "assistant":
                yield from self._on_text(
                    text_in(event, "content"), is_whole=event.get("delta") is False
                )
            case "tool_use":
                yield from self._on_tool(event)
            case "error":
                self.complaint = text_in(event, "message") or self.complaint
            case "tool_result":
                yield from self._on_tool(event)
                is_ok = text_in(event, "status") not in ("error", "failed", "cancelled")
                output = text_in(event, "output") or text_in(object_in(event, "error"), "message")
                yield from self.tool_ended(text_in(event, "tool_id"), is_ok=is_ok, output=output)
            case "result":
                yield from self._on_result(event)
            case _:
                pass

    def _on_text(self, piece: str, *, is_whole: bool) -> Iterator[Notice]:
        if is_whole and self._is_speaking and piece == self.text:
            return  # its pieces were reported
        if piece:
            goes_on = self._is_speaking and not is_whole
            self.text = self.text + piece if goes_on else piece
            yield AgentMessage(self.path, piece)

    def _on_tool(self, event: Object) -> Iterator[Notice]:
        self._has_worked = True
        ref, name = text_in(event, "tool_id"), text_in(event, "tool_name")
        return self.tool_started(ref, name, event.get("parameters"))

    def _on_result(self, event: Object) -> Iterator[Notice]:
        self.end.resulted(event)
        self.close_tools()
        stats = object_in(event, "stats")
        told_in, told_out = count_in(stats, "input_tokens"), count_in(stats, "output_tokens")
        thoughts = (count_in(stats, "total_tokens") or 0) - (told_in or 0) - (told_out or 0)
        usage = Usage(  # only the total includes reasoning
            input_tokens=told_in,
            output_tokens=None if told_out is None else told_out + max(thoughts, 0),
            cached_tokens=count_in(stats, "cached"),
            reasoning_tokens=thoughts if thoughts > 0 else None,
        )
        if usage != Usage():
            self.usage = usage
            yield AgentUsage(self.path, usage)
