"""Reads the output of ``copilot --output-format json`` for one turn.

The last line is a ``result``. It has exit code 0 even if the turn was aborted. So success is a
``result`` of 0 with no ``abort``, and no ``session.error`` that the main agent did not recover
from. Messages arrive in pieces and then whole: the whole ones count, pieces only if no whole one
arrives. Events with an ``agentId`` are a sub-agent's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime

from handrail.agents.copilot.errors import BLOCKED, Fault, status_in_message
from handrail.agents.transport.failures import Diagnosis
from handrail.agents.transport.loose_json import (
    Object,
    as_object,
    count_in,
    list_in,
    number_in,
    object_in,
    text_in,
    whole_in,
)
from handrail.agents.transport.parser import Ending, describe_end
from handrail.agents.transport.programs import COPILOT
from handrail.agents.transport.turn_state import EventReader, TurnState, added_since, usage_in
from handrail.model import events as ev
from handrail.model.events import Notice
from handrail.model.launch import AgentError
from handrail.model.results import Usage
from handrail.ports.agent import AgentReply, AgentTurn

_SHELLS = frozenset({"bash", "powershell"})
_EXIT_CODE = re.compile(r"<[^<>\n]{0,80}\bexit(?:ed)? (?:with exit )?code (-?\d{1,10})>\s*\Z")
"""The end of a command's output in older programs, which have no field for the exit code."""
_REFUSALS = frozenset({"denied", "rejected"})
"""Error codes of tools that were refused before they began."""


class Permissions:
    """The permissions requested and refused in a turn. Mutable."""

    def __init__(self, state: TurnState) -> None:
        self._state = state
        self._asked: dict[str, tuple[str, str]] = {}
        self._refused: set[str] = set()

    def on_permission_requested(self, data: Object) -> None:
        """A tool needs a permission."""
        request = object_in(data, "permissionRequest")
        tool = text_in(request, "toolName", "kind") or "tool"
        self._asked[text_in(data, "requestId")] = tool, text_in(request, "toolCallId")

    def on_permission_completed(self, data: Object) -> Iterator[Notice]:
        """A permission was granted or refused."""
        result = object_in(data, "result")
        verdict = text_in(result, "kind")
        if not verdict:
            return
        tool, ref = self._asked.pop(text_in(data, "requestId"), ("tool", ""))
        if verdict.startswith("approved"):
            yield ev.AgentPermission(self._state.path, tool, "allowed", verdict)
            return
        reason = text_in(result, "feedback", "message", "reason") or verdict
        yield from self.denied(text_in(data, "toolCallId") or ref, tool, reason)

    def denied(self, ref: str, tool: str, reason: str, *, by_end: bool = False) -> Iterator[Notice]:
        """The notice of a denied tool, once: from the permission, or else from the tool's end.

        After a refusal that named no tool call, no tool's end is reported as a denial.
        """
        if (ref and ref in self._refused) or (by_end and "" in self._refused):
            return
        self._refused.add(ref)
        yield self._state.denied(tool, reason)


class MessageStream:
    """The messages and reasoning of a turn. Mutable.

    Pieces are kept until the whole text arrives, which is reported instead. Texts of which only
    pieces arrived are reported at the end of the model's turn. Within one turn the same reasoning,
    or the same message with the same id, is reported once.
    """

    def __init__(self, state: TurnState) -> None:
        self._state = state
        self._call = ""
        self._pieces: dict[str, list[str]] = {}
        self._thoughts: dict[str, list[str]] = {}
        self._reported: set[str] = set()
        self._messages: set[tuple[str, str, int | None]] = set()
        self._whole: set[str] = set()

    def begin(self) -> None:
        """The model begins a new turn: earlier texts may be reported again."""
        self._reported.clear()
        self._messages.clear()
        self._whole.clear()

    def message(self, data: Object) -> Iterator[Notice]:
        """A whole message, with the reasoning before it. Long ones arrive in several chunks."""
        yield from self._thought(text_in(data, "reasoningText"))
        name, content = text_in(data, "messageId"), text_in(data, "content")
        self._pieces.pop(name, None)
        call, chunk = text_in(data, "apiCallId"), whole_in(data, "chunkIndex")
        if not content or (name and (name, content, chunk) in self._messages):
            return
        self._messages.add((name, content, chunk))
        self._whole.add(content.strip())
        goes_on = (chunk or 0) > 0 and call == self._call
        state = self._state
        state.text = state.text + content if goes_on else content
        self._call = call
        yield ev.AgentMessage(state.path, content)

    def piece(self, data: Object) -> None:
        """A piece of a message."""
        pieces = self._pieces.setdefault(text_in(data, "messageId"), [])
        pieces.append(text_in(data, "deltaContent"))

    def thought(self, data: Object) -> Iterator[Notice]:
        """A whole text of reasoning."""
        self._thoughts.pop(text_in(data, "reasoningId"), None)
        return self._thought(text_in(data, "content"))

    def thought_piece(self, data: Object) -> None:
        """A piece of reasoning."""
        pieces = self._thoughts.setdefault(text_in(data, "reasoningId"), [])
        pieces.append(text_in(data, "deltaContent"))

    def rest(self) -> Iterator[Notice]:
        """Report texts of which only pieces arrived, when no more can arrive."""
        thoughts, self._thoughts = self._thoughts, {}
        for pieces in thoughts.values():
            yield from self._thought("".join(pieces))
        begun, self._pieces = self._pieces, {}
        for pieces in begun.values():
            text = "".join(pieces)
            if text and text.strip() not in self._whole:
                self._state.text = text
                yield ev.AgentMessage(self._state.path, text)

    def _thought(self, text: str) -> Iterator[Notice]:
        # The same reasoning comes with its message and by itself, under different ids.
        if text and text.strip() not in self._reported:
            self._reported.add(text.strip())
            yield ev.AgentReasoning(self._state.path, text)


