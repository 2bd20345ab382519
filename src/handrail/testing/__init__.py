"""The test kit: scripted runs, fake agents, a clock that jumps, crashes, the laws of every port.

Each name is imported when it is first used. Only the module ``contracts`` needs pytest, only
``strategies`` needs hypothesis: ``import *`` takes neither, ``from handrail.testing import
contracts`` does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from handrail.agents.cassette.cassette import Cassette, cassette
    from handrail.agents.fake import FakeBackend
    from handrail.agents.fake_agent import FakeAgent
    from handrail.replays import assert_replays, recorded_runs, replay
    from handrail.sinks.memory import MemorySink
    from handrail.testing.clock import JumpClock
    from handrail.testing.crashes import Crashes, crash_everywhere
    from handrail.testing.fake_programs import (
        Dies,
        Fails,
        FakeCall,
        FakeCli,
        Garbage,
        Hangs,
        Replays,
        Says,
        Tool,
        fake_cli,
    )
    from handrail.testing.script import Script
    from handrail.testing.script_pending import Pending
    from handrail.testing.text_journal import ProcessGone, TextJournal

_LAZY = {
    "Cassette": "handrail.agents.cassette.cassette",
    "Crashes": "handrail.testing.crashes",
    "FakeAgent": "handrail.agents.fake_agent",
    "FakeBackend": "handrail.agents.fake",
    **dict.fromkeys(
        (
            "Dies",
            "Fails",
            "FakeCall",
            "FakeCli",
            "Garbage",
            "Hangs",
            "Replays",
            "Says",
            "Tool",
            "fake_cli",
        ),
        "handrail.testing.fake_programs",
    ),
    "JumpClock": "handrail.testing.clock",
    "MemorySink": "handrail.sinks.memory",
    "Pending": "handrail.testing.script_pending",
    "ProcessGone": "handrail.testing.text_journal",
    "Script": "handrail.testing.script",
    "TextJournal": "handrail.testing.text_journal",
    "cassette": "handrail.agents.cassette.cassette",
    "crash_everywhere": "handrail.testing.crashes",
    **dict.fromkeys(("assert_replays", "recorded_runs", "replay"), "handrail.replays"),
}
_NEEDS = {"contracts": "pytest", "strategies": "hypothesis"}

__all__ = [
    "Cassette",
    "Crashes",
    "Dies",
    "Fails",
    "FakeAgent",
    "FakeBackend",
    "FakeCall",
    "FakeCli",
    "Garbage",
    "Hangs",
    "JumpClock",
    "MemorySink",
    "Pending",
    "ProcessGone",
    "Replays",
    "Says",
    "Script",
    "TextJournal",
    "Tool",
    "assert_replays",
    "cassette",
    "crash_everywhere",
    "fake_cli",
    "recorded_runs",
    "replay",
]


def __getattr__(name: str) -> Any:
    """What is asked for, imported now.

    Raises:
        ModuleNotFoundError: it needs a library that is not installed; the text names it.
    """
    if name in _NEEDS:
        return _module(name)
    if name not in _LAZY:
        raise AttributeError(f"module 'handrail.testing' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_LAZY[name]), name)
    return found


def _module(name: str) -> Any:
    try:
        return import_module(f"handrail.testing.{name}")
    except ModuleNotFoundError as error:
        library = _NEEDS[name]
        if error.name != library:
            raise
        raise ModuleNotFoundError(
            f"handrail.testing.{name} needs {library}: pip install {library}", name=library
        ) from error


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_NEEDS})
