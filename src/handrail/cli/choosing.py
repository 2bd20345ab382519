"""Choosing one of several with keys: what each key does, as data that knows no terminal."""

from __future__ import annotations

from dataclasses import dataclass, replace

CURSOR = "❯"  # noqa: RUF001  # the sign is meant


@dataclass(frozen=True, slots=True)
class Done:
    """It is over; ``choice`` is None if the input ended first."""

    choice: str | None


@dataclass(frozen=True, slots=True)
class Choosing:
    """Which of the choices is under the cursor, and what was typed to find it.

    What was typed is an answer only if it is a choice, or begins exactly one of them: a word that
    fits none must never be taken for the choice that happens to be under the cursor.
    """

    choices: tuple[str, ...]
    at: int = 0
    typed: str = ""

    def after(self, key: str) -> Choosing | Done:
        """The state after a key: its name (``up``, ``enter``, ...), or a character as it is."""
        match key:
            case "up" | "left":
                return self._moved(-1)
            case "down" | "right" | "tab":
                return self._moved(1)
            case "home":
                return replace(self, at=0, typed="")
            case "end":
                return replace(self, at=len(self.choices) - 1, typed="")
            case "enter":
                return self if self.refused else Done(self.choices[self.at])
            case "closed":
                return Done(None)
            case "backspace":
                return self._typed(self.typed[:-1])
            case "escape":
                return replace(self, typed="")
            case _ if len(key) == 1 and key.isprintable():
                return self._typed(self.typed + key)
            case _:
                return self

    def _moved(self, by: int) -> Choosing:
        return replace(self, at=(self.at + by) % len(self.choices), typed="")

    @property
    def refused(self) -> bool:
        """True if something was typed that names no choice, or more than one."""
        wanted = self.typed.lower()
        lowered = [choice.lower() for choice in self.choices]
        return bool(wanted) and wanted not in lowered and len(self._fitting(self.typed)) != 1

    def _fitting(self, text: str) -> list[int]:
        """The places of the choices that begin with the text; the one that is the text first."""
        wanted = text.lower()
        found = [at for at, one in enumerate(self.choices) if one.lower().startswith(wanted)]
        return sorted(found, key=lambda at: self.choices[at].lower() != wanted)

    def _typed(self, text: str) -> Choosing:
        """The text is kept as it is; the cursor goes to the first choice that begins with it."""
        fitting = self._fitting(text) if text else []
        return replace(self, at=fitting[0] if fitting else self.at, typed=text)


def picture(state: Choosing, height: int) -> list[tuple[str, bool]]:
    """The lines of the list, at most ``height``, and for each whether it is under the cursor."""
    count = len(state.choices)
    first = min(max(0, state.at - height // 2), max(0, count - height))
    shown = range(first, min(count, first + height))
    marks = {at: CURSOR if at == state.at else " " for at in shown}
    return [(f"{mark} {state.choices[at]}", at == state.at) for at, mark in marks.items()]
