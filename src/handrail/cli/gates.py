"""Gates asked at the terminal: with the arrow keys or by typing; without one, a line of stdin."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio
from rich.console import Console
from rich.text import Text

from handrail.cli.choosing import Choosing, Done, picture
from handrail.cli.keyboard import Lines, keys_from
from handrail.cli.masking import shown
from handrail.core.answers import accepted
from handrail.errors import GateRefusal, InvalidAnswer
from handrail.model.results import OpenGate
from handrail.typed.schema import describe_type

if TYPE_CHECKING:
    from handrail.cli.screen import Screen

Ask: TypeAlias = Callable[[OpenGate], Awaitable[Any]]


def can_ask() -> bool:
    """True if there is a person: stdin and one of the outputs are a terminal."""
    return os.isatty(0) and (os.isatty(2) or os.isatty(1))


def gate_handler(screen: Screen | None = None) -> Ask:
    """A gate handler that asks whoever is at stdin, one gate at a time.

    What shows the run leaves the screen to it meanwhile. An answer that does not fit is refused
    with the reason, and asked for again.
    """
    one_at_a_time = anyio.Lock()
    lines = Lines(0)

    async def console(gate: OpenGate) -> Any:  # its name is on record as who answered
        async with one_at_a_time:
            with ExitStack() as stack:
                shared = None if screen is None else stack.enter_context(screen.pause())
                return await Prompt(gate, lines, _screen(shared)).answer()

    return console


def _screen(shared: Console | None) -> Console:
    """Where to ask: on the screen that shows the run, or on stderr, never among data."""
    return shared if shared is not None and shared.is_terminal else Console(stderr=True)


class Prompt:
    """One gate, asked until it is answered. Mutable."""

    def __init__(self, gate: OpenGate, lines: Lines, console: Console) -> None:
        self.gate = gate
        self.lines = lines
        self.console = console
        self.choices = tuple(map(str, gate.choices)) or (("yes", "no") if gate.type is bool else ())

    async def answer(self) -> Any:
        """The answer, converted.

        Raises:
            GateRefusal: the input ended.
        """
        by_keys = self.choices and self.console.is_terminal and os.isatty(0)
        while True:
            text = await (self._choose() if by_keys else self._type())
            if text is None:
                return self.gate.default
            try:
                answer = accepted(self.gate, text)
            except InvalidAnswer as error:
                self.console.print(Text(f"  {shown(_said(error))}", "red"), soft_wrap=True)
                continue
            if by_keys:
                self.console.print(self._question(Text(shown(text), "bold green")), soft_wrap=True)
            return answer

    # -- by typing -----------------------------------------------------------------------------

    async def _type(self) -> str | None:
        """A line that was typed; None stands for the default."""
        hint = " / ".join(self.choices)
        if not hint and self.gate.type is not str:
            hint = describe_type(self.gate.type)
        after = Text(shown(f"[{hint}] ") if hint else "", "dim")
        if self.gate.has_default:
            after.append(shown(f"({self._default()}) "), "dim")
        self.console.print(self._question(after), end="", soft_wrap=True)
        self.console.file.flush()
        line = await self.lines.next()
        if not os.isatty(0):
            self.console.print(Text(shown(line or ""), "bold"), soft_wrap=True)
        if line is None:
            raise GateRefusal(self.gate.path, "the input ended before it was answered")
        text = line.strip()
        return None if not text and self.gate.has_default else text

    # -- by choosing ---------------------------------------------------------------------------

    async def _choose(self) -> str:
        from rich.live import Live

        state = Choosing(self.choices, self._first())
        live = Live(console=self.console, auto_refresh=False, transient=True)
        with keys_from(0) as keys, live:
            while True:
                live.update(self._picture(state), refresh=True)
                found = state.after(await keys.next())
                if isinstance(found, Done):
                    if found.choice is None:
                        raise GateRefusal(self.gate.path, "the input ended before it was answered")
                    return found.choice
                state = found

    def _first(self) -> int:
        default = self._default() if self.gate.has_default else ""
        return self.choices.index(default) if default in self.choices else 0

    def _picture(self, state: Choosing) -> Text:
        said = f"{state.typed}  (no choice; Enter takes none)" if state.refused else state.typed
        text = self._question(Text(said, "bold"))
        for line, is_chosen in picture(state, max(3, self.console.height - 4)):
            text.append(f"\n{shown(line)}", "bold cyan" if is_chosen else "")
        text.append(f"\n  arrow keys or typing, then Enter{self._deadline()}", "dim")
        return text

    # -- words ---------------------------------------------------------------------------------

    def _question(self, after: Text) -> Text:
        text = Text("? ", "bold magenta")
        text.append(f"{shown(self.gate.question)} ", "bold")
        return text.append_text(after)

    def _default(self) -> str:
        default = self.gate.default
        if self.gate.type is bool and isinstance(default, bool):
            return "yes" if default else "no"
        return str(default)

    def _deadline(self) -> str:
        deadline = self.gate.deadline
        if deadline is None:
            return ""
        then = f"it is {shown(self._default())}" if self.gate.has_default else "it fails"
        at = time.strftime("%H:%M:%S", time.localtime(deadline))
        return f"; without an answer {then} at {at}"


def _said(error: InvalidAnswer) -> str:
    return f"{error.answer!r} is not an answer, expected {error.expected}"
