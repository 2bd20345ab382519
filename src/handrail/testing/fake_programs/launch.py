"""One launch of a fake program: its arguments, its acts, the sessions that it knows."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any, TypeAlias

from handrail.testing.fake_programs.folder import Folder, recorded_environment
from handrail.testing.fake_programs.output import (
    Ended,
    Output,
    Signalled,
    leave_child,
    read_all,
    totals,
)

Entry: TypeAlias = Mapping[str, Any]
UNRECORDED = ("auggie", "cline", "cursor-agent", "droid", "goose", "junie", "kimi", "kiro-cli",
              "vibe-acp")  # fmt: skip
VERSIONS: Mapping[str, str] = {
    "claude": "2.1.330 (Claude Code)",
    "codex": "codex-cli 0.169.0",
    "copilot": "GitHub Copilot CLI 1.0.102.",
    "gemini": "0.61.0",
    "opencode": "1.18.33",
    "qwen": "0.15.10",
    **dict.fromkeys(UNRECORDED, "1.0.0"),
}
"""Each program's answer if it is asked for its version."""
CHILD_LIVES_S = 120.0
"""Long enough for a test to find the child, short enough that a failing test leaves none for long.
"""


class Launch:
    """This process as a launch of a fake program. Mutable."""

    def __init__(self, folder: Folder, name: str, argv: list[str]) -> None:
        script = folder.script()
        self.folder = folder
        self.name = name
        self.argv = argv
        self.out = Output()
        self.stdin = b""
        self._acts: list[Entry] = script["acts"]
        self._call: dict[str, Any] = {
            "argv": [name, *argv],
            "cwd": os.getcwd(),
            "env": recorded_environment(os.environ, script["inherited"]),
            "pid": os.getpid(),
            "started": time.time(),
            "ended": None,
            "exit_code": None,
            "acts": [],
            "children": [],
            "probe": False,
        }
        with folder.state() as state:
            self._number: int = state["launches"]
            state["launches"] += 1
            self._save()

    def probed(self) -> None:
        """Note that this launch only asked for the version."""
        self._call["probe"] = True

    def read_stdin(self, patience_s: float = math.inf) -> str:
        """All of stdin until its end, or until nothing came for ``patience_s``."""
        self.stdin = read_all(0, patience_s)
        return self.stdin.decode(errors="replace")

    def next_act(self, sayable: Container[str] | None = None) -> Entry:
        """Take the act for one prompt; ``sayable`` are the failures that the protocol can express.

        Raises:
            Ended: the script is used up, or the protocol cannot express the failure.
        """
        entry = self.take()
        if entry is None:
            raise Ended(1, self.used_up or "")
        kind: str | None = (entry.get("fail") or {"kind": None})["kind"]
        if sayable is not None and kind is not None and kind not in sayable:
            how = " ".join(self.argv)
            raise Ended(1, f"fake {self.name}: with {how} it has no words for {kind!r}")
        return entry

    def take(self, *, at_launch: bool = False) -> Entry | None:
        """Take the next act of the script for this launch; None if there is none.

        With ``at_launch``, take it only if it acts before any prompt.
        """
        with self.folder.state() as state:
            index: int = state["next"]
            if index >= len(self._acts) or (at_launch and not _at_launch(self._acts[index])):
                return None
            state["next"] = index + 1
        entry = self._acts[index]
        self._call["acts"].append(index)
        self._begin(entry)
        return entry

    @property
    def used_up(self) -> str | None:
        """The message if no act is left; None if one is."""
        with self.folder.state() as state:
            if state["next"] < len(self._acts):
                return None
        return (
            f"fake {self.name}: its script of {len(self._acts)} is used up; "
            "this is one prompt more. Add to the script what it is to do."
        )

    def session(self, session: str) -> Mapping[str, Any] | None:
        """The state of a session; None if there is no such session."""
        with self.folder.state() as state:
            found: Mapping[str, Any] | None = state["sessions"].get(session)
            return found

    def require_session(self, session: str | None, otherwise: Ended) -> None:
        """Raise ``otherwise`` if a session is asked for that does not exist."""
        if session is not None and self.session(session) is None:
            raise otherwise

    def open_session(self, session: str, *, copy_of: str | None = None) -> None:
        """Add a session, if it is new; a copy begins with the usage of the other session."""
        with self.folder.state() as state:
            sessions: dict[str, Any] = state["sessions"]
            none: dict[str, Any] = {"turns": 0, "usage": {}}
            other = none if copy_of is None else sessions[copy_of]
            sessions.setdefault(session, {**other, "usage": dict(other["usage"])})

    def add_usage(self, session: str, usage: Mapping[str, Any]) -> dict[str, Any]:
        """Add to a session's usage; the new total: tokens, and ``cost_usd`` where it is counted."""
        with self.folder.state() as state:
            known = state["sessions"].setdefault(session, {"turns": 0, "usage": {}})
            before, added = known["usage"], totals(usage)
            total = {name: before.get(name, 0) + tokens for name, tokens in added.items()}
            total["cost_usd"] = before.get("cost_usd", 0.0) + (usage.get("cost_usd") or 0.0)
            known["usage"], known["turns"] = total, known["turns"] + 1
            return dict(total)

    def ended(self, code: int) -> None:
        """Record how the launch ended."""
        self._call["ended"], self._call["exit_code"] = time.time(), code
        self._save()

    def _begin(self, entry: Entry) -> None:
        self.out.split, self.out.delay_s = entry["split_utf8"], entry["line_delay_s"]
        for number, ignored in (
            (signal.SIGINT, entry["ignores_sigint"]),
            (signal.SIGTERM, entry["ignores_sigterm"]),
        ):
            signal.signal(number, signal.SIG_IGN if ignored else _tell)
        children: list[int] = self._call["children"]
        if entry["leaves_child"]:
            children.append(leave_child(CHILD_LIVES_S, holding_stdout=False))
        if entry["holds_stdout_s"]:
            children.append(leave_child(entry["holds_stdout_s"], holding_stdout=True))
        self._save()
        if entry["stderr"]:
            self.out.error(entry["stderr"])

    def _save(self) -> None:
        text = self.stdin.decode(errors="replace")
        self.folder.record(self._number, {**self._call, "stdin": text})


