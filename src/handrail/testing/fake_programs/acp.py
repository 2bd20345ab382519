"""The Agent Client Protocol, version 1, as gemini, opencode and copilot speak it.

Source: recordings of gemini 0.61.0, opencode 1.18.33 and copilot 1.0.102, which the tests hold it
to.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from handrail.testing.fake_programs.acp_agents import AGENTS, Agent, Told
from handrail.testing.fake_programs.launch import Entry, Launch
from handrail.testing.fake_programs.output import new_id
from handrail.testing.fake_programs.rpc import Message, Peer
from handrail.testing.fake_programs.turn import final_text, perform

DELTA = 12
NOT_OPEN = -32602


class Cancelled(Exception):
    """The client cancelled the prompt."""


def run(launch: Launch) -> int:
    """Serve until the client closes."""
    if reason := launch.used_up:
        launch.out.error(reason + "\n")
        return 1
    return _Server(launch, AGENTS[launch.name]).peer.serve()


class _Server:
    """What the agent knows of its client. Mutable."""

    def __init__(self, launch: Launch, agent: Agent) -> None:
        self.peer = Peer(launch, self._hear, version=True)
        self._launch = launch
        self._agent = agent
        self._modes: dict[str, str] = {}

    def _hear(self, message: Message) -> None:
        params: Message = message.get("params") or {}
        match message.get("method"):
            case "initialize":
                self.peer.answer(message, {"protocolVersion": 1, **self._agent.about})
            case "session/new":
                self._opened(message)
            case "session/load" | "session/resume":
                self._resumed(message, params["sessionId"])
            case "session/fork" if self._agent.forks:
                self._forked(message, params["sessionId"])
            case "session/prompt":
                self._prompted(message, params)
            case "session/set_mode":
                self._modes[params["sessionId"]] = params["modeId"]
                self.peer.answer(message, {})
            case (
                "session/set_model" | "session/set_config_option" | "session/close" | "authenticate"
            ):
                self.peer.answer(message, {})
            case str() as method if "id" in message:
                self.peer.refuse(message, -32601, f'"Method not found": {method}')
            case _:
                pass

    def _opened(self, message: Message, *, copy_of: str | None = None) -> None:
        session = self._agent.new_session(new_id())
        self._launch.open_session(session, copy_of=copy_of)
        self.peer.answer(message, {"sessionId": session, **self._agent.session})
        self._commands(session)

    def _resumed(self, message: Message, session: str) -> None:
        if self._is_known(message, session):
            self.peer.answer(message, dict(self._agent.session))
            self._commands(session)

    def _forked(self, message: Message, session: str) -> None:
        if self._is_known(message, session):
            self._opened(message, copy_of=session)

    def _is_known(self, message: Message, session: str) -> bool:
        """False for a session that there is not, which is said."""
        if self._launch.session(session) is not None:
            return True
        told = self._agent.no_session(session)
        self.peer.refuse(message, told.code or 0, told.text, told.data)
        return False

    def _commands(self, session: str) -> None:
        commands: Message = {"sessionUpdate": "available_commands_update", "availableCommands": []}
        self.peer.tell("session/update", {"sessionId": session, "update": commands})

    def _prompted(self, message: Message, params: Message) -> None:
        session = params.get("sessionId", "")
        if self._launch.session(session) is None:
            self.peer.refuse(message, NOT_OPEN, f"Session not found: {session}")
            return
        entry = self._launch.take()
        if entry is None:
            reason = self._launch.used_up or ""
            self._launch.out.error(reason + "\n")
            self.peer.refuse(message, -32603, reason)
            return
        asks = self._modes.get(session) != "yolo"
        voice = _Voice(self._launch, self.peer, self._agent, entry, message, asks=asks)
        try:
            perform(self._launch, voice, entry)
        except Cancelled:
            voice.stopped()


class _Voice:
    """What the agent says in one turn. Mutable."""

    def __init__(
        self,
        launch: Launch,
        peer: Peer,
        agent: Agent,
        entry: Entry,
        asked: Message,
        *,
        asks: bool,
    ) -> None:
        self._launch = launch
        self._peer = peer
        self._agent = agent
        self._entry = entry
        self._asked = asked
        self._asks = asks
        self._session = asked["params"]["sessionId"]
        self._tool: dict[str, Any] = {}

    def started(self) -> None:
        """The session is there already."""

    def noise(self, size: int) -> None:
        self._update("fake_noise", padding="·" * (size // 2))

    def retried(self, attempt: int, _: Entry) -> None:
        if self._agent.name == "gemini":  # nothing on stdout
            self._launch.out.error(f"Attempt {attempt} failed. Retrying with backoff...\n")

    def thought(self, text: str) -> None:
        self._update("agent_thought_chunk", content={"type": "text", "text": text})

    def said(self, text: str) -> None:
        about = {"messageId": f"msg_{new_id()}"} if self._agent.message_ids else {}
        for at in range(0, len(text), DELTA):
            chunk = {"type": "text", "text": text[at : at + DELTA]}
            self._update("agent_message_chunk", **about, content=chunk)

    def tool_started(self, tool: Entry) -> bool:
        title = tool["command"] or tool["name"]
        self._tool = {"toolCallId": f"call_{new_id()[:20]}", "title": title, "kind": "execute"}
        given: Mapping[str, Any] = tool["input"] or {"command": tool["command"]}
        if "content" in tool:
            path = os.path.abspath(tool["path"])
            given = {"path": path}
            self._tool |= {"kind": "edit", "title": path, "locations": [{"path": path}]}
        status = "in_progress" if self._agent.name == "gemini" else "pending"
        raw = {} if self._agent.name == "gemini" else {"rawInput": given}
        self._update("tool_call", **self._tool, status=status, **raw)
        return not (tool["asks"] and self._asks) or self._allowed(given)

    def _allowed(self, given: Mapping[str, Any]) -> bool:
        raw = {} if self._agent.name == "gemini" else {"rawInput": given}
        call = {**self._tool, "status": "pending", **raw}
        options = self._agent.choices
        asked = {"sessionId": self._session, "toolCall": call, "options": options}
        _, reply = self._peer.ask("session/request_permission", asked)
        result: Message = reply.get("result") or {}
        outcome: Message = result.get("outcome") or {}
        return outcome.get("optionId") in [one["optionId"] for one in options[:2]]

    def tool_completed(self, tool: Entry, *, allowed: bool) -> None:
        text = tool["output"] if allowed else "The user rejected the tool call."
        failed = not allowed or (tool["exit_code"] != 0 and self._agent.name == "gemini")
        block = {"type": "content", "content": {"type": "text", "text": text}}
        more = self._agent.raw_output(text, tool["exit_code"]) if allowed else {}
        about = {"toolCallId": self._tool["toolCallId"], "content": [block]}
        self._update(
            "tool_call_update", status="failed" if failed else "completed", **about, **more
        )

    def answered(self) -> None:
        self.said(final_text(self._entry))

    def wait(self, seconds: float) -> None:
        cancelled = self._peer.wait(seconds, lambda message: message.get("method") == CANCEL)
        if cancelled:
            raise Cancelled

    def completed(self) -> int:
        total = self._launch.add_usage(self._session, self._entry["usage"])
        for update in self._agent.usage_updates(self._entry["usage"], total["cost_usd"]):
            self._update("usage_update", **update)
        told = self._agent.reply_usage(self._entry["usage"], self._entry["model"])
        self._peer.answer(self._asked, {"stopReason": "end_turn", **told})
        return 0

    def failed(self, fail: Entry) -> int:
        told: Told = self._agent.failure(fail)
        if told.code is not None:
            self._peer.refuse(self._asked, told.code, told.text, told.data)
            return 1
        if told.text:
            self._update("agent_message_chunk", content={"type": "text", "text": told.text})
        self._peer.answer(self._asked, {"stopReason": told.stop_reason})
        return 1

    def stopped(self) -> None:
        """The client cancelled."""
        self._peer.answer(self._asked, {"stopReason": "cancelled"})

    def interrupted(self, number: int, *, in_tool: bool) -> int:  # noqa: ARG002
        return -number if self._agent.name == "opencode" else 0

    def _update(self, what: str, /, **more: Any) -> None:
        update = {"sessionUpdate": what, **more}
        self._peer.tell("session/update", {"sessionId": self._session, "update": update})


CANCEL = "session/cancel"
