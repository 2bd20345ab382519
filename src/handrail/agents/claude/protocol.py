"""Reads the output of ``claude -p --output-format stream-json --verbose`` for one turn.

Only a ``result`` ends a turn, and not every result does (``turn_end``). It is a success only if its
subtype says so, nothing flags an error, and the last assistant line was no error. An interrupted
claude exits with 0 and may print no result; after an API failure the result is
``"subtype": "success", "is_error": true``. While a command or a sub-agent runs in the background,
claude prints a result, waits, and begins again (``init``) when it ends; 2.1.197 ends it after 5 s.
The first result of a resumed session may only tell of such work that died: it counts no turns. But
an interruption right after a success does not undo that success.

Source: measured with claude 2.1.197, 2.1.330 and 2.1.332; enumerations from its program text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, ClassVar, Literal

from handrail.agents.claude.errors import (
    ABORTED,
    UNDONE,
    Failure,
    diagnose,
    is_complaint,
    is_unknown_session,
    is_used_up,
    kind_of,
    limit_of,
    resets_at,
)
from handrail.agents.claude.usage import KnownInput, session_usage, turn_usage
from handrail.agents.transport.loose_json import (
    NOTHING,
    Object,
    as_object,
    count_in,
    list_in,
    number_in,
    object_in,
    objects_in,
    text_in,
    whole_in,
)
from handrail.agents.transport.parser import Ending
from handrail.agents.transport.programs import CLAUDE
from handrail.agents.transport.turn_state import EventReader, TurnState
from handrail.errors import AgentErrorKind
from handrail.model.dataclass import dataclass
from handrail.model.events import AgentCompaction, AgentMessage, AgentReasoning, AgentRetry, Notice
from handrail.model.launch import AgentError
from handrail.model.results import Usage, add_usage
from handrail.ports.agent import AgentReply, AgentTurn
from handrail.shortening import shortened

_USES = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})
_SHELLS = frozenset({"Bash", "PowerShell"})
_WRITERS = frozenset({"Write", "Edit", "MultiEdit", "NotebookEdit"})
_EXIT_CODE = re.compile(r"(?:Error: )?Exit code (\d{1,3})\b")


class ClaudeMessages:
    """Reads the messages of a turn. Mutable.

    ``model`` is the one that spoke last. Of a sub-agent only tools are reported: its words are for
    the agent that started it, and are not that agent's answer. Text that was streamed in pieces is
    not reported again when it comes whole.
    """

    def __init__(self, state: TurnState) -> None:
        self.model: str | None = None
        self._state = state
        self._given: dict[str, Object] = {}
        self._reported: set[int] = set()
        self._answered: set[int] = set()
        self._blocks: set[tuple[str, str, int]] = set()
        self._denied: set[str] = set()
        self._input = KnownInput()
        self._pieces = {"text": _Pieces(), "thinking": _Pieces()}

    @property
    def known_usage(self) -> Usage | None:
        """The usage known so far, for a turn without a result."""
        return self._input.usage

    def close(self) -> None:
        """Forget open tools and pieces: the turn is over, also for those that reported no end."""
        self._state.close_tools()
        self._blocks.clear()
        for pieces in self._pieces.values():
            pieces.forget()

    def assistant(self, event: Object) -> Iterator[Notice]:
        """The notices of a message, or of a block of one."""
        message = object_in(event, "message")
        is_main = not text_in(event, "parent_tool_use_id")
        usage = object_in(message, "usage")
        is_new = bool(usage) and self._input.take(text_in(message, "id"), usage)
        if is_main:
            self.model = self._state.model = text_in(message, "model") or self._state.model
        if said := text_in(message, "content"):
            yield from self._on_text("text", said, is_main=is_main)
        for block in objects_in(message, "content"):
            kind = text_in(block, "type")
            if kind in _USES:
                yield from self._on_tool_use(block)
            elif kind.endswith("_result"):
                yield from self._on_tool_result(block, NOTHING)
            elif kind in self._pieces and not self._repeats(text_in(message, "id"), block):
                yield from self._on_text(kind, text_in(block, kind), is_main=is_main)
        if is_main and is_new:
            self._state.calls += 1
            yield from self._state.used(self.known_usage)

    def user(self, blocks: Iterable[Object], details: Object) -> Iterator[Notice]:
        """The notices of tool results; ``details`` are of the only one."""
        results = [block for block in blocks if text_in(block, "type") == "tool_result"]
        for block in results:
            yield from self._on_tool_result(block, details if len(results) == 1 else NOTHING)

    def piece(self, event: Object) -> Iterator[Notice]:
        """The notice of a piece of a message, which precedes the whole message."""
        if text_in(event, "parent_tool_use_id"):
            return
        raw = object_in(event, "event")
        match text_in(raw, "type"):
            case "message_start":
                for pieces in self._pieces.values():
                    pieces.forget()
            case "content_block_start":
                for pieces in self._pieces.values():
                    pieces.next_block()
            case "content_block_delta":
                delta = object_in(raw, "delta")
                for kind, pieces in self._pieces.items():
                    if text_in(delta, "type") == f"{kind}_delta" and (said := text_in(delta, kind)):
                        pieces.add(said)
                        yield self._notice(kind, said)
            case _:
                pass

    def denied(self, event: Object) -> Iterator[Notice]:
        """The notice that a tool was denied, once for each tool use."""
        use, tool = text_in(event, "tool_use_id"), text_in(event, "tool_name")
        if use and use in self._denied:
            return
        self._denied.add(use)
        yield self._state.denied(tool, text_in(event, "decision_reason", "message"))

    def answer(self, said: str) -> Iterator[Notice]:
        """The answer as the result repeats it, unless it was reported before."""
        if said.strip() and hash(said.strip()) not in self._reported:
            self._reported.add(hash(said.strip()))
            self._answered.add(hash(said.strip()))
            yield AgentMessage(self._state.path, said)

    def _repeats(self, message: str, block: Object) -> bool:
        """True if this block was printed before; some versions print all blocks again."""
        kind = text_in(block, "type")
        key = (message, kind, hash(text_in(block, kind)))
        is_known = bool(message) and key in self._blocks
        self._blocks.add(key)
        return is_known

    def _on_text(self, kind: str, said: str, *, is_main: bool) -> Iterator[Notice]:
        if not is_main or not said:
            return
        if kind == "text":
            self._state.text = said
            self._reported.add(hash(said.strip()))
            if hash(said.strip()) in self._answered:  # the result preceded its message
                self._answered.discard(hash(said.strip()))
                return
        if rest := self._pieces[kind].missing(said):
            yield self._notice(kind, rest)

    def _notice(self, kind: str, said: str) -> Notice:
        path = self._state.path
        return AgentMessage(path, said) if kind == "text" else AgentReasoning(path, said)

    def _on_tool_use(self, block: Object) -> Iterator[Notice]:
        use, given = text_in(block, "id"), block.get("input")
        self._given.setdefault(use, as_object(given))
        return self._state.tool_started(use, text_in(block, "name"), given)

    def _on_tool_result(self, block: Object, details: Object) -> Iterator[Notice]:
        use = text_in(block, "tool_use_id")
        name, given = self._state.tool_of(use), self._given.get(use, NOTHING)
        is_ok, output = not block.get("is_error"), _output(block)
        if is_ok and name in _WRITERS and (file := text_in(given, "file_path", "notebook_path")):
            self._state.files_changed[file] = None
        code = _exit_code(name, output, details, is_ok=is_ok)
        yield from self._state.tool_ended(use, is_ok=is_ok, output=output, code=code)


class _Pieces:
    """Streamed pieces of blocks that have not arrived whole yet. Mutable."""

    def __init__(self) -> None:
        self._blocks: list[list[str]] = []
        self._is_new = True

    def add(self, piece: str) -> None:
        if self._is_new:
            self._blocks.append([])
            self._is_new = False
        self._blocks[-1].append(piece)

    def next_block(self) -> None:
        self._is_new = True

    def forget(self) -> None:
        self._blocks.clear()
        self._is_new = True

    def missing(self, whole: str) -> str:
        """The rest of a whole block that was not streamed in pieces before."""
        for index, block in enumerate(self._blocks):
            streamed = "".join(block)
            is_same = whole.strip() == streamed.strip()
            if is_same or whole.startswith(streamed):
                del self._blocks[: index + 1]
                self._is_new = True
                return "" if is_same else whole[len(streamed) :]
        return whole


def _output(block: Object) -> str:
    if said := text_in(block, "content"):
        return said
    parts = (part if isinstance(part, str) else _part(part) for part in list_in(block, "content"))
    return "\n".join(part for part in parts if part)


def _part(part: object) -> str:
    block = as_object(part)
    kind = text_in(block, "type")
    return text_in(block, "text") or (f"[{kind}]" if kind and kind != "text" else "")


def _exit_code(name: str, output: str, details: Object, *, is_ok: bool) -> int | None:
    """A command's exit code; claude reports it only for failed commands."""
    if name not in _SHELLS:
        return None
    if (code := whole_in(details, "exitCode")) is not None:
        return code
    if not is_ok:
        found = _EXIT_CODE.match(output)
        return int(found[1]) if found else None
    in_background = text_in(details, "backgroundTaskId") or details.get("interrupted") is True
    return None if in_background else 0


