"""Gates at a terminal: a real one, with a person who types."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from handrail import SqliteJournal
from handrail.cli.gates import CURSOR
from handrail.cli.who import current_user
from handrail.model import events as ev
from tests.cli.conftest import spawned
from tests.cli.machines import until

FLOW = """\
from handrail import step, workflow


@workflow
def choose():
    return (yield from step("which").ask("Which one?", choices=["red", "green", "grey"]))


@workflow
def number():
    return (yield from step("many").ask("How many?", type=int, default=7))


@workflow
def two():
    return (
        yield from step("both").parallel(
            step("one").ask("First?", choices=["a", "b"]),
            step("two").ask("Second?", choices=["c", "d"]),
        )
    )
"""
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
UP, DOWN, END, ENTER = "\x1b[A", "\x1b[B", "\x1b[F", "\r"
THREE = 'choices=["red", "green", "grey"]'
ASKED = [
    (THREE, f"{CURSOR} red", ENTER, "red"),
    (THREE, f"{CURSOR} red", DOWN + ENTER, "green"),
    (THREE, f"{CURSOR} red", UP + ENTER, "grey"),
    (THREE, f"{CURSOR} red", END + ENTER, "grey"),
    (THREE, f"{CURSOR} red", "gree" + ENTER, "green"),
    (THREE, f"{CURSOR} red", "GREY" + ENTER, "grey"),
    (THREE, f"{CURSOR} red", "q" + ENTER + "\x7fr" + ENTER, "red"),
    (THREE, f"{CURSOR} red", "gree\x7fy" + ENTER, "grey"),
    ('choices=["red", "green"], default="green"', f"{CURSOR} green", ENTER, "green"),
    ("type=bool", f"{CURSOR} yes", DOWN + ENTER, False),
    ("type=int, default=7", "[int] (7)", "\n", 7),
    ('choices=["a", "b"], default="b", timeout=0.5', "without an answer it is b at", "", "b"),
]
"""What a gate is asked with, what is shown at first, the keys, and the answer."""


_MODULE = ["-m", "handrail.cli"]
_LOGIN = (
    "import fcntl, os, sys, termios; from handrail.cli import main; "
    "os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0); sys.exit(main(sys.argv[1:]))"
)
"""The command in a session that the terminal controls: its keys send signals."""


class Terminal:
    """A command at a terminal, and all that it has shown so far."""

    def __init__(
        self,
        *words: str,
        stdout: IO[bytes] | None = None,
        kind: str = "xterm",
        verb: str = "run",
        controls: bool = False,
    ) -> None:
        self.screen, inside = pty.openpty()
        self.before = termios.tcgetattr(inside)
        self.raw = b""
        self.seen = 0
        self.shown = ""
        self.process = subprocess.Popen(
            [sys.executable, *(["-c", _LOGIN] if controls else _MODULE), verb, *words],
            stdin=inside,
            stdout=inside if stdout is None else stdout,
            stderr=inside,
            env={**os.environ, "TERM": kind, "CI": ""},
            start_new_session=not controls,
        )
        self.inside = inside

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self.screen, text.encode())

    def wait_for(self, text: str) -> None:
        """Return when it has shown this text since the last time; that part is then forgotten."""
        while text not in self.shown:
            self._read()
        before, _, self.shown = self.shown.partition(text)
        self.seen += len(before) + len(text)

    def end(self) -> int:
        """The exit code; what it showed last is in ``shown``."""
        os.close(self.inside)
        try:
            while True:
                self._read()
        except EOFError:
            return self.process.wait(30)

    def settings(self) -> list[object]:
        """How the terminal is set now."""
        return termios.tcgetattr(self.screen)

    def close(self) -> None:
        """Be gone, whatever happened."""
        self.process.kill()
        self.process.wait()
        os.close(self.screen)

    def _read(self) -> None:
        ready, _, _ = select.select([self.screen], [], [], 30)
        assert ready, f"nothing new on the screen, which shows: {self.shown}"
        try:
            data = os.read(self.screen, 4096)
        except OSError:  # what Linux says when nobody holds the other side
            raise EOFError(self.shown) from None
        if not data:
            raise EOFError(self.shown)
        self.raw += data
        plain = _ESCAPES.sub("", self.raw.decode("utf-8", "replace")).replace("\r", "")
        self.shown = plain[self.seen :]


@pytest.fixture
def terminals(folder: Path) -> Iterator[list[Terminal]]:
    """Closes what a test has opened."""
    (folder / "gates.py").write_text(FLOW, "utf-8")
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        terminal.close()


def at(terminals: list[Terminal], name: str, *words: str) -> Terminal:
    """A terminal at which this workflow runs."""
    terminals.append(Terminal(f"gates.py:{name}", "--quiet", *words))
    return terminals[-1]


def test_answers_are_given_with_keys(folder: Path, terminals: list[Terminal]) -> None:
    """The cursor is on the default; arrow keys move, typing finds, Enter takes the choice, or the
    default. A deadline ends the prompt too. Afterwards the terminal is as it was.
    """
    asks = (
        f"    said.append((yield from step('{number}').ask('No. {number}?', {options})))\n"
        for number, (options, *_) in enumerate(ASKED)
    )
    text = (
        f"{FLOW}\n\n@workflow\ndef chooses():\n    said = []\n{''.join(asks)}    return str(said)\n"
    )
    (folder / "gates.py").write_text(text, "utf-8")
    terminal = at(terminals, "chooses")
    for number, (_, first, keys, _) in enumerate(ASKED):
        terminal.wait_for(f"No. {number}?")
        terminal.wait_for(first)
        if CURSOR in first:
            terminal.wait_for("then Enter")
        terminal.type(keys)

    assert terminal.end() == 0
    assert terminal.shown.endswith(f"\n{[answer for *_, answer in ASKED]}\n")
    assert terminal.settings() == terminal.before


def test_a_typed_answer_is_asked_for_until_it_fits(terminals: list[Terminal]) -> None:
    """What does not fit is refused with the reason; the one that fits is converted."""
    terminal = at(terminals, "number")
    terminal.wait_for("How many? [int] (7)")
    terminal.type("many\n")
    terminal.wait_for("'many' is not an answer, expected int")
    terminal.wait_for("How many?")
    terminal.type("3\n")

    assert terminal.end() == 0
    assert terminal.shown.endswith("\n3\n")


@pytest.mark.parametrize("quiet", [["--quiet"], []])
def test_on_a_terminal_that_cannot_draw_a_choice_is_typed(
    terminals: list[Terminal], quiet: list[str]
) -> None:
    """Its choices are shown beside the question, where a list with a cursor would not appear."""
    terminals.append(Terminal("gates.py:choose", *quiet, kind="dumb"))
    terminals[0].wait_for("? Which one? [red / green / grey]")
    terminals[0].type("blue\n")
    terminals[0].wait_for("'blue' is not an answer")
    terminals[0].type("grey\n")

    assert terminals[0].end() == 0
    assert "grey" in terminals[0].shown


def test_gates_of_one_moment_are_asked_one_after_the_other(terminals: list[Terminal]) -> None:
    """The second question is shown when the first is answered."""
    terminal = at(terminals, "two")
    terminal.wait_for("First?")
    terminal.wait_for("then Enter")
    assert "Second?" not in terminal.shown
    terminal.type(DOWN + ENTER)
    terminal.wait_for("Second?")
    terminal.wait_for("then Enter")
    terminal.type(ENTER)

    assert terminal.end() == 0
    assert terminal.shown.endswith("\n('b', 'c')\n")


@pytest.mark.parametrize("name", ["choose", "number"])
def test_an_interruption_leaves_the_prompt(terminals: list[Terminal], name: str) -> None:
    """The run is suspended, exit code 130, and the terminal is as it was."""
    terminal = at(terminals, name)
    terminal.wait_for("?")
    terminal.process.send_signal(signal.SIGINT)

    assert terminal.end() == 130
    assert "interrupted: no step has ended" in terminal.shown
    assert f"to continue: handrail resume {name}-" in terminal.shown
    assert terminal.settings() == terminal.before


@pytest.mark.parametrize("name", ["choose", "number"])
def test_a_question_on_a_terminal_that_is_closed_stays_open(
    terminals: list[Terminal], name: str
) -> None:
    """The run is suspended, exit code 129, though its input ends before the signal comes."""
    terminal = at(terminals, name)
    terminal.wait_for("?")
    os.close(terminal.screen)
    terminal.screen = os.open(os.devnull, os.O_RDWR)
    with pytest.raises(subprocess.TimeoutExpired):
        terminal.process.wait(0.5)
    terminal.process.send_signal(signal.SIGHUP)

    assert terminal.process.wait(30) == 129
    (run,) = spawned("runs", "--json").data
    assert run["status"] == "suspended"


def test_a_question_never_gets_among_the_data(folder: Path, terminals: list[Terminal]) -> None:
    """With `--json` into a file the question is on the terminal, and in the file is JSON alone."""
    with (folder / "data.json").open("wb") as data:
        terminal = Terminal("gates.py:choose", "--json", stdout=data)
    terminals.append(terminal)
    terminal.wait_for("then Enter")
    terminal.type(ENTER)

    assert terminal.end() == 0
    assert json.loads((folder / "data.json").read_text("utf-8"))["value"] == "red"


@pytest.mark.parametrize("kind", ["xterm", "dumb"])
def test_the_text_that_a_choice_asks_for_is_asked_next(
    folder: Path, terminals: list[Terminal], kind: str
) -> None:
    """Until there is one: by keys, and where a choice is typed."""
    asks = 'step("go").ask("Go?", choices={"Yes": Choice(1), "No": Choice(0, prompt_for="Why?")})'
    text = f"{FLOW}\n\n@workflow\ndef decides():\n    return (yield from {asks}).text\n"
    (folder / "gates.py").write_text(text.replace("import step", "import Choice, step"), "utf-8")
    terminals.append(Terminal("gates.py:decides", "--quiet", kind=kind))
    terminals[0].wait_for("then Enter" if kind == "xterm" else "[Yes / No]")
    terminals[0].type("No\r")
    for typed in ("\r", "too long\r"):
        terminals[0].wait_for("Why?")
        terminals[0].type(typed)

    assert terminals[0].end() == 0
    assert terminals[0].shown.endswith("\ntoo long\n")


def test_the_command_asks_for_the_text_on_a_terminal(
    folder: Path, terminals: list[Terminal], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`handrail answer` of such a choice asks; without a terminal it says how it is typed."""
    asks = 'step("go").ask("Go?", choices={"No": Choice(0, prompt_for="Why?")})'
    text = f"{FLOW}\n\n@workflow\ndef decides():\n    return (yield from {asks}).text\n"
    (folder / "gates.py").write_text(text.replace("import step", "import Choice, step"), "utf-8")
    assert spawned("run", "gates.py:decides", "--run-id", "r").code == 3
    refused = spawned("answer", "r", "go", "No")
    assert (refused.code, "No: YOUR TEXT" in refused.err) == (2, True)
    terminals.append(Terminal("r", "go", "No", verb="answer"))
    terminals[0].wait_for("Why?")
    terminals[0].type("too long\r")
    assert terminals[0].end() == 0
    assert "'too long'" in terminals[0].shown


