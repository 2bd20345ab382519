"""The agents of ``handrail quickstart``: a script in the place of a model, and real edits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from handrail.agents.fake import FakeBackend
from handrail.cli.quickstart_repository import BUGGY, CODE_FILE

THINKING_S = 0.7
"""How long each answer takes, so that the tree can be read while it grows."""

# Of different lengths: by size and second Python tells whether compiled code is out of date.
TOO_SIMPLE = "return items // per_page + 1"
RIGHT = "return (items + per_page - 1) // per_page"


def scripted() -> FakeBackend:
    """A backend that answers for each agent of ``examples/ship.py``, and edits the code for two."""
    replies: dict[str, list[Any]] = {"planner": [plan], "coder": [implement], "fixer": [fix]}
    return FakeBackend(replies, delay=THINKING_S, name="script")


def plan() -> str:
    """A plan, in the midst of the prose that models write around what they were asked for."""
    return """\
The division rounds down, so a last page that is not full is lost. My plan:

```json
{
  "goal": "Make page_count in pages.py count a last page that is not full.",
  "steps": ["Round the division up", "Leave test_pages.py as it is"],
  "commit_message": "Count the last page when it is not full"
}
```
"""


def implement() -> dict[str, Any]:
    """A first edit that passes one test and breaks two."""
    _replace(BUGGY, TOO_SIMPLE)
    return {"files": [CODE_FILE], "why": "A page that is not full is one more page."}


def fix() -> dict[str, Any]:
    """The edit that passes them all."""
    _replace(TOO_SIMPLE, RIGHT)
    return {"files": [CODE_FILE], "why": "One more only where something is left: round up."}


def _replace(old: str, new: str) -> None:
    file = Path(CODE_FILE)
    file.write_text(file.read_text("utf-8").replace(old, new), "utf-8")