_UNKNOWN_COMMAND = re.compile(r"Unknown (?:slash )?command: /?\S")
_DIAGNOSTIC = "[ede_diagnostic]"  # for claude's own developers


@dataclass(frozen=True, slots=True)
class EarlierReports:
    """Earlier reports of a turn that affect the meaning of its result.

    ``complaint`` is the last assistant line if it was an error, ``window`` the plan's window that
    is used up. ``was_interrupted``: a line said that the turn was interrupted. ``text`` is what the
    model said last.
    """

    complaint: Object
    window: Object
    was_interrupted: bool
    text: str = ""


def failure_of(result: Object, earlier: EarlierReports) -> Failure | None:
    """Why a result is no success; None if it is a success."""
    subtype, terminal = text_in(result, "subtype"), text_in(result, "terminal_reason")
    is_whole = subtype == "success" and not result.get("is_error") and terminal not in UNDONE
    is_refused = text_in(result, "stop_reason") == "refusal"
    is_answer = not earlier.complaint and not _is_complaint(result, earlier)
    if is_whole and is_answer and not is_refused and not _is_unknown_command(result):
        return None
    if earlier.was_interrupted and subtype == "error_during_execution" and not earlier.complaint:
        terminal = terminal if terminal in ABORTED else "aborted_streaming"
    return collect_failure(result, earlier, subtype=subtype, terminal=terminal)


