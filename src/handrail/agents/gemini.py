"""Google's Gemini CLI through its JSON events, a process a turn.

The last line is a ``result`` with a status. Messages come in pieces alone. While a request is tried
again nothing comes but a line on stderr. A failure is known by the API's own error inside its
message, else by its words.

Source: what gemini 0.61 printed, and its exit codes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import attrs

from handrail.agents.transport.cli import (
    added_folders,
    child_environment,
    home_of,
    json_file,
    private_files,
    probe_program,
    run_cli,
    unblank,
)
from handrail.agents.transport.failures import kind_of_status
from handrail.agents.transport.loose_json import (
    Object,
    as_object,
    count_in,
    json_value,
    object_in,
    object_of,
    text_in,
    whole_in,
)
from handrail.agents.transport.parser import Ending, kind_of_end, lost_session, words_of_end
from handrail.agents.transport.reset_times import reset_time
from handrail.errors import AgentErrorKind
from handrail.model.agent_options import NO_OPTIONS, PERMISSIONS, AgentOptions
from handrail.model.events import (
    AgentMessage,
    AgentRetry,
    AgentSessionStarted,
    AgentToolCompleted,
    AgentToolStarted,
    AgentUsage,
    Notice,
)
from handrail.model.launch import AgentError
from handrail.model.results import Usage
from handrail.ports.agent import AgentReply, AgentTurn, Capabilities, Probe

INSTALL = "npm install -g @google/gemini-cli"

_MODES = {"read_only": "default", "workspace": "auto_edit", "full": "yolo"}
_QUIET = {"GEMINI_CLI_NO_RELAUNCH": "true", "NO_COLOR": "1"}


@attrs.frozen
class GeminiBackend:
    """``gemini`` with its JSON events, one process a turn; it goes on in sessions.

    ``options`` hold unless an agent or a step says otherwise. It tells neither its thoughts nor
    costs, and is silent while it tries a request again: its idle timeout should not be short. A
    blank prompt, which gemini refuses, is sent as ``Continue.``.
    """

    executable: str = "gemini"
    options: AgentOptions = attrs.field(default=NO_OPTIONS, kw_only=True)

    @property
    def name(self) -> str:
        """``"gemini"``."""
        return "gemini"

    @property
    def capabilities(self) -> Capabilities:
        """Sessions, tokens and reset times; no schema, no cost."""
        return _CAPABILITIES

    async def complete(self, turn: AgentTurn, /) -> AgentReply:
        """The last message of the turn, after gemini said that it succeeded.

        Raises:
            AgentError: it did not, with the reason and its kind.
        """
        options = turn.options.over(self.options)
        system = options.system_prompt
        with private_files("gemini") as put:
            more = {} if system is None else {"GEMINI_SYSTEM_MD": put("system.md", system)}
            return await run_cli(
                turn,
                gemini_argv(self.executable, turn, options),
                GeminiParser(turn, model=options.profile_and_model[1]),
                stdin=unblank(turn.prompt),
                env=child_environment(options, add=_QUIET | more),
                cwd=options.cwd,
                options=options,
                program="gemini",
                install=INSTALL,
            )

    async def probe(self) -> Probe:
        """Whether gemini is there, its version, and whether it has a login."""
        return await probe_program(
            self.executable,
            child_environment(self.options, add=_QUIET),
            logged_in=gemini_logged_in,
            install=INSTALL,
            login="gemini, or set GEMINI_API_KEY",
        )


_CAPABILITIES = Capabilities(
    options=frozenset(
        {"model", "system_prompt", "permission", "cwd", "add_dirs", "env", "extra_args"}
    ),
    permissions=frozenset(PERMISSIONS),
    sessions=True,
    usage=True,
    reset_times=True,
)


def gemini_argv(executable: str, turn: AgentTurn, options: AgentOptions) -> list[str]:
    """The arguments of one turn; the prompt goes to stdin."""
    _, model = options.profile_and_model
    argv = [executable, "--output-format", "stream-json", "--skip-trust"]
    argv += [] if model is None else ["-m", model]
    if options.permission is not None:
        argv += ["--approval-mode", _MODES[options.permission]]
    for folder in added_folders(options):
        argv += ["--include-directories", folder]
    argv += [] if turn.session is None else [f"--resume={turn.session}"]
    return [*argv, *(options.extra_args or ())]


def gemini_logged_in(env: Mapping[str, str]) -> bool | None:
    """Whether gemini has a login, as far as files and variables tell."""
    names = ("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI")
    if any(env.get(name) for name in names):
        return True
    home = Path(env.get("GEMINI_CLI_HOME") or home_of(env)) / ".gemini"
    if json_file(home / "oauth_creds.json"):
        return True
    settings = json_file(home / "settings.json")
    # A chosen way to log in may keep its secret in a keychain, or in an .env file.
    return None if settings.get("security") or settings.get("selectedAuthType") else False


_ATTEMPT = re.compile(rb"Attempt (\d{1,6}) failed(.{0,400})")
_DELAY = re.compile(rb"Retrying after (\d{1,9})\s?ms")
_EMPTY = re.compile(r"returned an empty response with no text")
_BETWEEN = frozenset({"message", "tool_use", "tool_result"})
"""What ends a text if it comes in between; what is not known here does not."""


class GeminiParser:
    """Reads one turn of gemini. Mutable."""

    def __init__(self, turn: AgentTurn, *, model: str | None = None) -> None:
        self._turn = turn
        self._model = model
        self._session: str | None = None
        self._text = ""
        self._is_speaking = False
        self._complaint = ""
        self._has_worked = False
        self._tools: dict[str, str] = {}
        self._result: Object | None = None
        self._usage: Usage | None = None
        self._alive = False
        self.patience_s = 0.0

    @property
    def finished(self) -> bool:
        """True once the result was seen."""
        return self._result is not None

    @property
    def open_tools(self) -> int:
        """How many tools are at work."""
        return len(self._tools)

    def feed(self, line: bytes, /) -> Iterable[Notice]:
        """What a line means, in order."""
        event = object_of(line)
        name = text_in(event, "type") if event is not None else ""
        if event is None or not name:
            return ()
        self._alive, self.patience_s = True, 0.0
        is_piece = name == "message" and text_in(event, "role") == "assistant"
        notices = tuple(self._read(name, event))
        if name in _BETWEEN:
            self._is_speaking = is_piece
        return notices

    def feed_stderr(self, line: bytes, /) -> Iterable[Notice]:
        """A request that is tried again, and how long that is waited for."""
        if delay := _DELAY.search(line):
            self.patience_s = int(delay[1]) / 1000
        attempt = _ATTEMPT.search(line)
        if attempt is None:
            return ()
        reason = attempt[2].decode("utf-8", "replace").strip(" :.")
        return (AgentRetry(self._turn.path, int(attempt[1]), None, reason),)

    def conclude(self, ending: Ending, /) -> AgentReply:
        """The answer, if the result says so.

        Raises:
            AgentError: it does not, or there is none.
        """
        if self._result is None:
            raise self._unsaid(ending)
        succeeded = text_in(self._result, "status") == "success"
        if self._is_empty and (succeeded or _EMPTY.search(self._complaint)):
            raise self._error("refusal", f"gemini gave no answer{self._complained}")
        if succeeded:
            return self._reply()
        error = object_in(self._result, "error") or {
            "message": text_in(self._result, "error") or self._complaint
        }
        kind, status = kind_of_failure(error)
        if kind == "interrupted" and ending.stopped is not None:
            kind = kind_of_end(ending, alive=True)
        said = text_in(error, "message") or self._complaint
        api = api_error_of(said)
        reason = text_in(api, "message") or said or "gemini does not say why"
        failed = self._error(kind, reason)
        failed.http_status = status
        if kind in ("rate_limit", "usage_cap", "transient"):
            details = str(api.get("details"))[:2000]
            failed.retry_at = reset_time(reason, ending.now) or reset_time(details, ending.now)
        raise failed

    @property
    def _is_empty(self) -> bool:
        """True if the model was asked and said nothing at all, as of a prompt that is blocked."""
        counted = self._usage is not None and self._usage.output_tokens
        return not (self._text or self._has_worked or counted)

    @property
    def _complained(self) -> str:
        return f"; its last complaint: {self._complaint}" if self._complaint else ""

    def _reply(self) -> AgentReply:
        before = self._turn.session_usage if self._turn.session is not None else Usage()
        usage = self._usage
        return AgentReply(
            self._text,
            model=self._model,
            session=self._session,
            usage=usage,
            session_usage=None if before is None or usage is None else before + usage,
        )

    def _unsaid(self, ending: Ending) -> AgentError:
        lost = None if self._alive else lost_session(self._turn, ending, "gemini", NO_SESSION)
        if lost is not None:
            return lost
        known = EXITS.get(ending.exit_code or 0) if ending.stopped is None else None
        kind = known or kind_of_end(ending, alive=self._alive)
        words = words_of_end("gemini", ending, alive=self._alive)
        return self._error(kind, words + self._complained)

    def _error(self, kind: AgentErrorKind, reason: str) -> AgentError:
        return AgentError(
            self._turn.agent,
            reason,
            kind=kind,
            session=self._session or self._turn.session,
            text=self._text,
            usage=self._usage,
            model=self._model,
            hint=HINTS.get(kind, ""),
        )

    def _read(self, name: str, event: Object) -> Iterator[Notice]:
        path = self._turn.path
        match name:
            case "init":
                self._model = text_in(event, "model") or self._model
                session = text_in(event, "session_id")
                if session and self._session is None:
                    self._session = session
                    yield AgentSessionStarted(path, session, "gemini", self._model)
            case "message" if text_in(event, "role") == "assistant":
                yield from self._said(
                    text_in(event, "content"), is_whole=event.get("delta") is False
                )
            case "tool_use":
                if (ref := text_in(event, "tool_id")) not in self._tools or not ref:
                    yield self._tool(event)
            case "error":
                self._complaint = text_in(event, "message") or self._complaint
            case "tool_result":
                yield from self._tool_done(event)
            case "result":
                yield from self._over(event)
            case _:
                pass

    def _said(self, piece: str, *, is_whole: bool) -> Iterator[Notice]:
        if is_whole and self._is_speaking and piece == self._text:
            return  # its pieces were told
        if piece:
            goes_on = self._is_speaking and not is_whole
            self._text = self._text + piece if goes_on else piece
            yield AgentMessage(self._turn.path, piece)

    def _tool(self, event: Object) -> Notice:
        ref, name = text_in(event, "tool_id"), text_in(event, "tool_name")
        self._tools[ref] = name
        self._has_worked = True
        return AgentToolStarted(self._turn.path, ref, name, event.get("parameters"))

    def _tool_done(self, event: Object) -> Iterator[Notice]:
        ref = text_in(event, "tool_id")
        if ref not in self._tools:
            yield self._tool(event)
        name = self._tools.pop(ref, "")
        is_ok = text_in(event, "status") not in ("error", "failed", "cancelled")
        error = text_in(object_in(event, "error"), "message")
        yield AgentToolCompleted(
            self._turn.path, ref, name, is_ok, text_in(event, "output") or error
        )

    def _over(self, event: Object) -> Iterator[Notice]:
        self._result = event
        self._tools.clear()
        stats = object_in(event, "stats")
        told_in, told_out = count_in(stats, "input_tokens"), count_in(stats, "output_tokens")
        thoughts = (count_in(stats, "total_tokens") or 0) - (told_in or 0) - (told_out or 0)
        usage = Usage(  # thoughts are in the total alone
            input_tokens=told_in,
            output_tokens=None if told_out is None else told_out + max(thoughts, 0),
            cached_tokens=count_in(stats, "cached"),
            reasoning_tokens=thoughts if thoughts > 0 else None,
        )
        if usage != Usage():
            self._usage = usage
            yield AgentUsage(self._turn.path, usage)


EXITS: dict[int, AgentErrorKind] = {
    41: "auth",
    42: "config",
    44: "config",
    52: "config",
    53: "max_turns",
    130: "interrupted",
}
"""Exit codes that mean something; of a failed answer it is the HTTP status modulo 256."""

HINTS: dict[AgentErrorKind, str] = {
    "auth": "Run `gemini` and log in, or set GEMINI_API_KEY.",
    "spending_cap": "Check plan and billing of the account.",
    "config": "Compare the arguments with `gemini --help`.",
}

_TYPES: dict[str, AgentErrorKind] = {
    "FatalAuthenticationError": "auth",
    "FatalInputError": "config",
    "FatalSandboxError": "config",
    "FatalConfigError": "config",
    "FatalTurnLimitedError": "max_turns",
    "FatalCancellationError": "interrupted",
}
NO_SESSION = re.compile(r"error resuming session|no previous sessions", re.IGNORECASE)
"""How gemini says that it does not have a session."""
_API_ERROR = re.compile(r"^\[API Error: (.*)\]", re.DOTALL)  # advice may follow
_WORDS: tuple[tuple[AgentErrorKind, re.Pattern[str]], ...] = (
    (
        "spending_cap",
        re.compile(r"billing to be enabled|enable billing|billing is (?:not|disabled)"),
    ),
    (
        "auth",
        re.compile(
            r"api key not (?:valid|found)|api_key_invalid|permission_denied|unauthenticated"
        ),
    ),
    (
        "usage_cap",
        re.compile(r"daily quota|per ?day|daily limit|exhausted your capacity|quota will reset"),
    ),
    ("rate_limit", re.compile(r"retry in \d|retrydelay|per ?minute")),  # speaks of billing too
    ("spending_cap", re.compile(r"billing|prepayment|credits? (?:are|is) depleted|spending cap")),
    ("output_limit", re.compile(r"response was truncated")),  # speaks of the token limit too
    (
        "context_overflow",
        re.compile(r"exceeds the maximum number of tokens|context window|token limit"),
    ),
    ("rate_limit", re.compile(r"resource_exhausted|rate limit|too many requests|quota")),
    ("max_turns", re.compile(r"max(?:imum)? session turns|turn limit")),
    ("refusal", re.compile(r"prohibited|blocked (?:by safety|due to)|safety settings|recitation")),
    ("bad_request", re.compile(r"not found|not supported|invalid_argument")),
)


def api_error_of(message: str) -> Object:
    """The API's own error in a message, or an empty one. It may stand in another one's message."""
    found = _API_ERROR.match(message.strip())
    _, value = json_value(found[1]) if found else (False, None)
    outer = object_in(as_object(value), "error") or as_object(value)
    _, within = json_value(text_in(outer, "message"))
    return object_in(as_object(within), "error") or outer


def kind_of_failure(error: Object) -> tuple[AgentErrorKind, int | None]:
    """What the ``error`` of a result is, with its HTTP status if that is known."""
    message = text_in(error, "message")
    api = api_error_of(message)
    status = whole_in(api, "code")
    known = _TYPES.get(text_in(error, "type"))
    if known is not None:
        return known, status
    worded = _worded(message.lower())
    kind: AgentErrorKind = kind_of_status(status) or worded or "transient"
    if kind in ("bad_request", "rate_limit"):  # which words may say more exactly
        kind = worded or kind
    elif kind == "auth" and worded == "spending_cap":
        kind = worded
    return kind, status


def _worded(said: str) -> AgentErrorKind | None:
    return next((kind for kind, pattern in _WORDS if pattern.search(said)), None)
