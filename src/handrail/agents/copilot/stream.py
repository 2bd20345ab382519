"""What ``copilot --output-format json`` prints, read for one turn.

The last line is a ``result``. It says exit code 0 also of a turn that was broken off, so success is
a ``result`` of 0 with no ``abort``, and no ``session.error`` that the main agent did not get over.
Messages come in pieces and then whole: the whole ones count, the pieces only if no whole one came.
Events with an ``agentId`` are a sub-agent's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from handrail.agents.copilot.errors import BLOCKED, HINTS, NO_SESSION, Fault, status_said
from handrail.agents.transport.loose_json import (
    Object,
    as_object,
    count_in,
    list_in,
    number_in,
    object_in,
    object_of,
    text_in,
    whole_in,
)
from handrail.agents.transport.parser import (
    Ending,
    added_since,
    kind_of_end,
    lost_session,
    words_of_end,
)
from handrail.errors import AgentErrorKind
from handrail.model.events import (
    AgentCompaction,
    AgentLimit,
    AgentMessage,
    AgentPermission,
    AgentReasoning,
    AgentRetry,
    AgentSessionStarted,
    AgentToolCompleted,
    AgentToolStarted,
    AgentUsage,
    Notice,
)
from handrail.model.launch import AgentError
from handrail.model.results import Usage
from handrail.ports.agent import AgentReply, AgentTurn

_SHELLS = frozenset({"bash", "powershell"})
_EXIT_CODE = re.compile(r"<[^<>\n]{0,80}\bexit(?:ed)? (?:with exit )?code (-?\d{1,10})>\s*\Z")
"""How older programs, which have no field for it, end the output of a command."""
_REFUSALS = frozenset({"denied", "rejected"})
"""Codes of tools that ended before they began."""


class Tools:
    """The tools of a turn. Mutable."""

    def __init__(self, path: str) -> None:
        self.denials: list[str] = []
        self._path = path
        self._open: dict[str, str] = {}
        self._done: set[str] = set()
        self._asked: dict[str, tuple[str, str]] = {}
        self._refused: set[str] = set()

    @property
    def open_tools(self) -> int:
        """How many are at work."""
        return len(self._open)

    def close(self) -> None:
        """The turn is over, and so is whatever did not say so."""
        self._open.clear()

    def started(self, data: Object) -> Iterator[Notice]:
        """A tool begins."""
        ref, name = text_in(data, "toolCallId"), text_in(data, "toolName", "mcpToolName")
        if ref not in self._open and ref not in self._done:
            self._open[ref] = name
            yield AgentToolStarted(self._path, ref, name, data.get("arguments"))

    def completed(self, data: Object) -> Iterator[Notice]:
        """A tool ends; one that had no start gets one. A command that failed is no failed call to
        copilot, so its exit code is looked at.
        """
        ref = text_in(data, "toolCallId")
        if ref in self._done:
            return
        if ref not in self._open:
            yield from self.started(data)
        if ref:
            self._done.add(ref)
        name = self._open.pop(ref, "")
        error = object_in(data, "error")
        output = text_in(object_in(data, "result"), "content") or text_in(error, "message")
        code = whole_in(object_in(data, "shellExecution"), "exitCode")
        if code is None and name in _SHELLS and (said := _EXIT_CODE.search(output)):
            code = int(said[1])
        is_ok = data.get("success") is not False and code in (None, 0) and not error
        if text_in(error, "code") in _REFUSALS and "" not in self._refused:
            yield from self._denied(ref, name, text_in(error, "message"))
        yield AgentToolCompleted(self._path, ref, name, is_ok, output, code)

    def asked(self, data: Object) -> None:
        """A tool needs a permission."""
        request = object_in(data, "permissionRequest")
        tool = text_in(request, "toolName", "kind") or "tool"
        self._asked[text_in(data, "requestId")] = tool, text_in(request, "toolCallId")

    def answered(self, data: Object) -> Iterator[Notice]:
        """A permission was given or refused."""
        result = object_in(data, "result")
        verdict = text_in(result, "kind")
        if not verdict:
            return
        tool, ref = self._asked.pop(text_in(data, "requestId"), ("tool", ""))
        if verdict.startswith("approved"):
            yield AgentPermission(self._path, tool, "allowed", verdict)
            return
        reason = text_in(result, "feedback", "message", "reason") or verdict
        yield from self._denied(text_in(data, "toolCallId") or ref, tool, reason)

    def _denied(self, ref: str, tool: str, reason: str) -> Iterator[Notice]:
        """A tool was not allowed, told once: by the permission, or else by how the tool ended.

        A permission that does not name its tool's use has told of any.
        """
        if ref and ref in self._refused:
            return
        self._refused.add(ref)
        self.denials.append(tool)
        yield AgentPermission(self._path, tool, "denied", reason)


class Said:
    """The messages and thoughts of a turn. Mutable.

    Pieces are kept until the whole comes, which is told instead of them; those of which no whole
    came by the end of the model's turn are told then. Of one turn the same thought, or the same
    message under the same name, is told once.
    """

    def __init__(self, path: str) -> None:
        self.text = ""
        self._path = path
        self._call = ""
        self._pieces: dict[str, list[str]] = {}
        self._thoughts: dict[str, list[str]] = {}
        self._told: set[str] = set()
        self._messages: set[tuple[str, str, int | None]] = set()
        self._whole: set[str] = set()

    def begin(self) -> None:
        """The model begins anew: what was said before may be said again."""
        self._told.clear()
        self._messages.clear()
        self._whole.clear()

    def message(self, data: Object) -> Iterator[Notice]:
        """A whole message, with the thought that led to it. Long ones come in several."""
        yield from self._thought(text_in(data, "reasoningText"))
        name, content = text_in(data, "messageId"), text_in(data, "content")
        self._pieces.pop(name, None)
        call, chunk = text_in(data, "apiCallId"), whole_in(data, "chunkIndex")
        if not content or (name and (name, content, chunk) in self._messages):
            return
        self._messages.add((name, content, chunk))
        self._whole.add(content.strip())
        goes_on = (chunk or 0) > 0 and call == self._call
        self.text = self.text + content if goes_on else content
        self._call = call
        yield AgentMessage(self._path, content)

    def piece(self, data: Object) -> None:
        """A piece of a message."""
        pieces = self._pieces.setdefault(text_in(data, "messageId"), [])
        pieces.append(text_in(data, "deltaContent"))

    def thought(self, data: Object) -> Iterator[Notice]:
        """A whole thought."""
        self._thoughts.pop(text_in(data, "reasoningId"), None)
        return self._thought(text_in(data, "content"))

    def thought_piece(self, data: Object) -> None:
        """A piece of a thought."""
        pieces = self._thoughts.setdefault(text_in(data, "reasoningId"), [])
        pieces.append(text_in(data, "deltaContent"))

    def rest(self) -> Iterator[Notice]:
        """What was said in pieces only, when no more can come."""
        thoughts, self._thoughts = self._thoughts, {}
        for pieces in thoughts.values():
            yield from self._thought("".join(pieces))
        begun, self._pieces = self._pieces, {}
        for pieces in begun.values():
            text = "".join(pieces)
            if text and text.strip() not in self._whole:
                self.text = text
                yield AgentMessage(self._path, text)

    def _thought(self, text: str) -> Iterator[Notice]:
        # The same thought comes with its message and by itself, under no common name.
        if text and text.strip() not in self._told:
            self._told.add(text.strip())
            yield AgentReasoning(self._path, text)


class CallUsage:
    """The sum over the model calls of a turn. Mutable."""

    def __init__(self) -> None:
        self.total: Usage | None = None

    def add(self, data: Object) -> Usage | None:
        """The sum with one more call; None if that told nothing."""
        call = _usage(data)
        if call == Usage():
            return None
        self.total = call if self.total is None else self.total + call
        return self.total


def reported_usage(report: Object, *, resumed: bool, before: Usage | None) -> Usage | None:
    """This turn's usage in the file of ``--usage-output-file``.

    A report that covers earlier prompts of a resumed session too is a total: then this turn's is
    the difference, unknown if what went before is. One that does not say so may be such a total.
    """
    models = [as_object(one) for one in object_in(report, "modelMetrics").values()]
    told = [usage for one in models if (usage := _usage(object_in(one, "usage"))) != Usage()]
    if not told:
        return None
    total = sum(told[1:], told[0])
    prompts = count_in(report, "totalUserRequests")
    if resumed and (prompts is None or prompts > 1):
        return added_since(before, total)
    return total


def _usage(data: Object) -> Usage:
    fields: dict[str, Any] = {
        "input_tokens": count_in(data, "inputTokens"),
        "output_tokens": count_in(data, "outputTokens"),
        "cached_tokens": count_in(data, "cacheReadTokens"),
        "cache_write_tokens": count_in(data, "cacheWriteTokens"),
        "reasoning_tokens": count_in(data, "reasoningTokens"),
    }
    return Usage(**fields)


_LOW_PERCENT = 10.0


def compaction_begun(path: str, data: Object) -> AgentCompaction:
    """``session.compaction_start``."""
    return AgentCompaction(path, "started", whole_in(data, "currentTokens"))


def compaction_ended(path: str, data: Object) -> AgentCompaction:
    """``session.compaction_complete``, which may have failed."""
    return AgentCompaction(
        path,
        "failed" if data.get("success") is False else "completed",
        whole_in(data, "preCompactionTokens"),
        whole_in(data, "postCompactionTokens"),
    )


def limits(path: str, snapshots: Object) -> Iterator[AgentLimit]:
    """The quotas that a model call told of, but those without bound."""
    for window, told in snapshots.items():
        snapshot = as_object(told)
        left = number_in(snapshot, "remainingPercentage")
        if left is None or snapshot.get("isUnlimitedEntitlement") is True:
            continue
        reset_at = _unix(text_in(snapshot, "resetDate"))
        used = min(1.0, max(0.0, 1 - left / 100))
        goes_on = snapshot.get("overageAllowedWithExhaustedQuota") is True  # at a price
        if left <= 0 and not goes_on:
            yield AgentLimit(path, "reached", window, used, reset_at)
        else:
            low = left < _LOW_PERCENT
            yield AgentLimit(path, "warning" if low else "allowed", window, used, reset_at)


def _unix(date: str) -> float | None:
    try:
        at = datetime.fromisoformat(date)
        return at.replace(tzinfo=at.tzinfo or UTC).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def _no_report() -> Object:
    return {}


def _was_blocked(usage: Object) -> bool:
    """Source: ``assistant.usage`` in the session events of ``github/copilot-sdk``."""
    reason = text_in(usage, "finishReason")
    return usage.get("contentFilterTriggered") is True or reason in ("content_filter", "refusal")


class CopilotParser:
    """Reads one turn of copilot. Mutable.

    ``session`` is the id that the session was given; ``report`` reads what copilot wrote about its
    usage, once it has ended.
    """

    def __init__(
        self,
        turn: AgentTurn,
        *,
        session: str | None = None,
        model: str | None = None,
        report: Callable[[], Object] = _no_report,
    ) -> None:
        self._turn = turn
        self._session = session
        self._told_session: str | None = None
        self._model = model
        self._report = report
        self._said = Said(turn.path)
        self._tools = Tools(turn.path)
        self._calls = CallUsage()
        self._retries = 0
        self._request: Object = {}
        self._retry_after_s: float | None = None
        self._used_up: dict[str, float | None] = {}  # quotas, and when each begins anew
        self._error: Object | None = None
        self._aborted = ""
        self._blocked = ""
        self._result: Object | None = None
        self._version: str | None = None
        self._alive = False

    @property
    def finished(self) -> bool:
        """True once the ``result`` was seen."""
        return self._result is not None

    @property
    def open_tools(self) -> int:
        """How many tools are at work."""
        return self._tools.open_tools

    @property
    def patience_s(self) -> float:
        """How long it said that it waits for a limit to be over."""
        return self._retry_after_s or 0.0

    def feed(self, line: bytes, /) -> Iterable[Notice]:
        """What a line means, in order."""
        event = object_of(line)
        if event is None or not text_in(event, "type"):
            return ()
        if self._result is not None:
            return ()  # it is done: an abort is of a program that was told to go
        self._alive = True
        return tuple(self._read(text_in(event, "type"), event, object_in(event, "data")))

    def feed_stderr(self, _line: bytes, /) -> Iterable[Notice]:
        """Nothing: what matters there is looked at in the end."""
        return ()

    def conclude(self, ending: Ending, /) -> AgentReply:
        """The answer, if the turn ended well by copilot's own account.

        Raises:
            AgentError: it did not.
        """
        usage = self._usage()
        if self._error is not None:
            raise self._failed(self._error, ending, usage)
        if self._aborted:
            raise self._broken_off(ending, usage)
        if self._blocked:
            raise self._made("refusal", self._blocked, usage)
        if self._result is not None and whole_in(self._result, "exitCode") == 0:
            if self._said.text or ending.stopped is None:
                return self._reply(usage)
        elif self._result is not None and self._request:
            raise self._failed({}, ending, usage)
        lost = None if self._alive else lost_session(self._turn, ending, "copilot", NO_SESSION)
        if lost is not None:
            raise lost
        kind = kind_of_end(ending, alive=self._alive)
        words = words_of_end("copilot", ending, alive=self._alive)
        raise self._made(kind, words, usage)

    # -- conclusions -----------------------------------------------------------------------------

    def _reply(self, usage: Usage | None) -> AgentReply:
        changes = object_in(object_in(self._result or {}, "usage"), "codeChanges")
        files = [name for name in list_in(changes, "filesModified") if isinstance(name, str)]
        before = self._turn.session_usage if self._turn.session is not None else Usage()
        return AgentReply(
            self._said.text,
            model=self._model,
            session=self._session,
            usage=usage,
            session_usage=None if before is None or usage is None else before + usage,
            denials=tuple(self._tools.denials),
            files_changed=tuple(files),
            version=self._version,
        )

    def _broken_off(self, ending: Ending, usage: Usage | None) -> AgentError:
        if self._aborted == "autopilot_credit_limit":
            return self._made("spending_cap", "copilot used up the credits it may use", usage)
        if ending.stopped is None:
            return self._made("interrupted", f"copilot was interrupted ({self._aborted})", usage)
        kind = kind_of_end(ending, alive=True)
        return self._made(kind, words_of_end("copilot", ending), usage)

    def _failed(self, error: Object, ending: Ending, usage: Usage | None) -> AgentError:
        status = whole_in(error, "statusCode")
        status = whole_in(self._request, "statusCode") if status is None else status
        fault = Fault(
            type=text_in(error, "errorType"),
            code=text_in(error, "errorCode") or text_in(self._request, "errorCode"),
            message=text_in(error, "message"),
            status=status_said(text_in(error, "message")) if status is None else status,
            request=text_in(self._request, "errorMessage"),
            retry_after_s=self._retry_after_s,
            resets_at=max((at for at in self._used_up.values() if at is not None), default=None),
        )
        reason = fault.message or fault.request or "copilot failed and did not say why"
        made = self._made(fault.kind, " ".join(reason.split()), usage)
        made.retry_at, made.http_status = fault.retry_at(ending.now), fault.status
        return made

    def _made(self, kind: AgentErrorKind, reason: str, usage: Usage | None) -> AgentError:
        return AgentError(
            self._turn.agent,
            reason,
            kind=kind,
            session=self._session if self._alive else self._turn.session,
            text=self._said.text,
            usage=usage,
            model=self._model,
            hint=HINTS.get(kind, ""),
        )

    def _usage(self) -> Usage | None:
        """This turn's, told once more if only the report knew it."""
        if self._calls.total is not None:
            return self._calls.total
        turn = self._turn
        usage = reported_usage(
            self._report(), resumed=turn.session is not None, before=turn.session_usage
        )
        if usage is not None:
            turn.emit(AgentUsage(turn.path, usage))
        return usage

    # -- events ----------------------------------------------------------------------------------

    def _read(self, name: str, event: Object, data: Object) -> Iterator[Notice]:
        if text_in(event, "agentId") or text_in(data, "parentToolCallId"):
            yield from self._done(name, data)
            return
        self._model = self._model_in(name, data)
        if name == "result":
            yield from self._over(event)
            return
        yield from self._session_known(name, data)
        self._went(name, data)
        yield from self._spoken(name, data)
        yield from self._done(name, data)

    def _went(self, name: str, data: Object) -> None:
        """How the turn goes."""
        match name:
            case "assistant.turn_start":
                self._error, self._retry_after_s = None, None  # it got over what there was
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
                wait_s = number_in(data, "retryAfterSeconds")
                self._retry_after_s = wait_s if wait_s is None or wait_s >= 0 else None
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

    def _spoken(self, name: str, data: Object) -> Iterator[Notice]:
        """What the main agent says."""
        match name:
            case "assistant.turn_start":
                self._said.begin()
            case "assistant.message":
                yield from self._said.message(data)
            case "assistant.message_delta":
                self._said.piece(data)
            case "assistant.reasoning":
                yield from self._said.thought(data)
            case "assistant.reasoning_delta":
                self._said.thought_piece(data)
            case "assistant.turn_end" | "session.error" | "abort":
                yield from self._said.rest()
            case "assistant.turn_retry":
                yield self._retry(data)
            case _:
                pass

    def _done(self, name: str, data: Object) -> Iterator[Notice]:
        """What means the same whoever does it, the main agent or one that it started."""
        path = self._turn.path
        match name:
            case "tool.execution_start":
                yield from self._tools.started(data)
            case "tool.execution_complete":
                yield from self._tools.completed(data)
            case "permission.requested":
                self._tools.asked(data)
            case "permission.completed":
                yield from self._tools.answered(data)
            case "session.compaction_start":
                yield compaction_begun(path, data)
            case "session.compaction_complete":
                yield compaction_ended(path, data)
            case "assistant.usage":
                if (usage := self._calls.add(data)) is not None:
                    yield AgentUsage(path, usage)
                for limit in limits(path, object_in(data, "quotaSnapshots")):
                    self._note(limit)
                    yield limit
            case _:
                pass

    def _note(self, limit: AgentLimit) -> None:
        if limit.status == "reached":
            self._used_up[limit.window] = limit.reset_at
        else:
            self._used_up.pop(limit.window, None)

    def _model_in(self, name: str, data: Object) -> str | None:
        if name.startswith(("session.tools_updated", "assistant.", "model.", "session.model")):
            return text_in(data, "model", "newModel") or self._model
        if name in ("session.start", "session.resume"):
            return text_in(data, "selectedModel") or self._model
        return self._model

    def _session_known(self, name: str, data: Object) -> Iterator[Notice]:
        """The session, told when the program turns to the prompt: its model is known by then."""
        if name in ("session.start", "session.resume"):
            self._version = text_in(data, "copilotVersion") or self._version
            self._session = text_in(data, "sessionId") or self._session
        elif not name.startswith(("user.", "assistant.", "session.error")):
            return
        yield from self._tell_session()

    def _tell_session(self) -> Iterator[Notice]:
        if self._session and self._session != self._told_session:
            self._told_session = self._session
            yield AgentSessionStarted(self._turn.path, self._session, "copilot", self._model)

    def _over(self, event: Object) -> Iterator[Notice]:
        self._result = {**object_in(event, "data"), **event}
        self._tools.close()
        self._session = text_in(self._result, "sessionId") or self._session
        yield from self._tell_session()
        yield from self._said.rest()

    def _retry(self, data: Object) -> Notice:
        self._retries += 1
        attempt = whole_in(self._request, "retryAttempt")
        said = (text_in(data, "reason"), text_in(self._request, "errorMessage"))
        return AgentRetry(
            self._turn.path,
            self._retries if attempt is None else attempt + 1,
            self._retry_after_s,
            ": ".join(one for one in said if one),
        )