PAUSED = """\
import subprocess

from handrail import step, workflow


def first():
    subprocess.run("touch began; until [ -e go ]; do sleep 0.02; done", shell=True, check=True)


@workflow
def slow():
    yield from step("first").call(first)
    return (yield from step("second").call(str, "done"))
"""


@pytest.mark.parametrize("goes_on", [True, False], ids=["goes on", "stays paused"])
def test_escape_pauses_a_run_and_continues_it(
    folder: Path, terminals: list[Terminal], goes_on: bool
) -> None:
    """While it is paused nothing new begins, and what an action has started goes on. The record
    says who paused, and the terminal is as it was afterwards.
    """
    (folder / "slow.py").write_text(PAUSED, "utf-8")
    terminals.append(Terminal("slow.py", "--run-id", "r", controls=True))
    (terminal,) = terminals
    terminal.wait_for("first")
    until(Path("began").exists)
    terminal.type("\x1b")
    terminal.wait_for("paused: no new step starts; Esc continues")
    if goes_on:
        terminal.type("\x1b")
        terminal.wait_for("continuing")
    settings = terminal.settings
    Path("go").touch()
    code = terminal.end()
    assert code == (0 if goes_on else 3), terminal.shown
    assert settings() == terminal.before
    events = SqliteJournal(Path(".handrail", "runs.db")).events("r")
    steered = [event.action for event in events if isinstance(event, ev.RunSteered)]
    assert steered == ["pause", *["unpause"] * goes_on]
    assert all(event.by == current_user() for event in events if isinstance(event, ev.RunSteered))
    ended = [event.path for event in events if isinstance(event, ev.StepCompleted)]
    assert ended == ["first", *["second"] * goes_on]
    if not goes_on:
        assert "handrail unpause" in terminal.shown
