"""What the tests of ``examples/ship.py`` share: a plan, a test of its outcome, and edits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from examples.ship import Change, Plan

PLAN = Plan("Have x be 2", ["Edit clean.py"], "Set x to 2")
TEST = """\
import unittest
from clean import x

class X(unittest.TestCase):
    def test_x(self):
        self.assertEqual(2, x)
"""


def edit(text: str, why: str) -> Callable[[], Change]:
    """An edit of the file as a reply of an agent."""

    def reply() -> Change:
        Path("clean.py").write_text(text, "utf-8")
        return Change(["clean.py"], why)

    return reply