def reported_usage(report: Object, *, resumed: bool, before: Usage | None) -> Usage | None:
    """This turn's usage in the file of ``--usage-output-file``.

    For a resumed session the report may cover earlier prompts, too. Then it is a total, and this
    turn's usage is the difference; unknown if the usage before is. A report that does not count its
    prompts is treated as such a total.
    """
    models = [as_object(one) for one in object_in(report, "modelMetrics").values()]
    usages = [usage for one in models if (usage := _usage(object_in(one, "usage")))]
    if not usages:
        return None
    total = sum(usages[1:], usages[0])
    prompts = count_in(report, "totalUserRequests")
    if resumed and (prompts is None or prompts > 1):
        return added_since(before, total)
    return total


def _usage(data: Object) -> Usage | None:
    return usage_in(
        data,
        input_tokens="inputTokens",
        output_tokens="outputTokens",
        cached_tokens="cacheReadTokens",
        cache_write_tokens="cacheWriteTokens",
        reasoning_tokens="reasoningTokens",
    )


_LOW_PERCENT = 10.0


def limits(path: str, snapshots: Object) -> Iterator[ev.AgentLimit]:
    """The quotas that a model call reported, except unlimited ones."""
    for window, data in snapshots.items():
        snapshot = as_object(data)
        left = number_in(snapshot, "remainingPercentage")
        if left is None or snapshot.get("isUnlimitedEntitlement") is True:
            continue
        reset_at = _unix(text_in(snapshot, "resetDate"))
        used = min(1.0, max(0.0, 1 - left / 100))
        goes_on = snapshot.get("overageAllowedWithExhaustedQuota") is True  # at a price
        if left <= 0 and not goes_on:
            yield ev.AgentLimit(path, "reached", window, used, reset_at)
        else:
            low = left < _LOW_PERCENT
            yield ev.AgentLimit(path, "warning" if low else "allowed", window, used, reset_at)


def _unix(date: str) -> float | None:
    try:
        at = datetime.fromisoformat(date)
        return at.replace(tzinfo=at.tzinfo or UTC).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def _was_blocked(usage: Object) -> bool:
    """Source: ``assistant.usage`` in the session events of ``github/copilot-sdk``."""
    reason = text_in(usage, "finishReason")
    return usage.get("contentFilterTriggered") is True or reason in ("content_filter", "refusal")


