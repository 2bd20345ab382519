"""Codex through ``codex exec --json``: one process a turn, simple, with less detail on errors."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, ClassVar

import attrs

from handrail.agents.codex.backend import CAPABILITIES, with_profile
from handrail.agents.codex.errors import diagnose
from handrail.agents.codex.settings import mcp_settings
from handrail.agents.codex.turn import RETRY, CodexTurn
from handrail.agents.transport.cli import (
    Lines,
    ProgramBackend,
    WriteFile,
    added_folders,
    non_blank,
    private_files,
    working_folder,
)
from handrail.agents.transport.loose_json import (
    Object,
    json_value,
    object_in,
    text_in,
    toml_value,
)
from handrail.agents.transport.parser import Ending
from handrail.agents.transport.programs import CODEX
from handrail.agents.transport.strict_schema import strict_schema
from handrail.agents.transport.turn import finished_notice
from handrail.agents.transport.turn_state import EventReader, added_since, usage_in
from handrail.model.agent_options import AgentOptions
from handrail.model.dataclass import dataclass
from handrail.model.events import AgentUsage, Notice
from handrail.model.launch import AgentError
from handrail.model.results import Usage
from handrail.ports.agent import AgentReply, AgentTurn, Capabilities

# Reads what ``codex exec --json`` prints for one turn.
#
# Only ``turn.completed`` and ``turn.failed`` end a turn. A top-level ``error`` announces a retry of
# codex's, or the error of ``turn.failed``; an item of type ``error`` is a warning. Messages arrive
# whole.
#
# Source: ``codex-rs/exec/src/exec_events.rs``, and the output of codex 0.169.

_OLDER_RETRY = re.compile(r"^(?P<why>[^;]{1,2000}); retrying (?P<number>\d{1,9})/\d")
_EVENTS = frozenset(
    {"thread.started", "turn.started", "turn.completed", "turn.failed", "error"}
    | {"item.started", "item.updated", "item.completed"}
)
_WORK = frozenset({"turn.started", "item.started", "item.updated", "item.completed"})


@dataclass(frozen=True, slots=True)
class _Outcome:
    """How codex ended the turn: why it failed, None if it did not."""

    failure: str | None


class CodexExecParser(CodexTurn, EventReader):
    """Reads one turn of ``codex exec``. Mutable.

    ``has_schema``: a schema was sent with the prompt, so the answer's JSON is its value.
    """

    def __init__(
        self,
        turn: AgentTurn,
        *,
        backend: str = "codex-exec",
        model: str | None = None,
        has_schema: bool = False,
    ) -> None:
        super().__init__(turn, backend=backend, model=model)
        self._has_schema = has_schema

    @property
    def finished(self) -> bool:
        """True once the turn is over, or codex waits for a network in vain."""
        return self.end.is_reached or self.is_offline

    def conclude(self, ending: Ending, /) -> AgentReply:
        """The answer, if codex printed ``turn.completed``.

        Raises:
            AgentError: codex did not.
        """
        outcome: _Outcome | None = self.end.outcome
        if outcome is not None and outcome.failure is None:
            has_value, value = json_value(self.text) if self._has_schema else (False, None)
            return self.reply(value=value, has_value=has_value)
        if outcome is not None:
            raise self.failed(diagnose(outcome.failure or "", ending.now), ending)
        raise self.unfinished(ending)

    def read(self, name: str, event: Object) -> Iterator[Notice]:
        """The notices of an event, in order."""
        self.saw_protocol = self.saw_protocol or name in _EVENTS
        if name in _WORK:
            self.end.went_on()
        match name:
            case "thread.started":
                yield from self.session_named(text_in(event, "thread_id"))
            case "item.started" | "item.updated":
                yield from self.item_started(_in_camel_case(object_in(event, "item")))
            case "item.completed":
                yield from self.item_completed(_in_camel_case(object_in(event, "item")))
            case "error":
                yield from self._on_error(text_in(event, "message"))
            case "turn.completed":
                yield from self._on_turn_completed(object_in(event, "usage"))
            case "turn.failed":
                error = text_in(object_in(event, "error"), "message")
                why = error or text_in(event, "error", "message") or self.complaint
                self.end.resulted(_Outcome(why))
                self.close_tools()
            case _:
                pass

    def _on_error(self, message: str) -> Iterator[Notice]:
        self.complaint = message or self.complaint
        if retry := RETRY.match(message) or _OLDER_RETRY.match(message):
            yield self.retried(message, retry["why"].strip("() ") or message, retry["number"])

    def _on_turn_completed(self, usage: Object) -> Iterator[Notice]:
        """Note the end and the thread's total; this turn's part is unknown if that before is."""
        self.end.resulted(_Outcome(None))
        self.close_tools()
        total = self.session_usage = _total(usage)
        goes_on = total is not None and self.turn.session is not None
        self.usage = added_since(self.turn.session_usage, total) if goes_on and total else total
        if self.usage is not None:
            yield AgentUsage(self.path, self.usage)


def _in_camel_case(item: Object) -> Object:
    """An item with its fields spelled as in ``codex app-server``."""
    renamed = {_camel(name): value for name, value in item.items()}
    renamed["type"] = _camel(text_in(item, "type"))
    return renamed


@lru_cache(maxsize=256)
def _camel(name: str) -> str:
    first, *more = name.split("_")
    return first + "".join(map(str.capitalize, more))


def _total(usage: Object) -> Usage | None:
    return usage_in(
        usage,
        input_tokens="input_tokens",
        output_tokens="output_tokens",
        cached_tokens="cached_input_tokens",
        cache_write_tokens="cache_write_input_tokens",
        reasoning_tokens="reasoning_output_tokens",
    )


_PERMISSIONS: dict[str, tuple[str, ...]] = {
    "read_only": ("-s", "read-only"),
    "workspace": ("-s", "workspace-write"),
    "full": ("--dangerously-bypass-approvals-and-sandbox",),
}


@attrs.frozen
class CodexExecBackend(ProgramBackend):
    """``codex exec``, one process a turn; it continues and forks threads.

    Codex does not do what it may not do without asking, because nobody is asked. A blank prompt,
    which codex refuses, is sent as ``Continue.``.
    """

    executable: str = "codex"

    name: ClassVar[str] = "codex-exec"
    program = CODEX
    capabilities: ClassVar[Capabilities] = CAPABILITIES

    async def complete(self, turn: AgentTurn, /) -> AgentReply:
        """The last message of the turn, once codex declared the turn completed.

        Raises:
            AgentError: codex did not; the error has the reason and its kind.
        """
        options = with_profile(turn.agent, turn.options.over(self.options))
        strict = None if turn.schema is None else strict_schema(turn.schema)
        parser = CodexExecParser(
            turn,
            backend=self.name,
            model=options.profile_and_model[1],
            has_schema=strict is not None,
        )
        with private_files("codex") as write_file:
            files = _files(options, strict, write_file)
            try:
                argv = codex_exec_argv(self.executable, turn, options, files)
            except AgentError as error:
                turn.emit(finished_notice(turn.path, error))
                raise
            return await self._run(turn, argv, Lines(parser, non_blank(turn.prompt)))


def codex_exec_argv(
    executable: str, turn: AgentTurn, options: AgentOptions, files: Mapping[str, str]
) -> list[str]:
    """The command line of one turn; the prompt goes to stdin.

    ``files`` may name a ``schema`` and ``instructions``.

    Raises:
        AgentError: codex has no equivalent of an option.
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
    # Codex accepts these arguments also after `resume`, but not those above.
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


def _files(
    options: AgentOptions, schema: Mapping[str, Any] | None, write_file: WriteFile
) -> dict[str, str]:
    """The files with the schema and the instructions, for codex to read."""
    files: dict[str, str] = {}
    if schema is not None:
        files["schema"] = write_file("schema.json", json.dumps(schema))
    if options.system_prompt is not None:
        files["instructions"] = write_file("instructions.md", options.system_prompt)
    return files