def _at_launch(entry: Entry) -> bool:
    stop: Entry = entry.get("hang") or entry.get("death") or {"after": None}
    fail: Entry = entry.get("fail") or {"kind": None}
    return "replay" in entry or bool(stop["after"] == "launch" or fail["kind"] == "config")


def _tell(number: int, _: object) -> None:
    raise Signalled(number)


def tell_signals() -> None:
    """Have SIGINT and SIGTERM raise ``Signalled``."""
    signal.signal(signal.SIGINT, _tell)
    signal.signal(signal.SIGTERM, _tell)


class Options:
    """``given`` maps each option to its values, ``words`` are the arguments that are no option."""

    def __init__(
        self,
        argv: Iterable[str],
        *,
        valued: Iterable[str],
        plain: Iterable[str] = (),
        many: Iterable[str] = (),
        same: dict[str, str] | None = None,
        otherwise: Callable[[str], Ended],
    ) -> None:
        """Read ``argv``.

        ``valued`` options take one value, ``many`` all words up to the next option, ``plain`` none;
        ``same`` maps short names to long ones. ``otherwise`` makes the error with which the program
        ends at any other option.
        """
        self.given: dict[str, list[str]] = {}
        self.words: list[str] = []
        valued, plain, many = set(valued), set(plain), set(many)
        rest = list(argv)
        while rest:
            word = rest.pop(0)
            if word == "--":
                self.words += rest
                break
            if not word.startswith("-") or word == "-":
                self.words.append(word)
                continue
            name, equals, value = word.partition("=")
            name = (same or {}).get(name, name)
            if name not in valued | plain | many:
                raise otherwise(word)
            values = self.given.setdefault(name, [])
            if equals:
                values.append(value)
            elif name in many:
                while rest and not rest[0].startswith("-"):
                    values.append(rest.pop(0))
            elif name in valued and rest:
                values.append(rest.pop(0))

    def __contains__(self, name: str) -> bool:
        return name in self.given

    def get(self, name: str) -> str | None:
        """The last value of an option."""
        values = self.given.get(name)
        return values[-1] if values else None