class CopilotParser(EventReader):
    """Reads one turn of copilot. Mutable.

    ``session`` is the id that handrail gave the session. ``report`` reads copilot's usage file,
    once copilot has ended.
    """

    def __init__(
        self,
        turn: AgentTurn,
        *,
        session: str | None = None,
        model: str | None = None,
        report: Callable[[], Object] = dict,
    ) -> None:
        super().__init__(turn, COPILOT, model=model)
        self._given_session = session
        self._report = report
        self._message_stream = MessageStream(self)
        self._permissions = Permissions(self)
        self._retries = 0
        self._request: Object = {}
        self._used_up: dict[str, float | None] = {}  # quotas, and when each resets
        self._error: Object | None = None
        self._aborted = ""
        self._blocked = ""

    @property
    def finished(self) -> bool:
        """True once copilot printed the ``result`` of its last work."""
        return self.end.is_reached

    def conclude(self, ending: Ending, /) -> AgentReply:
        """The answer, if copilot reported that the turn ended well.

        Raises:
            AgentError: it did not.
        """
        self._read_report()
        if self._error is not None:
            raise self._failed(self._error, ending)
        if self._aborted == "autopilot_credit_limit":
            raise self.error("spending_cap", "copilot used up the credits it may use")
        if self._aborted:
            reason = f"copilot was interrupted ({self._aborted})"
            if ending.stopped is not None:
                reason = describe_end("copilot", ending)
            raise self.failed(Diagnosis("interrupted", reason), ending)
        if self._blocked:
            raise self.error("refusal", self._blocked)
        result: Object | None = self.end.outcome
        if result is not None and whole_in(result, "exitCode") == 0:
            if self.text or ending.stopped is None:
                return self.reply(session_usage=self.summed_usage)
        elif result is not None and self._request:
            raise self._failed({}, ending)
        raise self.unfinished(ending)

    def _failed(self, error: Object, ending: Ending) -> AgentError:
        status = whole_in(error, "statusCode")
        status = whole_in(self._request, "statusCode") if status is None else status
        fault = Fault(
            type=text_in(error, "errorType"),
            code=text_in(error, "errorCode") or text_in(self._request, "errorCode"),
            message=text_in(error, "message"),
            status=status_in_message(text_in(error, "message")) if status is None else status,
            request=text_in(self._request, "errorMessage"),
            retry_after_s=self.extra_silence_s or None,
            resets_at=max((at for at in self._used_up.values() if at is not None), default=None),
        )
        return self.failed(fault.diagnose(ending.now), ending)

    def _read_report(self) -> None:
        """Take the usage from the report, and emit it, if no event reported any."""
        if self.usage is None:
            turn = self.turn
            self.usage = reported_usage(
                self._report(), resumed=turn.session is not None, before=turn.session_usage
            )
            for notice in self.used(self.usage):
                turn.emit(notice)

    # -- events ----------------------------------------------------------------------------------

    def read(self, name: str, event: Object) -> Iterator[Notice]:
        """The notices of an event. Events after the result have none, unless the model's turn
        begins again: an abort there comes from a program that handrail stopped.
        """
        data = object_in(event, "data")
        if name == "assistant.turn_start":
            self.end.went_on()
        if self.end.outcome is not None:
            return
        if not self.saw_protocol:
            self.saw_protocol, self.session = True, self._given_session
        if text_in(event, "agentId") or text_in(data, "parentToolCallId"):
            yield from self._on_tool_event(name, data)
            return
        self.model = self._model_in(name, data)
        if name == "result":
            yield from self._on_result(event)
            return
        yield from self._note_session(name, data)
        self._note_progress(name, data)
        yield from self._on_message_event(name, data)
        yield from self._on_tool_event(name, data)

    def _note_progress(self, name: str, data: Object) -> None:
        """Note what an event says about the turn's progress."""
        match name:
            case "assistant.turn_start":
                # copilot recovered from earlier errors
                self._error, self.extra_silence_s = None, 0.0
                self.calls += 1
                self._blocked = ""
            case "assistant.message":
                self._request = {}
                said = text_in(data, "content")
                self._blocked = said.strip() if BLOCKED.match(said) else self._blocked
            case "assistant.usage" if _was_blocked(data):
                self._blocked = self._blocked or "a content filter blocked the answer"
            case "model.call_failure":
                self._request = data
            case "auto_mode_switch.requested":
                self.extra_silence_s = max(number_in(data, "retryAfterSeconds") or 0.0, 0.0)
            case "session.error" if not self._aborted:
                self._error = data
            case "abort":
                self._aborted = text_in(data, "reason") or "aborted"
            case "agent.interrupted":
                self._aborted = self._aborted or "interrupted"
            case "assistant.idle" | "session.idle" if data.get("aborted") is True:
                self._aborted = self._aborted or "aborted"
            case _:
                pass

    def _on_message_event(self, name: str, data: Object) -> Iterable[Notice]:
        """The notices of the main agent's messages and reasoning."""
        match name:
            case "assistant.turn_start":
                self._message_stream.begin()
            case "assistant.message":
                return self._message_stream.message(data)
            case "assistant.message_delta":
                self._message_stream.piece(data)
            case "assistant.reasoning":
                return self._message_stream.thought(data)
            case "assistant.reasoning_delta":
                self._message_stream.thought_piece(data)
            case "assistant.turn_end":
                return (*self._message_stream.rest(), *self.used(self.usage or Usage()))
            case "session.error" | "abort":
                return self._message_stream.rest()
            case "assistant.turn_retry":
                return (self._retry(data),)
            case _:
                pass
        return ()

    def _on_tool_event(self, name: str, data: Object) -> Iterable[Notice]:
        """The notices of events that mean the same for the main agent and its sub-agents."""
        match name:
            case "tool.execution_start":
                return self._tool(data)
            case "tool.execution_complete":
                return (*self._tool(data), *self._tool_done(data))
            case "permission.requested":
                self._permissions.on_permission_requested(data)
            case "permission.completed":
                return self._permissions.on_permission_completed(data)
            case "session.compaction_start":
                tokens = whole_in(data, "currentTokens")
                return (ev.AgentCompaction(self.path, "started", tokens),)
            case "session.compaction_complete":
                compacted = ev.AgentCompaction(
                    self.path,
                    "failed" if data.get("success") is False else "completed",
                    whole_in(data, "preCompactionTokens"),
                    whole_in(data, "postCompactionTokens"),
                )
                return (compacted,)
            case "assistant.usage":
                return self._on_model_call(data)
            case _:
                pass
        return ()

    def _tool(self, data: Object) -> Iterator[Notice]:
        ref, name = text_in(data, "toolCallId"), text_in(data, "toolName", "mcpToolName")
        return self.tool_started(ref, name, data.get("arguments"))

    def _tool_done(self, data: Object) -> Iterator[Notice]:
        """A failed command is no failed tool to copilot, so the exit code decides."""
        ref, error = text_in(data, "toolCallId"), object_in(data, "error")
        name = self.tool_of(ref)
        output = text_in(object_in(data, "result"), "content") or text_in(error, "message")
        code = whole_in(object_in(data, "shellExecution"), "exitCode")
        if code is None and name in _SHELLS and (said := _EXIT_CODE.search(output)):
            code = int(said[1])
        is_ok = data.get("success") is not False and code in (None, 0) and not error
        if text_in(error, "code") in _REFUSALS:
            reason = text_in(error, "message")
            yield from self._permissions.denied(ref, name, reason, by_end=True)
        yield from self.tool_ended(ref, is_ok=is_ok, output=output, code=code)

    def _on_model_call(self, data: Object) -> Iterator[Notice]:
        """A model was called: add its usage, and report quotas."""
        if call := _usage(data):
            self.usage = call if self.usage is None else self.usage + call
            yield from self.used(self.usage)
        for limit in limits(self.path, object_in(data, "quotaSnapshots")):
            if limit.status == "reached":
                self._used_up[limit.window] = limit.reset_at
            else:
                self._used_up.pop(limit.window, None)
            yield limit

    def _model_in(self, name: str, data: Object) -> str | None:
        if name.startswith(("session.tools_updated", "assistant.", "model.", "session.model")):
            return text_in(data, "model", "newModel") or self.model
        if name in ("session.start", "session.resume"):
            return text_in(data, "selectedModel") or self.model
        return self.model

    def _note_session(self, name: str, data: Object) -> Iterable[Notice]:
        """The session, reported once copilot turns to the prompt: its model is known by then."""
        if name in ("session.start", "session.resume"):
            self.version = text_in(data, "copilotVersion") or self.version
        elif not name.startswith(("user.", "assistant.", "session.error")):
            return ()
        return self.session_named(text_in(data, "sessionId"))

    def _on_result(self, event: Object) -> Iterator[Notice]:
        result = {**object_in(event, "data"), **event}
        self.end.resulted(result)
        self.close_tools()
        yield from self.session_named(text_in(result, "sessionId"))
        yield from self._message_stream.rest()
        changed = object_in(object_in(result, "usage"), "codeChanges")
        names = (name for name in list_in(changed, "filesModified") if isinstance(name, str))
        self.files_changed.update(dict.fromkeys(names))

    def _retry(self, data: Object) -> Notice:
        self._retries += 1
        attempt = whole_in(self._request, "retryAttempt")
        said = (text_in(data, "reason"), text_in(self._request, "errorMessage"))
        return ev.AgentRetry(
            self.path,
            self._retries if attempt is None else attempt + 1,
            self.extra_silence_s or None,
            ": ".join(one for one in said if one),
        )
