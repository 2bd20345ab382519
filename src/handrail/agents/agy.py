"""Google Antigravity's command line, ``agy``: lines of JSON both ways, one process a turn.

Source: the program's pages, its issues, and outputs of agy 1.1.8 to 1.2.17 that others published.
It was tried only against a stub that prints the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import ClassVar

import attrs

from handrail.agents.transport.cli import (
    Lines,
    ProgramBackend,
    added_folders,
    non_blank,
    working_folder,
)
from handrail.agents.transport.failures import Diagnosis, better_kind, reset_time_in, rows
from handrail.agents.transport.loose_json import Object, object_in, objects_in, text_in, whole_in
from handrail.agents.transport.parser import Ending
from handrail.agents.transport.programs import Program
from handrail.agents.transport.turn_state import EventReader, usage_in
from handrail.model.events import AgentMessage, Notice
from handrail.model.results import Usage
from handrail.model.sandbox import LAUNCH_OPTIONS
from handrail.ports.agent import AgentReply, AgentTurn, Capabilities

AGY = Program(
    "agy",
    install="curl -fsSL https://antigravity.google/cli/install.sh | bash",
    login="agy, and sign in",
    hints={
        "auth": "Run `agy` in a terminal and sign in; then resume.",
        "config": "Compare the arguments with `agy --help`; it must be 1.1.15 or newer.",
    },
)
_PERMISSIONS = {
    "workspace": ("--mode", "accept-edits"),
    "full": ("--dangerously-skip-permissions",),
}
_LONGEST = "12h"
"""Its own limit, by default 5 minutes; the timeouts of the options end it sooner."""
_TIMED_OUT = re.compile(r"^\[agy\] print timeout after ", re.MULTILINE)
_ROWS = rows(
    {None},
    ("auth", r"authentication (?:required|failed)|not (?:logged|signed) in", r"please sign in"),
    ("usage_cap", r"quota reached|exhausted your quota"),
    ("spending_cap", r"credits balance is too low"),
    ("bad_request", r"invalid model selection"),
    ("rate_limit", r"resource_exhausted|\b429\b"),
)


class AgyParser(EventReader):
    """Reads one turn of agy: ``init``, ``step_update`` for each step, and a ``result``. Mutable."""

    key = "event"

    def __init__(self, turn: AgentTurn) -> None:
        super().__init__(turn, AGY, model=turn.options.model)
        self._pieces: dict[str, str] = {}

    @property
    def finished(self) -> bool:
        """True once it printed the result, or has not the session that it was to go on in."""
        return self.end.is_reached or self.has_no_session

    def read(self, name: str, event: Object) -> Iterator[Notice]:
        """The notices of an event. It begins another conversation in place of one it lacks."""
        data, self.saw_protocol = object_in(event, name), True
        if name == "init":
            session = text_in(event, "conversation_id")
            self.has_no_session = self.turn.session not in (None, session)
            self.model = text_in(data, "model") or self.model
        if self.has_no_session:
            return
        if name == "init":
            yield from self.session_named(session)
        elif name == "step_update":
            yield from self._on_step(data)
        elif name == "result":
            yield from self._on_result(data)

    def _on_step(self, step: Object) -> Iterator[Notice]:
        """A sub-agent's steps are of another conversation, and its messages are not the agent's."""
        conversation, state = text_in(step, "conversation_id"), text_in(step, "state")
        ref = f"{conversation}/{whole_in(step, 'step_index')}"
        tool, info = text_in(step, "tool_name"), object_in(step, "tool_info")
        if text_in(step, "step_type") != "agent_response":
            if tool:
                yield from self.tool_started(ref, tool, info.get("parameters"))
            if state in ("DONE", "ERROR"):
                failure = text_in(object_in(info, "error"), "message")
                if "permission check failed" in failure:
                    yield self.denied(tool, failure)
                output = text_in(info, "output") or failure
                yield from self.tool_ended(ref, is_ok=state == "DONE", output=output)
        elif conversation in ("", self.session):
            self._pieces[ref] = self._pieces.get(ref, "") + text_in(step, "text_delta")
            self.complaint = text_in(object_in(step, "error"), "message") or self.complaint
            if state != "ACTIVE":
                self.calls += 1
                yield from self._messages()

    def _messages(self) -> Iterator[Notice]:
        pieces, self._pieces = self._pieces, {}
        for text in filter(None, pieces.values()):
            self.text = text
            yield AgentMessage(self.path, text)

    def _on_result(self, result: Object) -> Iterator[Notice]:
        yield from self._messages()
        if not self.denials:
            for denied in objects_in(result, "denied_actions"):
                yield self.denied(text_in(denied, "display_name", "action"), "nobody was asked")
        self.end.resulted(result)
        self.close_tools()
        self.text = (text_in(result, "response") or self.text).rstrip("\n")
        self.usage = _usage(object_in(result, "usage"))
        yield from self.used(self.usage)

    def conclude(self, ending: Ending, /) -> AgentReply:
        """The answer, if the result is a success. Its exit code says nothing.

        Raises:
            AgentError: it is not, or there is none.
        """
        if self.has_no_session:
            raise self.error("bad_request", f"agy does not have session {self.turn.session!r}")
        if _TIMED_OUT.search(ending.stderr):  # which it calls a success
            raise self.error("timeout", f"agy did not finish within its own limit, {_LONGEST}")
        result: Object = self.end.outcome or {}
        status = text_in(result, "status")
        if status == "SUCCESS":
            return self.reply(session_usage=self.summed_usage)
        if status == "CANCELED" and ending.stopped is None:
            reason = 'agy ended its turn: a tool needs a permission. permission="full" gives it.'
            raise self.error("config", reason)
        said = text_in(result, "error") or self.complaint
        kind = better_kind(None, said, _ROWS)
        if ending.stopped is not None or not (kind or status):
            raise self.unfinished(ending)
        kind, reason = (
            kind or "transient",
            " ".join(said.split()) or "agy did not say why it failed",
        )
        raise self.failed(Diagnosis(kind, reason, reset_time_in(kind, said, ending.now)), ending)


def _usage(data: Object) -> Usage | None:
    """The tokens of all calls of the turn; it prints only zeros where it does not know them."""
    usage = usage_in(
        data,
        input_tokens="input_tokens",
        output_tokens="output_tokens",
        cached_tokens="cache_read_tokens",
        reasoning_tokens="thinking_tokens",
    )
    if usage is None or not (usage.input_tokens or usage.output_tokens):
        return None
    return replace(usage, input_tokens=(usage.input_tokens or 0) + (usage.cached_tokens or 0))


@attrs.frozen
class AgyBackend(ProgramBackend):
    """``agy`` with its events, one process a turn; it continues conversations.

    It asks nobody. With ``permission="workspace"`` it edits files and does what its settings allow;
    the rest it denies itself. There is no level at which it only reads.
    """

    executable: str = "agy"

    name: ClassVar[str] = "agy"
    program = AGY
    variables: ClassVar[Mapping[str, str]] = {"AGY_CLI_DISABLE_AUTO_UPDATE": "T"}
    capabilities: ClassVar[Capabilities] = Capabilities(
        options=frozenset({"model", "permission", "cwd", "add_dirs", "env", "extra_args"})
        | LAUNCH_OPTIONS,
        permissions=frozenset(_PERMISSIONS),
        sessions=True,
        usage=True,
        reset_times=True,
    )

    async def _answer(self, turn: AgentTurn) -> AgentReply:
        """The last message of the turn."""
        options = turn.options
        argv = [self.executable, "--input-format", "stream-json", "--output-format", "stream-json"]
        argv += ["--print-timeout", _LONGEST, *_PERMISSIONS.get(options.permission or "", ())]
        argv += [] if options.model is None else ["--model", options.model]
        for folder in (working_folder(options), *added_folders(options)):
            argv += ["--add-dir", folder]
        argv += options.extra_args or ()
        argv += [] if turn.session is None else ["--conversation", turn.session]
        asked = {"event": "user", "message": {"content": non_blank(turn.prompt).decode()}}
        stdin = json.dumps(asked).encode() + b"\n"
        return await self._run(turn, argv, Lines(AgyParser(turn), stdin))
