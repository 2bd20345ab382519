"""Recorded values whose class is not known here; apart from the codec, which costs more to load."""

from __future__ import annotations

from dataclasses import dataclass

from handrail.errors import HandrailError


class Unresolvable(HandrailError):
    """A recorded value whose class was not found, or (``misfit``) does not take what was recorded;
    of the step at ``path``, where that is known.
    """

    def __init__(self, tag: str, why: str, path: str = "", *, misfit: bool = False) -> None:
        super().__init__(tag, why, path)
        self.tag = tag
        self.why = why
        self.path = path
        self.misfit = misfit

    def __str__(self) -> str:
        where = f"step {self.path!r}: " if self.path else ""
        again = f": rerun=[{self.path!r}] (--rerun)." if self.path else "."
        remedy = (
            "Change the class so that what was recorded fits it again (a field that is new needs a "
            "default)"
            if self.misfit
            else "Import its module before the run is resumed, declare it as the type of the "
            "step's output"
        )
        return (
            f"{where}a recorded value of {self.tag} cannot be read: {self.why}. {remedy}, or run "
            f"the step again{again}"
        )


@dataclass(frozen=True, slots=True)
class Unresolved:
    """A recorded value whose class was not found: its text, and the tag that means nothing here."""

    text: str
    tag: str
