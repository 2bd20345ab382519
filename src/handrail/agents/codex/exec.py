"""Codex through ``codex exec --json``: a process a turn, simple, with less said about errors."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import attrs

from handrail.agents.codex.backend import CAPABILITIES, INSTALL, probe_codex
from handrail.agents.codex.errors import (
    NO_SESSION,
    fault_of_message,
    hint_of,
    reason_of,
    status_of_message,
)
from handrail.agents.codex.settings import mcp_settings
from handrail.agents.transport.cli import (
    Put,
    added_folders,
    child_environment,
    private_files,
    run_cli,
    unblank,
    working_folder,
)
from handrail.agents.transport.loose_json import (
    Object,
    count_in,
    json_value,
    list_in,
    object_in,
    object_of,
    objects_in,
    text_in,
    toml_value,
    whole_in,
)
from handrail.agents.transport.parser import (
    Ending,
    added_since,
    kind_of_end,
    lost_session,
    words_of_end,
)
from handrail.agents.transport.strict_schema import strict_schema
from handrail.agents.transport.turn import finished_notice
from handrail.model.agent_options import NO_OPTIONS, AgentOptions
from handrail.model.events import (
    AgentCompaction,
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
from handrail.ports.agent import AgentReply, AgentTurn, Capabilities, Probe

_TOOLS = frozenset(
    {"command_execution", "file_change", "mcp_tool_call", "collab_tool_call", "web_search"}
)
_COMPACTIONS = frozenset({"context_compaction", "compaction"})
_BAD = frozenset({"failed", "declined", "errored", "error", "cancelled", "interrupted"})


class ExecItems:
    """Reads items. Mutable: remembers the last message and the tools at work."""

    def __init__(self, path: str) -> None:
        self.message = ""
        self.denials: list[str] = []
        self.files_changed: dict[str, None] = {}  # in the order of their first change
        self._path = path
        self._open: set[str] = set()
        self._done: set[str] = set()

    @property
    def open_tools(self) -> int:
        """How many tools were begun and have not ended."""
        return len(self._open)

    def close(self) -> None:
        """The turn is over, and so is whatever did not say so."""
        self._open.clear()

    def read(self, phase: str, item: Object) -> Iterator[Notice]:
        """What an item means that is ``started``, ``updated`` or ``completed``."""
        ref, kind = text_in(item, "id"), text_in(item, "type")
        if kind in _TOOLS:
            return self._tool(phase, ref, kind, item)
        if kind in _COMPACTIONS and phase != "updated":
            return iter((AgentCompaction(self._path, _phase(phase)),))
        if phase != "completed" or ref in self._done:
            return iter(())
        self._is_done(ref)
        return self._said(kind, text_in(item, "text"))

    def _is_done(self, ref: str) -> None:
        if ref:
            self._done.add(ref)

    def _said(self, kind: str, said: str) -> Iterator[Notice]:
        if not said:
            return
        if kind == "agent_message":
            self.message = said
            yield AgentMessage(self._path, said)
        elif kind == "reasoning":
            yield AgentReasoning(self._path, said)

    def _tool(self, phase: str, ref: str, kind: str, item: Object) -> Iterator[Notice]:
        if ref in self._done:
            return
        name = _tool_name(kind, item)
        if ref not in self._open:
            self._open.add(ref)
            yield AgentToolStarted(self._path, ref, name, _tool_input(kind, item))
        if phase != "completed":
            return
        self._open.discard(ref)
        self._is_done(ref)
        yield from self._ended(ref, kind, name, item)

    def _ended(self, ref: str, kind: str, name: str, item: Object) -> Iterator[Notice]:
        status, code = text_in(item, "status"), whole_in(item, "exit_code")
        is_ok = status not in _BAD and code in (None, 0) and not item.get("error")
        if status == "declined":
            self.denials.append(name)
            yield AgentPermission(self._path, name, "denied", text_in(item, "command"))
        if kind == "file_change" and is_ok:
            paths = (text_in(change, "path") for change in objects_in(item, "changes"))
            self.files_changed.update(dict.fromkeys(path for path in paths if path))
        yield AgentToolCompleted(self._path, ref, name, is_ok, _tool_output(item), code)


def _phase(phase: str) -> Any:
    return "completed" if phase == "completed" else "started"


def _tool_name(kind: str, item: Object) -> str:
    """The name that ``codex app-server`` items have here too."""
    match kind:
        case "command_execution":
            return "shell"
        case "file_change":
            return "apply_patch"
        case "mcp_tool_call":
            parts = (text_in(item, "server"), text_in(item, "tool"))
            return ".".join(part for part in parts if part) or kind
        case _:
            return text_in(item, "tool") or kind


def _tool_input(kind: str, item: Object) -> Any:
    match kind:
        case "command_execution":
            return {"command": text_in(item, "command")}
        case "file_change":
            return {"changes": list_in(item, "changes")}
        case "mcp_tool_call":
            return item.get("arguments")
        case "web_search":
            return {"query": text_in(item, "query")}
        case _:
            return {"prompt": text_in(item, "prompt")}


def _tool_output(item: Object) -> str:
    if output := text_in(item, "aggregated_output"):
        return output
    if error := text_in(object_in(item, "error"), "message") or text_in(item, "error"):
        return error
    blocks = objects_in(object_in(item, "result"), "content")
    return "\n".join(text_in(block, "text") for block in blocks).strip()


# What ``codex exec --json`` prints, read for one turn.
#
# Only ``turn.completed`` and ``turn.failed`` end a turn. A top-level ``error`` says that codex
# tries again, or what ``turn.failed`` will say; an item of type ``error`` is a warning. Messages
# come whole. Tokens are the thread's total, so those of a resumed thread are a difference.
#
# Source: ``codex-rs/exec/src/exec_events.rs``, and what codex 0.169 printed.

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


_PERMISSIONS: dict[str, tuple[str, ...]] = {
    "read_only": ("-s", "read-only"),
    "workspace": ("-s", "workspace-write"),
    "full": ("--dangerously-bypass-approvals-and-sandbox",),
}


@attrs.frozen
class CodexExecBackend:
    """``codex exec``, one process a turn; it goes on in threads, and can fork them.

    ``options`` hold unless an agent or a step says otherwise. What it may not do without asking it
    does not do: nobody is asked. A blank prompt, which codex refuses, is sent as ``Continue.``.
    """

    executable: str = "codex"
    options: AgentOptions = attrs.field(default=NO_OPTIONS, kw_only=True)

    @property
    def name(self) -> str:
        """``"codex-exec"``."""
        return "codex-exec"

    @property
    def capabilities(self) -> Capabilities:
        """Sessions, forks, schemas, profiles, tokens and reset times; no cost, no compaction."""
        return CAPABILITIES

    async def complete(self, turn: AgentTurn, /) -> AgentReply:
        """The last message of the turn, after codex said that it is completed.

        Raises:
            AgentError: it was not, with the reason and its kind.
        """
        options = turn.options.over(self.options)
        strict = None if turn.schema is None else strict_schema(turn.schema)
        parser = CodexExecParser(
            turn,
            backend=self.name,
            model=options.profile_and_model[1],
            has_schema=strict is not None,
        )
        with private_files("codex") as put:
            files = _files(options, strict, put)
            try:
                argv = codex_exec_argv(self.executable, turn, options, files)
            except AgentError as error:
                turn.emit(finished_notice(turn.path, error))
                raise
            return await run_cli(
                turn,
                argv,
                parser,
                stdin=unblank(turn.prompt),
                env=child_environment(options),
                cwd=options.cwd,
                options=options,
                program="codex",
                install=INSTALL,
            )

    async def probe(self) -> Probe:
        """Whether codex is there, its version, and whether it has a login."""
        return await probe_codex(self.executable, self.options)


def codex_exec_argv(
    executable: str, turn: AgentTurn, options: AgentOptions, files: Mapping[str, str]
) -> list[str]:
    """The arguments of one turn; the prompt goes to stdin.

    ``files`` may name a ``schema`` and ``instructions``.

    Raises:
        AgentError: an option cannot be said to codex.
    """
    profile, model = options.profile_and_model
    argv = [executable, "exec", "-C", working_folder(options)]
    argv += _PERMISSIONS.get(options.permission or "", ())
    argv += [] if profile is None else ["-p", profile]
    for folder in added_folders(options):
        argv += ["--add-dir", folder]
    if "schema" in files:
        argv += ["--output-schema", files["schema"]]
    for setting, value in _settings(turn, options, files).items():
        argv += ["-c", f"{setting}={toml_value(value)}"]
    # These are known behind `resume` too, the ones above are not.
    tail = ["--json", "--skip-git-repo-check"]
    tail += [] if model is None else ["-m", model]
    tail += options.extra_args or ()
    if turn.session is None:
        return [*argv, *tail, "-"]
    return [*argv, "fork" if turn.fork else "resume", *tail, turn.session, "-"]


def _settings(turn: AgentTurn, options: AgentOptions, files: Mapping[str, str]) -> dict[str, Any]:
    said = {
        "model_reasoning_effort": options.effort,
        "model_instructions_file": files.get("instructions"),
        "developer_instructions": options.append_system_prompt,
    }
    made: dict[str, Any] = {"analytics.enabled": False}  # it adds 5 s to every exit when offline
    made |= {name: value for name, value in said.items() if value is not None}
    return made | mcp_settings(turn.agent, options)


def _files(options: AgentOptions, schema: Mapping[str, Any] | None, put: Put) -> dict[str, str]:
    """The files that codex reads what it is told from."""
    files: dict[str, str] = {}
    if schema is not None:
        files["schema"] = put("schema.json", json.dumps(schema))
    if options.system_prompt is not None:
        files["instructions"] = put("instructions.md", options.system_prompt)
    return files
