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
    """Which of the choices is under the cursor, and what was typed to find it."""

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
                return Done(self.choices[self.at])
            case "closed":
                return Done(None)
            case "backspace":
                return replace(self, typed=self.typed[:-1])
            case "escape":
                return replace(self, typed="")
            case _ if len(key) == 1 and key.isprintable():
                return self._typed(self.typed + key)
            case _:
                return self

    def _moved(self, by: int) -> Choosing:
        return replace(self, at=(self.at + by) % len(self.choices), typed="")

    def _typed(self, text: str) -> Choosing:
        """The first choice that begins with the text, or else holds it; else nothing happens."""
        wanted = text.lower()
        lowered = [choice.lower() for choice in self.choices]
        for at, choice in enumerate(lowered):
            if choice.startswith(wanted):
                return replace(self, at=at, typed=text)
        for at, choice in enumerate(lowered):
            if wanted in choice:
                return replace(self, at=at, typed=text)
        return self


def picture(state: Choosing, height: int) -> list[tuple[str, bool]]:
    """The lines of the list, at most ``height``, and for each whether it is under the cursor."""
    count = len(state.choices)
    first = min(max(0, state.at - height // 2), max(0, count - height))
    shown = range(first, min(count, first + height))
    marks = {at: CURSOR if at == state.at else " " for at in shown}
    return [(f"{mark} {state.choices[at]}", at == state.at) for at, mark in marks.items()]