def collect_failure(
    result: Object, earlier: EarlierReports, *, subtype: str = "", terminal: str = ""
) -> Failure:
    """The fields of a failure, from the result and the assistant line before it."""
    said = earlier.complaint
    message, params = object_in(said, "message"), object_in(said, "api_error_params")
    window = earlier.window or object_in(params, "rate_limit_info")
    status = whole_in(result, "api_error_status")
    stops = (text_in(result, "stop_reason"), text_in(message, "stop_reason"))
    return Failure(
        text=_sentence(result) or _sentence_of(message),
        subtype=subtype,
        terminal_reason=terminal,
        stop_reason="refusal" if "refusal" in stops else stops[0] or stops[1],
        error=text_in(said, "error"),
        api_error=text_in(result, "api_error") or text_in(said, "api_error"),
        api_error_type=text_in(result, "api_error_type") or text_in(said, "api_error_type"),
        cut=text_in(params, "cut"),
        status=whole_in(said, "api_error_status") if status is None else status,
        is_capped=is_used_up(window),
        resets_at=resets_at(window) if is_used_up(window) else None,
    )


def _is_complaint(result: Object, earlier: EarlierReports) -> bool:
    """True if claude itself wrote the answer to report a failure; older versions do not flag it."""
    said = text_in(result, "result")
    return is_complaint(said) and said.strip() != earlier.text.strip()


def _is_unknown_command(result: Object) -> bool:
    """True if claude took the prompt for a command, knows no such command, and asked no model."""
    said = text_in(result, "result")
    return result.get("num_turns") == 0 and _UNKNOWN_COMMAND.match(said) is not None


def _sentence(result: Object) -> str:
    """The result's own words: its text, or else its errors."""
    if said := text_in(result, "result").strip():
        return said
    errors = (one for one in list_in(result, "errors") if isinstance(one, str))
    return "; ".join(error for error in errors if not error.startswith(_DIAGNOSTIC))


def _sentence_of(message: Object) -> str:
    blocks = (text_in(block, "text") for block in objects_in(message, "content"))
    return text_in(message, "content") or "\n".join(text for text in blocks if text)


