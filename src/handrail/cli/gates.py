"""Gates answered at the terminal, with arrow keys or by typing; elsewhere by a line of stdin."""

from __future__ import annotations

import codecs
import os
import termios
import tty
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio
from rich.console import Console
from rich.text import Text

from handrail.cli.masking import mask_text
from handrail.errors import GateRefusal, InvalidAnswer
from handrail.model.dataclass import dataclass
from handrail.model.results import OpenGate, prompts_of
from handrail.record.answers import accept_answer
from handrail.sinks.console_text import local_text
from handrail.typed.schema import describe_type

if TYPE_CHECKING:
    from handrail.cli.screen import Screen


_NAMED = {
    "\r": "enter",
    "\n": "enter",
    "\t": "tab",
    "\x7f": "backspace",
    "\b": "backspace",
    "\x04": "closed",
    "\x1b": "escape",
}
_SEQUENCES = {
    "A": "up",
    "B": "down",
    "C": "right",
    "D": "left",
    "H": "home",
    "F": "end",
}
_READ_BYTES = 4096


async def read_some(descriptor: int, *, of_terminal: bool) -> bytes:
    """The next bytes that can be read; empty at the end of the input.

    A terminal that was closed is no end of the input: the signal that follows suspends the run.
    """
    try:
        await anyio.wait_readable(descriptor)
    except OSError:  # a plain file cannot be waited for, it is always readable
        await anyio.lowlevel.checkpoint()
    try:
        data = os.read(descriptor, _READ_BYTES)
    except OSError:
        data = b""
        has_gone = of_terminal
    else:
        has_gone = of_terminal and not data and not os.isatty(descriptor)
    if has_gone:
        await anyio.sleep_forever()
    return data


class Lines:
    """Reads lines of text one at a time; keeps bytes read beyond a line for the next. Mutable."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._of_terminal = os.isatty(descriptor)
        self._left = b""
        self._ended = False

    async def next(self) -> str | None:
        """The next line without its end, or None when there are no more."""
        while b"\n" not in self._left and not self._ended:
            data = await read_some(self._descriptor, of_terminal=self._of_terminal)
            self._left += data
            if not data:
                # On a terminal Ctrl-D ends one line, not all that follow.
                self._ended = not self._of_terminal
                break
        line, newline, self._left = self._left.partition(b"\n")
        return line.decode("utf-8", "replace") if line or newline else None


class Keys:
    """Reads keys: their names (``up``, ``enter``), or the characters they type. Mutable."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pending: deque[str] = deque()

    async def next(self) -> str:
        """The next key; ``closed`` at the end of the input."""
        while not self._pending:
            data = await read_some(self._descriptor, of_terminal=True)
            if not data:
                return "closed"
            self._pending.extend(parse_keys(self._decoder.decode(data)))
        return self._pending.popleft()


def parse_keys(text: str) -> list[str]:
    """The keys in a text from a terminal; escape sequences that mean nothing here are left out."""
    keys: list[str] = []
    at = 0
    while at < len(text):
        if text[at] == "\x1b" and text[at + 1 : at + 2] in {"[", "O"}:
            at += 2
            while at < len(text) and not "@" <= text[at] <= "~":
                at += 1
            name = _SEQUENCES.get(text[at : at + 1])
            if name:
                keys.append(name)
        else:
            keys.append(_NAMED.get(text[at], text[at]))
        at += 1
    return keys


ESCAPE, CTRL_BACKSLASH = b"\x1b", b"\x1c"


def set_quit_key(descriptor: int, key: bytes) -> None:
    """Let a key of the terminal send SIGQUIT to the processes in its foreground."""
    mode = termios.tcgetattr(descriptor)
    mode[6][termios.VQUIT] = key
    termios.tcsetattr(descriptor, termios.TCSANOW, mode)


@contextmanager
def keys_from(descriptor: int) -> Generator[Keys]:
    """Single keys from a terminal, which echoes nothing meanwhile; Ctrl-C stays a signal.

    Earlier input is dropped: it cannot answer a question that was not on the screen yet.
    """
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor, termios.TCSAFLUSH)
    set_quit_key(descriptor, CTRL_BACKSLASH)  # Esc is a key of the question
    try:
        yield Keys(descriptor)
    finally:
        with suppress(termios.error):  # a terminal that has gone
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


CURSOR = "❯"  # noqa: RUF001  # the sign is meant


@dataclass(frozen=True, slots=True)
class Done:
    """The end of a dialogue; ``choice`` is None if the input ended first."""

    choice: str | None


