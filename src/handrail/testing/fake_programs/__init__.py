"""Fake agent programs for tests: they speak the real protocols, and do what a script says."""

from __future__ import annotations

from handrail.testing.fake_programs.acts import (
    Act,
    Dies,
    Fails,
    Failure,
    Garbage,
    Hangs,
    Moment,
    Replays,
    Says,
    Tool,
)
from handrail.testing.fake_programs.cli import FakeCall, FakeCli, Program, fake_cli

__all__ = [
    "Act",
    "Dies",
    "Fails",
    "Failure",
    "FakeCall",
    "FakeCli",
    "Garbage",
    "Hangs",
    "Moment",
    "Program",
    "Replays",
    "Says",
    "Tool",
    "fake_cli",
]