_SYNTHETIC = "<synthetic>"
_INTERRUPTED = "[Request interrupted by user"
_AT_WORK = frozenset({"pending", "queued", "running", "paused"})
_REASON_CHARS = 1_000


@dataclass(frozen=True, slots=True)
class _Outcome:
    """A result, and why it failed, or None if it succeeded."""

    result: Object
    failure: Failure | None


class ClaudeTurn(EventReader):
    """Reads one turn of claude. Mutable."""

    def __init__(self, turn: AgentTurn) -> None:
        super().__init__(turn, CLAUDE)
        self.session_usage = turn.session_usage
        self._messages = ClaudeMessages(self)
        self._tasks: dict[str, str] = {}  # by the tool that started each
        self._last_result: Object | None = None
        self._complaint: Object = NOTHING  # the last assistant line, if it was an error
        self._window: Object = NOTHING  # the plan's window, if it is used up
        self._retry = ""
        self._compacting: Literal["no", "begun", "done", "reported"] = "no"
        self._has_compacted = False
        self._was_interrupted = False

    @property
    def finished(self) -> bool:
        """True once a result has ended the turn and no other work has begun."""
        return self.end.is_reached

    @property
    def open_tools(self) -> int:
        """How many tools are running, and tasks in the background, of those reported."""
        return super().open_tools + len(self.end.background)

    def conclude(self, ending: Ending, /) -> AgentReply:
        """The answer, if a result reported success.

        Raises:
            AgentError: no result did.
        """
        outcome: _Outcome | None = self.end.outcome
        if outcome is None:
            raise self.unfinished(ending)
        result, failure = outcome.result, outcome.failure
        self.model = self._model_of(result)
        if failure is not None:
            raise self._failed(failure, ending)
        prompt = self.turn.prompt.strip()
        is_command = prompt.startswith("/") and prompt != "/compact"
        if is_command and count_in(result, "num_turns") == 0:
            name, said = prompt.split()[0], text_in(result, "result").strip()
            why = f"claude took the prompt for a command of its own ({name}), and asked no model"
            error = self.error("bad_request", f"{why}: {said}" if said else why)
            error.hint = "Begin the prompt with another character than a slash."
            raise error
        value: Any = result.get("structured_output")
        return self.reply(
            text=text_in(result, "result") or self.text,
            session=self.known_session or text_in(result, "session_id") or None,
            value=value,
            has_value=value is not None,
            stop_reason=text_in(result, "stop_reason", "terminal_reason") or None,
        )

    # -- events ----------------------------------------------------------------------------------

    def read(self, name: str, event: Object) -> Iterator[Notice]:
        """The notices of an event, in order."""
        if name:
            self.saw_protocol, self.extra_silence_s, self._retry = True, 0.0, ""
        read = self._readers.get(name)
        return iter(()) if read is None else read(self, event)

    def _system(self, event: Object) -> Iterator[Notice]:
        read = self._system_readers.get(text_in(event, "subtype"))
        return iter(()) if read is None else read(self, event)

    def _init(self, event: Object) -> Iterator[Notice]:
        self.end.went_on()
        self.model = text_in(event, "model") or self.model
        self.version = text_in(event, "claude_code_version") or self.version
        return self.session_named(text_in(event, "session_id"))

    def _on_session(self, event: Object) -> Iterator[Notice]:
        """The session, if another event comes before the one that usually reports it."""
        if not self.is_session_reported:
            yield from self.session_named(text_in(event, "session_id"))

    def _assistant(self, event: Object) -> Iterator[Notice]:
        self.end.went_on()
        is_main = not text_in(event, "parent_tool_use_id")
        yield from self._on_session(event)
        if self._compacting == "done":
            yield from self._compaction_notices(NOTHING)
        is_error = event.get("is_api_error_message") is True
        is_synthetic = is_error or text_in(object_in(event, "message"), "model") == _SYNTHETIC
        if is_main:
            self._complaint = event if is_error or text_in(event, "error") else NOTHING
            self._was_interrupted = False
        if not is_synthetic:
            yield from self._messages.assistant(event)

    def _user(self, event: Object) -> Iterator[Notice]:
        if event.get("isReplay") is True:
            return
        message = object_in(event, "message")
        blocks = objects_in(message, "content")
        said = [text_in(message, "content"), *[text_in(block, "text") for block in blocks]]
        is_interruption = any(text.startswith(_INTERRUPTED) for text in said)
        if not is_interruption:
            self.end.went_on()
        details = object_in(event, "tool_use_result")
        yield from self._messages.user(blocks, details)
        if self._tasks:
            self._foreground_ended(blocks, details)
        if is_interruption and not text_in(event, "parent_tool_use_id"):
            self._was_interrupted = True

    def _foreground_ended(self, blocks: Iterable[Object], details: Object) -> None:
        """What a tool itself waited for has ended with it, whether or not that is told."""
        if not (text_in(details, "backgroundTaskId") or details.get("isAsync")):
            for block in blocks:
                task = self._tasks.get(text_in(block, "tool_use_id"), "")
                if self.end.background.get(task) is False:
                    del self.end.background[task]

    def _task_started(self, event: Object) -> Iterator[Notice]:
        if event.get("is_backgrounded") is not False:
            self.end.task_started(text_in(event, "task_id"))
            self._tasks[text_in(event, "tool_use_id")] = text_in(event, "task_id")
        return iter(())

    def _task_changed(self, event: Object) -> Iterator[Notice]:
        """A task was updated, or claude is notified of its end."""
        status = text_in(event, "status") or text_in(object_in(event, "patch"), "status")
        if status and status not in _AT_WORK:
            self.end.background.pop(text_in(event, "task_id"), None)
        return iter(())

    def _tasks_changed(self, event: Object) -> Iterator[Notice]:
        self.end.tasks_are(text_in(one, "task_id") for one in objects_in(event, "tasks"))
        return iter(())

    def _stream_event(self, event: Object) -> Iterator[Notice]:
        self.end.went_on()
        return self._messages.piece(event)

    def _api_retry(self, event: Object) -> Iterator[Notice]:
        self.end.went_on()
        delay_ms = number_in(event, "retry_delay_ms")
        delay_s = None if delay_ms is None or delay_ms < 0 else delay_ms / 1000
        status = whole_in(event, "error_status")
        self.extra_silence_s = delay_s or 0.0
        self._retry = text_in(event, "error") + (f" ({status})" if status else "")
        yield AgentRetry(self.path, count_in(event, "attempt"), delay_s, self._retry.strip())

    def _status(self, event: Object) -> Iterator[Notice]:
        yield from self._on_session(event)  # a compaction reports its session before ``init``
        outcome = text_in(event, "compact_result")
        if text_in(event, "status"):
            self.end.went_on()
        if text_in(event, "status") == "compacting" and self._compacting != "begun":
            self._compacting = "begun"
            yield AgentCompaction(self.path, "started")
        elif outcome == "success":  # reported with the counts that follow, unless they came before
            self._compacting = "no" if self._compacting == "reported" else "done"
        elif outcome:
            self._compacting = "no"
            yield AgentCompaction(self.path, "failed")

    def _compact_boundary(self, event: Object) -> Iterator[Notice]:
        if not text_in(event, "parent_tool_use_id"):
            yield from self._on_session(event)
            self._compacting, self._has_compacted = "done", True
            yield from self._compaction_notices(object_in(event, "compact_metadata"))
            self._compacting = "reported"

    def _compaction_notices(self, counts: Object) -> Iterator[Notice]:
        if self._compacting == "done":
            self._compacting = "no"
            before, after = count_in(counts, "pre_tokens"), count_in(counts, "post_tokens")
            yield AgentCompaction(self.path, "completed", before, after)

    def _permission_denied(self, event: Object) -> Iterator[Notice]:
        return self._messages.denied(event)

    def _rate_limit_event(self, event: Object) -> Iterator[Notice]:
        info = object_in(event, "rate_limit_info")
        if is_used_up(info):
            self._window = info
        elif text_in(info, "rateLimitType") == text_in(self._window, "rateLimitType"):
            self._window = NOTHING
        if (limit := limit_of(info, self.path)) is not None:
            yield limit

    def _result(self, event: Object) -> Iterator[Notice]:
        if self._last_result is not None and event == self._last_result:  # printed again
            self._conclude(event, failure_of(event, self._earlier))
            return
        failure = failure_of(event, self._earlier)
        if failure is None:
            yield from self._on_session(event)
        yield from self._compaction_notices(NOTHING)
        for denial in objects_in(event, "permission_denials"):
            yield from self._messages.denied(denial)
        self._count(event)
        if failure is None:
            yield from self._messages.answer(text_in(event, "result"))
        yield from self.used(self.usage)
        self._messages.close()
        self._last_result = event
        self._conclude(event, failure)

    def _conclude(self, result: Object, failure: Failure | None) -> None:
        """Take a result for the outcome, unless it is interim, or only tells of an interruption
        after a success.
        """
        earlier: _Outcome | None = self.end.outcome
        stopped = failure is not None and kind_of(failure) == "interrupted"
        if stopped and earlier is not None and earlier.failure is None:
            return
        is_command = self.turn.prompt.lstrip().startswith("/") or self._has_compacted
        asked_nobody = count_in(result, "num_turns") == 0 and not is_command
        is_open = bool(self.end.background) or bool(count_in(result, "queued_turn_count"))
        is_interim = failure is None and (is_open or asked_nobody)
        self.end.resulted(_Outcome(result, failure), is_interim=is_interim)

    def _count(self, result: Object) -> None:
        is_second = self._last_result is not None
        resumed, before = self.turn.session is not None or is_second, self.session_usage
        used = turn_usage(result, before, resumed=resumed)
        self.session_usage = session_usage(result, before, used, resumed=resumed)
        self.usage = add_usage(self.usage, used)

    _readers: ClassVar[dict[str, Callable[[ClaudeTurn, Object], Iterator[Notice]]]] = {
        "system": _system,
        "assistant": _assistant,
        "user": _user,
        "stream_event": _stream_event,
        "rate_limit_event": _rate_limit_event,
        "result": _result,
    }
    _system_readers: ClassVar[dict[str, Callable[[ClaudeTurn, Object], Iterator[Notice]]]] = {
        "init": _init,
        "api_retry": _api_retry,
        "status": _status,
        "compact_boundary": _compact_boundary,
        "permission_denied": _permission_denied,
        "task_started": _task_started,
        "task_updated": _task_changed,
        "task_notification": _task_changed,
        "background_tasks_changed": _tasks_changed,
    }

    # -- conclusions -----------------------------------------------------------------------------

    def _failed(self, failure: Failure, ending: Ending) -> AgentError:
        """A failure that claude reported, unless handrail caused it."""
        diagnosis = diagnose(failure, ending.now)
        is_vague = diagnosis.kind == "crashed" and failure.subtype == "error_during_execution"
        if ending.stopped is not None and (diagnosis.kind == "interrupted" or is_vague):
            return self.stopped(ending)
        subtype = "" if failure.subtype == "success" else failure.subtype
        why = failure.terminal_reason or subtype or "it did not say why"
        silent = (
            "claude was interrupted" if diagnosis.kind == "interrupted" else f"claude failed: {why}"
        )
        error = self.failed(replace(diagnosis, reason=diagnosis.reason or silent), ending)
        if is_unknown_session(failure.text):
            error.session = None
            error.hint = "Begin a new session: claude keeps them for some weeks, on one machine."
        return error

    def unfinished(self, ending: Ending, kind: AgentErrorKind | None = None) -> AgentError:
        """The error of a turn without a result."""
        if self._complaint:
            return self._failed(collect_failure(NOTHING, self._earlier), ending)
        if ending.stopped is None and self._was_interrupted:
            return self.stopped(ending)
        error = super().unfinished(ending, kind)
        error.reason += f"; it was trying again: {self._retry}" if self._retry else ""
        if is_unknown_session(ending.stderr):
            error.kind, error.session = "bad_request", None
        return error

    def error(self, kind: AgentErrorKind | None, reason: str) -> AgentError:
        """A failure, with what is known of the turn, and what a person can do."""
        self.model = self._model_of(NOTHING)
        error = super().error(kind, shortened(reason, _REASON_CHARS))
        error.usage = self.usage or self._messages.known_usage
        return error

    @property
    def _earlier(self) -> EarlierReports:
        return EarlierReports(self._complaint, self._window, self._was_interrupted, self.text)

    def _model_of(self, result: Object) -> str | None:
        models = list(object_in(result, "modelUsage"))
        only = models[0] if len(models) == 1 else None
        return self._messages.model or self.model or only
