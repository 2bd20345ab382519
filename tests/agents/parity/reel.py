"""Scripted acts as reels: what a program prints and does, launch by launch, in its own words.

For programs that ``fake_cli`` does not speak for. The acts and the order of things in them are the
same ones; only the words differ.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from handrail.testing.fake_programs import Dies, Fails, Garbage, Hangs, Says, Tool
from tests.agents.parity import player

SESSION = "ses_0123456789abcdef"
"""The one session of a program that plays reels."""
Act: TypeAlias = Says | Fails | Dies | Garbage | Hangs
Step: TypeAlias = tuple[str, Any]
WAITING = Tool("sleep 600")


class Words(Protocol):
    """How one program says things, as the steps of a reel."""

    resumes_by: str
    """The option that names the session to go on in; empty for a program that has none."""
    refusal: tuple[str, int]
    """What it says on stderr of a session that it does not have, and its exit code then."""

    def started(self) -> list[Step]:
        """The session is there."""
        ...

    def thought(self, text: str, /) -> list[Step]:
        """The model thought."""
        ...

    def tool_started(self, tool: Tool, /) -> list[Step]:
        """A tool begins."""
        ...

    def tool_completed(self, tool: Tool, /) -> list[Step]:
        """It has ended."""
        ...

    def said(self, text: str, /) -> list[Step]:
        """A message before the end."""
        ...

    def retried(self, attempt: int, /) -> list[Step]:
        """The program tries a request again."""
        ...

    def answered(self, says: Says, /) -> list[Step]:
        """The last message, and that it was the last."""
        ...

    def failed(self, kind: str, /) -> list[Step]:
        """There is no answer."""
        ...


def text_of(says: Says) -> str:
    """The last message: of a program that cannot hand over a value, it is the value in JSON."""
    return says.text if says.structured is None else json.dumps(says.structured)


def printed(event: Mapping[str, Any]) -> Step:
    """An event as a line of JSON."""
    return ("prints", json.dumps(event) + "\n")


def install(folder: Path, name: str, acts: Sequence[Act], words: Words) -> Path:
    """A program of this name in the folder, which does one act a launch."""
    folder.mkdir(parents=True, exist_ok=True)
    said, code = words.refusal
    film = {
        "version": "1.2.3",
        "session": SESSION,
        "resumes_by": words.resumes_by,
        "refusal": said,
        "refused_with": code,
        "reels": [list(_reel(act, words)) for act in acts],
    }
    (folder / "reels.json").write_text(json.dumps(film), "utf-8")
    program = folder / name
    command = shlex.join([sys.executable, "-S", "-E", "-I", str(player.__file__), str(folder)])
    program.write_text(f'#!/bin/sh\nexec {command} "$@"\n', "utf-8")
    program.chmod(0o755)
    return program


def _reel(act: Act, words: Words) -> Iterator[Step]:
    if isinstance(act, Garbage):
        yield ("prints", act.data.decode("latin-1"))
        yield ("exits", act.exit_code)
        return
    if act.leaves_child:
        yield ("leaves a child", None)
    for verb, what in _whole(act, words):
        if verb != "at":
            yield (verb, what)
        elif isinstance(act, Hangs) and act.after == what:
            yield ("waits", act.seconds)
        elif isinstance(act, Dies) and act.after == what:
            yield ("exits", act.exit_code) if act.signal is None else ("dies of", act.signal)
            return


def _whole(act: Says | Fails | Dies | Hangs, words: Words) -> Iterator[Step]:
    """All of the act, with the moments (``at``) at which it may stop."""
    says = act if isinstance(act, Says) else act.says
    yield from words.started()
    yield ("at", "start")
    if says.reasoning:
        yield from words.thought(says.reasoning)
    for tool in says.tools:
        yield from words.tool_started(tool)
        yield ("at", "tool")
        yield from words.tool_completed(tool)
    if not isinstance(act, Fails):
        yield from words.answered(says)
        yield ("at", "result")
        return
    if says.text:
        yield from words.said(says.text)
    for number in range(1, act.retries + 1):
        yield from words.retried(number)
    yield from words.failed(act.kind)
