"""What any program prints: its answer, and on stderr why there is none."""

from __future__ import annotations

from handrail.testing.fake_programs import Says, Tool
from tests.agents.parity.reel import Step, text_of


class PlainOutput:
    """The words of ``command``: there are none but the answer and the exit code."""

    resumes_by = ""
    refusal: tuple[str, int] = ("", 0)

    def started(self) -> list[Step]:
        """A sign of life, which is no part of the answer."""
        return [("complains", "It begins.\n")]

    def thought(self, _: str) -> list[Step]:
        """Nothing."""
        return []

    def tool_started(self, _: Tool) -> list[Step]:
        """Nothing."""
        return []

    def tool_completed(self, _: Tool) -> list[Step]:
        """Nothing."""
        return []

    def said(self, text: str) -> list[Step]:
        """A part of the answer."""
        return [("prints", text)]

    def retried(self, _: int) -> list[Step]:
        """Nothing."""
        return []

    def answered(self, says: Says) -> list[Step]:
        """The answer."""
        return self.said(text_of(says))

    def failed(self, kind: str) -> list[Step]:
        """A complaint, and an exit code."""
        return [("complains", f"It did not work: {kind}\n"), ("exits", 1)]