@dataclass(frozen=True, slots=True)
class Typing:
    """A line that is being typed."""

    typed: str = ""

    def after(self, key: str) -> Typing | Done:
        """The state after a key, by its name (``enter``, ...) or the character that it types."""
        match key:
            case "enter":
                return Done(self.typed)
            case "closed":
                return Done(None)
            case "backspace":
                return Typing(self.typed[:-1])
            case "escape":
                return Typing()
            case _ if len(key) == 1 and key.isprintable():
                return Typing(self.typed + key)
            case _:
                return self


@dataclass(frozen=True, slots=True)
class Choosing:
    """Choices with a cursor on one of them, and the text typed to find one.

    The typed text is an answer only if it is a choice, or the beginning of exactly one. A word that
    fits none must never be taken for the choice that happens to be under the cursor.
    """

    choices: tuple[str, ...]
    at: int = 0
    typed: str = ""

    def after(self, key: str) -> Choosing | Done:
        """The state after a key, by its name (``up``, ...) or the character that it types."""
        match key:
            case "up" | "left":
                return self._with_cursor_moved(-1)
            case "down" | "right" | "tab":
                return self._with_cursor_moved(1)
            case "home":
                return replace(self, at=0, typed="")
            case "end":
                return replace(self, at=len(self.choices) - 1, typed="")
            case "enter":
                return self if self.matches_none else Done(self.choices[self.at])
            case "closed":
                return Done(None)
            case "backspace":
                return self._with_typed(self.typed[:-1])
            case "escape":
                return replace(self, typed="")
            case _ if len(key) == 1 and key.isprintable():
                return self._with_typed(self.typed + key)
            case _:
                return self

    def _with_cursor_moved(self, by: int) -> Choosing:
        return replace(self, at=(self.at + by) % len(self.choices), typed="")

    @property
    def matches_none(self) -> bool:
        """True if something was typed that names no choice, or more than one."""
        wanted = self.typed.lower()
        lowered = [choice.lower() for choice in self.choices]
        return bool(wanted) and wanted not in lowered and len(self._matches(self.typed)) != 1

    def _matches(self, text: str) -> list[int]:
        """The indices of the choices that begin with the text, an exact match first."""
        wanted = text.lower()
        found = [at for at, one in enumerate(self.choices) if one.lower().startswith(wanted)]
        return sorted(found, key=lambda at: self.choices[at].lower() != wanted)

    def _with_typed(self, text: str) -> Choosing:
        """The state with this text, and the cursor on the first choice that begins with it."""
        fitting = self._matches(text) if text else []
        return replace(self, at=fitting[0] if fitting else self.at, typed=text)


