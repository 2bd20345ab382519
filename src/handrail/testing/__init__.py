"""The test kit: scripted runs, fake agents, a clock that jumps, crashes, the laws of every port.

Each name is imported when it is first used. Only the module ``contracts`` needs pytest, and only
``strategies`` needs hypothesis. ``import *`` imports neither of them; ``from handrail.testing
import contracts`` does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from handrail.agents.cassette.cassette import Cassette as Cassette
    from handrail.agents.cassette.cassette import cassette as cassette
    from handrail.agents.fake import FakeBackend as FakeBackend
    from handrail.agents.fake_agent import FakeAgent as FakeAgent
    from handrail.replay_checks import assert_replays as assert_replays
    from handrail.replay_checks import recorded_runs as recorded_runs
    from handrail.replay_checks import replay as replay
    from handrail.sinks.memory import MemorySink as MemorySink
    from handrail.testing.clock import JumpClock as JumpClock
    from handrail.testing.crashes import Crashes as Crashes
    from handrail.testing.crashes import crash_everywhere as crash_everywhere
    from handrail.testing.fake_programs import Dies as Dies
    from handrail.testing.fake_programs import Fails as Fails
    from handrail.testing.fake_programs import FakeCall as FakeCall
    from handrail.testing.fake_programs import FakeCli as FakeCli
    from handrail.testing.fake_programs import Garbage as Garbage
    from handrail.testing.fake_programs import Hangs as Hangs
    from handrail.testing.fake_programs import Replays as Replays
    from handrail.testing.fake_programs import Says as Says
    from handrail.testing.fake_programs import Tool as Tool
    from handrail.testing.fake_programs import fake_cli as fake_cli
    from handrail.testing.script import Script as Script
    from handrail.testing.script_pending import Pending as Pending
    from handrail.testing.text_journal import ProcessGone as ProcessGone
    from handrail.testing.text_journal import TextJournal as TextJournal

_NAMES = {
    "handrail.agents.cassette.cassette": "Cassette cassette",
    "handrail.agents.fake": "FakeBackend",
    "handrail.agents.fake_agent": "FakeAgent",
    "handrail.replay_checks": "assert_replays recorded_runs replay",
    "handrail.sinks.memory": "MemorySink",
    "handrail.testing.clock": "JumpClock",
    "handrail.testing.crashes": "Crashes crash_everywhere",
    "handrail.testing.fake_programs": """
        Dies Fails FakeCall FakeCli Garbage Hangs Replays Says Tool fake_cli
    """,
    "handrail.testing.script": "Script",
    "handrail.testing.script_pending": "Pending",
    "handrail.testing.text_journal": "ProcessGone TextJournal",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}
_NEEDS = {"contracts": "pytest", "strategies": "hypothesis"}


def __getattr__(name: str) -> Any:
    """Import a name's module when the name is first used.

    Raises:
        ModuleNotFoundError: the module needs a library that is not installed; the text names it.
    """
    if name in _NEEDS:
        return _module(name)
    if name not in _HOME:
        raise AttributeError(f"module 'handrail.testing' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_HOME[name]), name)
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
    return sorted({*globals(), *_HOME, *_NEEDS})


if not TYPE_CHECKING:  # a type checker reads the imports above
    __all__ = [*sorted(_HOME)]  # noqa: PLE0604 - all are strings
