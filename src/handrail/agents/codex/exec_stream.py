"""What ``codex exec --json`` prints, read for one turn.

Only ``turn.completed`` and ``turn.failed`` end a turn. A top-level ``error`` says that codex tries
again, or what ``turn.failed`` will say; an item of type ``error`` is a warning. Messages come
whole. Tokens are the thread's total, so those of a resumed thread are a difference.

Source: ``codex-rs/exec/src/exec_events.rs``, and what codex 0.169 printed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from handrail.agents.codex.errors import (
    NO_SESSION,
    fault_of_message,
    hint_of,
    reason_of,
    status_of_message,
)
from handrail.agents.codex.exec_items import ExecItems
from handrail.agents.programs.ending import kind_of_end, words_of_end
from handrail.agents.programs.loose_json import (
    Object,
    count_in,
    json_value,
    object_in,
    object_of,
    text_in,
)
from handrail.agents.programs.lost_session import lost_session
from handrail.agents.programs.turn_parser import Ending
from handrail.agents.programs.usage_since import added_since
from handrail.errors import AgentError
from handrail.model.events import AgentRetry, AgentSessionStarted, AgentUsage, Notice
from handrail.model.results import Usage
from handrail.ports.agent import AgentReply, AgentTurn

_RETRY = re.compile(
    r"^Reconnecting(?:\.{3}|\u2026)\s*(?:(?P<number>\d{1,9})\s*/\s*\d+)?\s*(?P<why>.*)$", re.DOTALL
)
_OLDER_RETRY = re.compile(r"^(?P<why>[^;]{1,2000}); retrying (?P<number>\d{1,9})/\d")
_NETWORK_WAITS = 12
"""How often codex may say that it waits for a network before that is the end: about three minutes.
It never gives up by itself, and as long as it says so it is not silent."""
_EVENTS = frozenset(
    {"thread.started", "turn.started", "turn.completed", "turn.failed", "error"}
    | {"item.started", "item.updated", "item.completed"}
)


class CodexExecParser:
    """Reads one turn of ``codex exec``. Mutable.

    ``has_schema``: the answer was asked for by a schema, so JSON is its value.
    """

    patience_s = 0.0

    def __init__(
        self,
        turn: AgentTurn,
        *,
        backend: str = "codex-exec",
        model: str | None = None,
        has_schema: bool = False,
    ) -> None:
        self._turn = turn
        self._backend = backend
        self._model = model
        self._has_schema = has_schema
        self._items = ExecItems(turn.path)
        self._session: str | None = None
        self._total: Usage | None = None
        self._completed = False
        self._failure: str | None = None
        self._complaint = ""
        self._network_waits = 0
        self._alive = False

    @property
    def finished(self) -> bool:
        """True once the turn was said to be over, or codex waits for a network in vain."""
        return self._completed or self._failure is not None or self._is_cut_off

    @property
    def open_tools(self) -> int:
        """How many commands and calls are at work."""
        return self._items.open_tools

    @property
    def _is_cut_off(self) -> bool:
        return self._network_waits >= _NETWORK_WAITS

    def feed(self, line: bytes, /) -> Iterable[Notice]:
        """What a line means, in order."""
        event = object_of(line)
        if event is None:
            return ()
        name = text_in(event, "type")
        if name != "error":
            self._network_waits = 0
        self._alive = self._alive or name in _EVENTS
        return tuple(self._read(name, event))

    def feed_stderr(self, _line: bytes, /) -> Iterable[Notice]:
        """Nothing: codex logs there."""
        return ()

    def conclude(self, ending: Ending, /) -> AgentReply:
        """The answer, if ``turn.completed`` was seen.

        Raises:
            AgentError: it was not.
        """
        if self._completed:
            return self._reply()
        if self._failure is not None:
            raise self._failed(self._failure, ending)
        if ending.stopped is None and self._is_cut_off:
            raise self._error("transient", f"codex reaches no network: {self._complaint}")
        lost = None if self._alive else lost_session(self._turn, ending, "codex", NO_SESSION)
        if lost is not None:
            raise lost
        kind = kind_of_end(ending, alive=self._alive)
        said = f"; its last complaint: {self._complaint}" if self._complaint else ""
        raise self._error(kind, words_of_end("codex", ending, alive=self._alive) + said)

    def _reply(self) -> AgentReply:
        answer = self._items.message
        has_value, value = json_value(answer) if self._has_schema else (False, None)
        return AgentReply(
            answer,
            model=self._model,
            session=self._known_session,
            usage=self._usage,
            value=value,
            has_value=has_value,
            session_usage=self._total,
            denials=tuple(self._items.denials),
            files_changed=tuple(self._items.files_changed),
        )

    def _failed(self, message: str, ending: Ending) -> AgentError:
        kind, retry_at = fault_of_message(message, ending.now)
        if kind == "interrupted" and ending.stopped is not None:
            kind = kind_of_end(ending, alive=True)
        error = self._error(kind, reason_of(message))
        error.retry_at = retry_at
        error.http_status = status_of_message(message)
        return error

    def _error(self, kind: Any, reason: str) -> AgentError:
        return AgentError(
            self._turn.agent,
            reason,
            kind=kind,
            session=self._known_session,
            text=self._items.message,
            usage=self._usage,
            model=self._model,
            hint=hint_of(kind),
        )

    @property
    def _known_session(self) -> str | None:
        return self._session or (None if self._turn.fork else self._turn.session)

    @property
    def _usage(self) -> Usage | None:
        """This turn's part of the thread's total; unknown if what went before is."""
        if self._total is None or self._turn.session is None:
            return self._total
        return added_since(self._turn.session_usage, self._total)

    # -- events ----------------------------------------------------------------------------------

    def _read(self, name: str, event: Object) -> Iterator[Notice]:
        match name:
            case "thread.started":
                return self._thread(event)
            case "item.started" | "item.updated" | "item.completed":
                return self._items.read(name.removeprefix("item."), object_in(event, "item"))
            case "error":
                return self._complained(event)
            case "turn.completed":
                return self._over(event)
            case "turn.failed":
                return self._broken(event)
            case _:
                return iter(())

    def _thread(self, event: Object) -> Iterator[Notice]:
        session = text_in(event, "thread_id")
        if session and self._session is None:
            self._session = session
            yield AgentSessionStarted(self._turn.path, session, self._backend, self._model)

    def _complained(self, event: Object) -> Iterator[Notice]:
        message = text_in(event, "message")
        self._complaint = message or self._complaint
        retry = _RETRY.match(message) or _OLDER_RETRY.match(message)
        if retry is None:
            return
        if "waiting for network" in message:
            self._network_waits += 1
        attempt = int(retry["number"]) if retry["number"] else None
        yield AgentRetry(self._turn.path, attempt, None, retry["why"].strip("() ") or message)

    def _over(self, event: Object) -> Iterator[Notice]:
        self._completed, self._failure = True, None
        self._items.close()
        self._total = _total(object_in(event, "usage"))
        if (usage := self._usage) is not None:
            yield AgentUsage(self._turn.path, usage)

    def _broken(self, event: Object) -> Iterator[Notice]:
        said = text_in(object_in(event, "error"), "message") or text_in(event, "error", "message")
        self._failure = said or self._complaint
        self._completed = False
        self._items.close()
        return iter(())


def _total(usage: Object) -> Usage | None:
    total = Usage(
        input_tokens=count_in(usage, "input_tokens"),
        output_tokens=count_in(usage, "output_tokens"),
        cached_tokens=count_in(usage, "cached_input_tokens"),
        cache_write_tokens=count_in(usage, "cache_write_input_tokens"),
        reasoning_tokens=count_in(usage, "reasoning_output_tokens"),
    )
    return None if total == Usage() else total
