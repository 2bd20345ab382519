"""Recorded values whose class is not known here; apart from the codec, which costs more to load."""

from __future__ import annotations

from dataclasses import dataclass

from handrail.errors import HandrailError


class Unresolvable(HandrailError):
    """A recorded value whose class was not found, or does not take what was recorded."""

    def __init__(self, tag: str, why: str) -> None:
        super().__init__(tag, why)
        self.tag = tag
        self.why = why

    def __str__(self) -> str:
        return (
            f"a recorded value of {self.tag} cannot be read: {self.why}. Import its module before "
            f"the run is resumed, declare it as the type of the step's output, or run the step "
            f"again."
        )


@dataclass(frozen=True, slots=True)
class Unresolved:
    """A recorded value whose class was not found: its text, and the tag that means nothing here."""

    text: str
    tag: str
