"""A fake program's folder: script, state, calls. The test and the program both read it.

The program runs without site-packages, so that it starts fast: this module and all that it imports
must do with the standard library.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Generator, Mapping
from typing import Any

OURS = ("ANTHROPIC_", "CLAUDE", "CODEX_", "COPILOT_", "GEMINI_", "GOOGLE_", "HANDRAIL_", "OPENAI_",
        "OPENCODE_")  # fmt: skip
SECRET = ("KEY", "TOKEN", "SECRET", "PASSWORD", "AUTH")


def read_json(path: str) -> Any:
    """The data of a JSON file."""
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def write_json(path: str, data: object) -> None:
    """Write a file so that readers see all old or all new data, even if this process is killed."""
    draft = f"{path}.{os.getpid()}"
    with open(draft, "w", encoding="utf-8") as file:
        json.dump(data, file)
    os.replace(draft, path)


def new_state(sessions: Mapping[str, Any]) -> dict[str, Any]:
    """The state of a folder before the first launch."""
    return {"next": 0, "launches": 0, "sessions": dict(sessions)}


class Folder:
    """The folder of one fake program."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.calls = os.path.join(path, "calls")

    def script(self) -> dict[str, Any]:
        """``name``, ``acts``, and ``inherited``: the names of the variables that the test had."""
        found: dict[str, Any] = read_json(os.path.join(self.path, "script.json"))
        return found

    @contextlib.contextmanager
    def state(self) -> Generator[dict[str, Any]]:
        """The state that launches share, locked for this one until the block ends."""
        path = os.path.join(self.path, "state.json")
        with open(os.path.join(self.path, "lock"), "wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            state = read_json(path)
            yield state
            write_json(path, state)

    def record(self, number: int, call: Mapping[str, Any]) -> None:
        """Write what is known of a launch."""
        write_json(os.path.join(self.calls, f"{number:06}.json"), call)

    def records(self) -> list[dict[str, Any]]:
        """Every launch so far, in the order in which they began."""
        names = sorted(name for name in os.listdir(self.calls) if name.endswith(".json"))
        return [read_json(os.path.join(self.calls, name)) for name in names]


def recorded_environment(environ: Mapping[str, str], inherited: list[str]) -> dict[str, str]:
    """The variables that the caller added, and those that such programs read; secrets masked."""
    had = set(inherited)
    return {
        name: "***" if any(word in name.upper() for word in SECRET) else value
        for name, value in environ.items()
        if name not in had or name.startswith(OURS)
    }
