"""How it is told that a cassette does not hold what is asked for."""

from __future__ import annotations

from collections.abc import Sequence

from handrail.errors import HandrailError
from handrail.workspace.errors import RECORD_AGAIN

_SHOWN = 20


class CassetteMismatch(HandrailError):
    """An agent was given another prompt than the one that was recorded.

    ``recording`` is the file of the nearest one, ``difference`` a unified diff from its prompt to
    the one of now.
    """

    def __init__(self, agent: str, path: str, launch: int, recording: str, difference: str) -> None:
        super().__init__(agent, path, launch, recording, difference)
        self.agent = agent
        self.path = path
        self.launch = launch
        self.recording = recording
        self.difference = difference

    def __str__(self) -> str:
        return (
            f"launch {self.launch} of agent {self.agent!r} at {self.path!r} has another prompt "
            f"than the nearest recording, {self.recording}:\n{self.difference}\n{RECORD_AGAIN}"
        )


class CassetteMissing(HandrailError):
    """A launch of an agent was not recorded; ``known`` are the recordings that there are."""

    def __init__(
        self, agent: str, path: str, launch: int, folder: str, known: Sequence[str]
    ) -> None:
        super().__init__(agent, path, launch, folder, tuple(known))
        self.agent = agent
        self.path = path
        self.launch = launch
        self.folder = folder
        self.known = tuple(known)

    def __str__(self) -> str:
        more = len(self.known) - _SHOWN
        shown = ", ".join(self.known[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
        return (
            f"launch {self.launch} of agent {self.agent!r} at {self.path!r} is not recorded in "
            f"{self.folder}. Recorded: {shown or 'nothing'}. {RECORD_AGAIN}"
        )