def list_lines(state: Choosing, height: int) -> list[tuple[str, bool]]:
    """The lines of the list, at most ``height``, and for each whether it is under the cursor."""
    count = len(state.choices)
    first = min(max(0, state.at - height // 2), max(0, count - height))
    visible = range(first, min(count, first + height))
    marks = {at: CURSOR if at == state.at else " " for at in visible}
    return [(f"{mark} {state.choices[at]}", at == state.at) for at, mark in marks.items()]


Ask: TypeAlias = Callable[[OpenGate], Awaitable[Any]]


def can_ask() -> bool:
    """True if there is a person: stdin and one of the outputs are a terminal."""
    return os.isatty(0) and (os.isatty(2) or os.isatty(1))


def gate_handler(screen: Screen | None = None) -> Ask:
    """A gate handler that asks the person or program at stdin, one gate at a time.

    Meanwhile a tree on the screen stays above the question, and other output pauses. An invalid
    answer is refused with the reason, and the gate asked again.
    """
    one_at_a_time = anyio.Lock()
    lines = Lines(0)

    async def console(gate: OpenGate) -> Any:  # the journal has its name as the answerer
        async with one_at_a_time:
            if screen is not None and screen.draws and os.isatty(0):
                return await Prompt(gate, lines, screen.console, screen).answer()
            with ExitStack() as stack:
                shared = None if screen is None else stack.enter_context(screen.pause())
                return await Prompt(gate, lines, _screen(shared)).answer()

    return console


def _screen(shared: Console | None) -> Console:
    """The console to ask on: that of the run's display, or stderr; never stdout, which has data."""
    return shared if shared is not None and shared.is_terminal else Console(stderr=True)


class Prompt:
    """One gate, asked until it is answered. Mutable."""

    def __init__(
        self, gate: OpenGate, lines: Lines, console: Console, screen: Screen | None = None
    ) -> None:
        self.gate = gate
        self._below = screen
        """The screen whose tree stays above the question; None: there is no tree."""
        self.lines = lines
        self.console = console
        self.choices = tuple(map(str, gate.choices)) or (("yes", "no") if gate.type is bool else ())

    async def answer(self) -> Any:
        """Ask until an answer is valid; the converted answer.

        Raises:
            GateRefusal: the input ended.
        """
        can_draw = self.console.is_terminal and not self.console.is_dumb_terminal
        by_keys = self._below is not None or (self.choices and can_draw and os.isatty(0))
        while True:
            text = await (self._by_keys() if by_keys else self._type())
            if text is None:
                return self.gate.default
            try:
                answer = accept_answer(self.gate, await self._with_text(text))
            except InvalidAnswer as error:
                self.console.print(
                    Text(f"  {mask_text(_error_text(error))}", "red"), soft_wrap=True
                )
                continue
            if by_keys:
                self.console.print(
                    self._question(Text(mask_text(text), "bold green")), soft_wrap=True
                )
            return answer

    async def _with_text(self, answer: str) -> Any:
        """The answer, with the text that it asks for, which is asked now."""
        prompt, text = prompts_of(self.gate.choices, self.gate.values).get(answer), ""
        if prompt is None:
            return answer
        asked = Prompt(OpenGate(self.gate.path, prompt), self.lines, self.console, self._below)
        while not text.strip():
            text = await asked.answer()
        return {answer: text}

    # -- by typing -----------------------------------------------------------------------------

    async def _type(self) -> str | None:
        """The line that was typed; None for the default."""
        self.console.print(self._question(self._hint()), end="", soft_wrap=True)
        self.console.file.flush()
        line = await self.lines.next()
        if not os.isatty(0):
            self.console.print(Text(mask_text(line or ""), "bold"), soft_wrap=True)
        if line is None:
            raise GateRefusal(self.gate.path, "the input ended before it was answered")
        return self._or_default(line)

    def _or_default(self, line: str) -> str | None:
        text = line.strip()
        return None if not text and self.gate.has_default else text

    def _hint(self) -> Text:
        """What may be typed, and what an empty line means."""
        hint = " / ".join(self.choices)
        if not hint and self.gate.type is not str:
            hint = describe_type(self.gate.type)
        after = Text(mask_text(f"[{hint}] ") if hint else "", "dim")
        if self.gate.has_default:
            after.append(mask_text(f"({self._default()}) "), "dim")
        return after

    # -- by keys -------------------------------------------------------------------------------

    async def _by_keys(self) -> str | None:
        state: Choosing | Typing = Typing()
        if self.choices:
            state = Choosing(self.choices, self._default_index())
        with keys_from(0) as keys, self._drawing() as draw:
            while True:
                draw(self._picture(state) if isinstance(state, Choosing) else self._line(state))
                found = state.after(await keys.next())
                if not isinstance(found, Done):
                    state = found
                elif found.choice is None:
                    raise GateRefusal(self.gate.path, "the input ended before it was answered")
                else:
                    return found.choice if self.choices else self._or_default(found.choice)

    @contextmanager
    def _drawing(self) -> Generator[Callable[[Text], None]]:
        """A function that draws the question: below the tree, or in a display of its own."""
        if self._below is not None:
            try:
                yield self._below.draw_below
            finally:
                self._below.draw_below(None)
            return
        from rich.live import Live

        with Live(console=self.console, auto_refresh=False, transient=True) as live:
            yield lambda text: live.update(text, refresh=True)

    def _default_index(self) -> int:
        default = self._default() if self.gate.has_default else ""
        return self.choices.index(default) if default in self.choices else 0

    def _picture(self, state: Choosing) -> Text:
        said = f"{state.typed}  (not one of the choices)" if state.matches_none else state.typed
        text = self._question(Text(said, "bold"))
        height = self.console.height // 2 if self._below is not None else self.console.height - 4
        for line, is_chosen in list_lines(state, max(3, height)):
            text.append(f"\n{mask_text(line)}", "bold cyan" if is_chosen else "")
        text.append(f"\n  arrow keys or typing, then Enter{self._deadline()}", "dim")
        return text

    def _line(self, state: Typing) -> Text:
        text = self._question(self._hint()).append(f"{state.typed}\u2588", "bold")
        return text.append(f"\n  type it, then Enter{self._deadline()}", "dim")

    # -- texts ---------------------------------------------------------------------------------

    def _question(self, after: Text) -> Text:
        text = Text("? ", "bold magenta")
        text.append(f"{mask_text(self.gate.question)} ", "bold")
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
        then = f"it is {mask_text(self._default())}" if self.gate.has_default else "it fails"
        at = local_text(deadline, "%H:%M:%S")
        return f"; without an answer {then} at {at}"


def _error_text(error: InvalidAnswer) -> str:
    return f"{error.answer!r} is not an answer, expected {error.expected}"
