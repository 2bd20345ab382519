"""ConsoleSink: the live tree on a terminal, plain lines elsewhere, and who has the screen."""

from __future__ import annotations

import builtins
import io
import os
import pty
import re
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from handrail.errors import MissingExtra, WrongUse
from handrail.model import events as ev
from handrail.model.results import OpenGate
from handrail.sinks.console import ConsoleSink
from handrail.testing.contracts import SinkContract
from tests.sinks.story import Story

pytestmark = pytest.mark.extra("rich")

HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"


@pytest.fixture(autouse=True)
def _no_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests say themselves where they run."""
    for name in ("CI", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


@pytest.fixture
def terminal() -> Callable[..., Any]:
    """A function that makes a console whose terminal is a string."""

    def make(**options: Any) -> Any:
        from rich.console import Console

        options = {
            "force_terminal": True,
            "width": 80,
            "height": 20,
            "color_system": None,
        } | options
        return Console(file=io.StringIO(), **options)

    return make


@pytest.fixture
def pipe() -> Any:
    """A console that is no terminal."""
    from rich.console import Console

    return Console(file=io.StringIO(), width=40)


class TestPlain(SinkContract):
    @pytest.fixture
    def make_sink(self, pipe: Any) -> Any:
        """A new sink each time, on a console of its own or a common one."""
        return lambda: ConsoleSink(pipe)


class TestLive(SinkContract):
    @pytest.fixture
    def make_sink(self, terminal: Callable[..., Any]) -> Any:
        """A new sink each time, on a console of its own or a common one."""
        sinks: list[ConsoleSink] = []

        def make() -> ConsoleSink:
            sinks.append(ConsoleSink(terminal()))
            return sinks[-1]

        yield make
        for sink in sinks:
            sink.close()


def tell_a_run(story: Story) -> None:
    """A run of two steps, one of which fails."""
    story.begin()
    story.run("plan", "agent")
    story.run("build", "command", "failed", error="x" * 100, error_type="app.Broken")
    story.finish("failed", error=f"step 'build' failed: {'x' * 100}", failed_step="build")


PLAIN = [
    "▸ ship  started, run ship-1",
    "▸ plan  agent",
    "✓ plan  agent  1.0 s",
    "▸ build  command",
    f"✗ build  command  failed  1.0 s  Broken: {'x' * 100}",
    f"✗ ship failed in 5.0 s · 2 steps (1 failed) · build: {'x' * 100} · run ship-1",
]


# -- without a terminal --------------------------------------------------------------------------


def test_a_pipe_gets_plain_lines(pipe: Any) -> None:
    """No colours, no carriage returns, no line broken, however narrow the console."""
    tell_a_run(Story(ConsoleSink(pipe).emit))
    assert pipe.file.getvalue().splitlines() == PLAIN


def test_the_default_is_the_processs_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    """Stdout is left to the data of the application."""
    tell_a_run(Story(ConsoleSink().emit))
    assert capsys.readouterr() == ("", "\n".join([*PLAIN, ""]))


@pytest.mark.parametrize("why", ["live=False", "TERM=dumb", "CI=true"])
def test_a_terminal_can_do_without_the_tree(
    terminal: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """Where nobody watches, or the cursor cannot move, a terminal gets plain lines too."""
    if why != "live=False":
        monkeypatch.setenv(*why.split("="))
    console = terminal()
    tell_a_run(Story(ConsoleSink(console, live=False if why == "live=False" else None).emit))
    assert console.file.getvalue().splitlines() == PLAIN


def test_colours_come_only_if_the_console_has_them(terminal: Callable[..., Any]) -> None:
    """The same lines in colour, if that is what the console is made for."""
    console = terminal(color_system="standard")
    tell_a_run(Story(ConsoleSink(console, live=False).emit))
    assert "\x1b[31m✗ \x1b[0m" in console.file.getvalue()
    assert "\r" not in console.file.getvalue()


def test_an_encoding_without_the_signs_gets_ascii() -> None:
    """Signs are replaced by ASCII ones, and what a user's text has besides by question marks."""
    from rich.console import Console

    raw = io.BytesIO()
    console = Console(file=io.TextIOWrapper(raw, encoding="ascii"))
    story = Story(ConsoleSink(console).emit)
    story.begin("größe")
    story.run("plan", "agent")
    assert raw.getvalue().decode("ascii").splitlines() == [
        "> gr??e  started, run ship-1",
        "> plan  agent",
        "+ plan  agent  1.0 s",
    ]


def test_a_recording_console_records(terminal: Callable[..., Any]) -> None:
    """What is said can be exported with rich's own means."""
    from rich.console import Console

    console = Console(file=io.StringIO(), record=True, width=200)
    tell_a_run(Story(ConsoleSink(console).emit))
    assert console.export_text().splitlines() == PLAIN


def test_markup_in_a_users_text_is_text(terminal: Callable[..., Any]) -> None:
    """Square brackets do not become styles."""
    console = terminal(color_system="standard")
    story = Story(ConsoleSink(console, live=False).emit)
    story.ask("merge?", "[red]Merge?[/red] [yes/no]")
    assert "[red]Merge?[/red] [yes/no]" in console.file.getvalue()


# -- the live tree -------------------------------------------------------------------------------


def still(drawn: str) -> str:
    """The same, with what turns at its first picture, however long it took."""
    return re.sub("[⠙⠹⠸⠼⠴⠦⠧⠇⠏]", "⠋", drawn)


def refreshed(sink: ConsoleSink, console: Any) -> list[str]:
    """What the display draws at a refresh."""
    before = len(console.file.getvalue())
    assert sink._display is not None
    sink._display.refresh()
    drawn = still(console.file.getvalue()[before:])
    return drawn.replace("\x1b[2K", "").replace("\x1b[1A", "").replace("\r", "").splitlines()


def test_a_terminal_gets_a_tree_that_stays(terminal: Callable[..., Any]) -> None:
    """While the run goes on the tree is redrawn; at the end the last one is left, and a line."""
    console = terminal()
    sink = ConsoleSink(console)
    story = Story(sink.emit)
    story.begin()
    story.run("plan", "agent")
    story.start("build", "command")
    story.tell(ev.StepOutput("build", "stdout", "y" * 200), after=0)
    drawn = refreshed(sink, console)
    assert drawn[1] == "├─ ✓ plan  agent  1.0 s"
    assert drawn[2].startswith("└─ ⠋ build  command  yyy")
    assert (len(drawn[2]), drawn[2][-1]) == (80, "…")
    story.end("build")
    story.finish()
    assert console.file.getvalue().split("\x1b[2K")[-1].splitlines() == [
        "✓ ship  5.0 s  run ship-1",
        "├─ ✓ plan  agent  1.0 s",
        "└─ ✓ build  command  1.0 s",
        "✓ ship succeeded in 5.0 s · 2 steps · run ship-1",
    ]


@pytest.mark.parametrize(
    "last", [ev.WorkflowCompleted("succeeded"), ev.RunSuspended((OpenGate("a", "b"),))]
)
def test_the_display_ends_with_the_drive(terminal: Callable[..., Any], last: Any) -> None:
    """After the last event nothing draws any more, and the cursor is back."""
    console = terminal()
    sink = ConsoleSink(console)
    story = Story(sink.emit)
    before = threading.active_count()
    story.begin()
    display = sink._display
    assert display is not None
    (thread,) = [t for t in threading.enumerate() if t is display._refresh_thread]
    story.tell(last)
    thread.join(10)
    assert sink._display is None
    assert threading.active_count() <= before  # another test's may have ended meanwhile
    assert console.file.getvalue().count(HIDE) == console.file.getvalue().count(SHOW) == 1


def test_a_tree_fits_the_screen_while_it_is_live(terminal: Callable[..., Any]) -> None:
    """A thousand members never take more lines than the terminal has; at the end more are left."""
    console = terminal(height=10)
    sink = ConsoleSink(console)
    story = Story(sink.emit)
    story.begin()
    for index in range(20):
        story.run(f"step-{index}")
    story.group("review", 1000)
    for index in range(1000):
        story.member(f"review/{index}", index)
    assert len(refreshed(sink, console)) <= 9
    story.finish()
    assert len(console.file.getvalue().split("\x1b[2K")[-1].splitlines()) > 20


def test_live_can_be_forced(pipe: Any) -> None:
    """Without a terminal there is nothing to redraw; the tree is printed once, at the end."""
    sink = ConsoleSink(pipe, live=True)
    tell_a_run(Story(sink.emit))
    assert pipe.file.getvalue().splitlines()[:2] == [
        "✗ ship  5.0 s  run ship-1",
        "├─ ✓ plan  agent  1.0 s",
    ]
    assert "\x1b" not in pipe.file.getvalue()


def test_runs_at_the_same_time_stand_below_one_another(terminal: Callable[..., Any]) -> None:
    """Each has its share of the screen; the first to end is printed above the other."""
    console = terminal()
    sink = ConsoleSink(console)
    one, other = Story(sink.emit, run_id="run-1"), Story(sink.emit, run_id="run-2")
    one.begin("one")
    other.begin("other")
    one.start("a")
    other.start("b")
    heads = [line.split("  ")[0][2:] for line in refreshed(sink, console)]
    assert heads == ["one", " ⠋ a", "other", " ⠋ b"]
    one.finish()
    assert "one succeeded" in console.file.getvalue()
    assert sink._display is not None
    other.finish()
    assert sink._display is None


def test_more_runs_than_the_screen_holds_are_counted(terminal: Callable[..., Any]) -> None:
    """A screen of twenty lines shows four runs, and how many more there are."""
    console = terminal()
    sink = ConsoleSink(console)
    stories = [Story(sink.emit, run_id=f"run-{index}") for index in range(10)]
    for story in stories:
        story.begin()
    assert refreshed(sink, console)[-1] == "… 6 more runs"
    sink.close()


def test_a_resumed_run_keeps_its_name(terminal: Callable[..., Any]) -> None:
    """The drive that resumes it does not say the name again."""
    console = terminal()
    story = Story(ConsoleSink(console).emit)
    story.begin("ship")
    story.tell(ev.RunSuspended())
    story.tell(ev.RunResumed())
    story.finish()
    assert "✓ ship succeeded" in console.file.getvalue()


def test_an_event_between_drives_starts_no_display(terminal: Callable[..., Any]) -> None:
    """An answer to a suspended run is one line, and the terminal stays as it is."""
    console = terminal()
    sink = ConsoleSink(console)
    Story(sink.emit).tell(ev.GateAnswered("merge?", "yes", "ann"))
    assert console.file.getvalue() == "▸ merge?  answered yes by ann\n"
    assert sink._display is None


def test_a_dropped_sink_is_said_above_the_tree(terminal: Callable[..., Any]) -> None:
    """It has no place in the tree, and is not passed over."""
    console = terminal()
    story = Story(ConsoleSink(console).emit)
    story.begin()
    story.tell(ev.SinkDropped("JsonlSink", "disk full"))
    assert "✗ JsonlSink  sink  dropped: disk full\n" in console.file.getvalue()
    story.finish()


def test_a_console_in_use_by_another_display_is_respected(
    terminal: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where rich allows one display only and there is one, plain lines follow."""
    from rich.errors import LiveError
    from rich.live import Live

    def refuse(*args: object, **options: object) -> None:
        raise LiveError("only one")

    monkeypatch.setattr(Live, "start", refuse)
    console = terminal()
    story = Story(ConsoleSink(console).emit)
    story.begin()
    story.run("plan")
    story.finish()
    assert console.file.getvalue().splitlines() == [
        "▸ plan  python",
        "✓ plan  python  1.0 s",
        "✓ ship succeeded in 3.0 s · 1 step · run ship-1",
    ]


# -- who has the screen --------------------------------------------------------------------------


def test_a_pause_takes_the_display_down(terminal: Callable[..., Any]) -> None:
    """A prompt has the screen for itself: the cursor is back, and nothing draws meanwhile."""
    console = terminal()
    sink = ConsoleSink(console)
    story = Story(sink.emit)
    story.begin()
    with sink.pause() as given, sink.pause():
        assert given is console
        story.start("plan")
        assert sink._display is None
        assert console.file.getvalue().count(SHOW) == console.file.getvalue().count(HIDE)
    assert sink._display is not None
    assert "⠋ plan" in refreshed(sink, console)[1]
    sink.close()


def test_plain_lines_wait_for_a_pause_to_end(pipe: Any) -> None:
    """What happens during a prompt is told after it."""
    sink = ConsoleSink(pipe)
    story = Story(sink.emit)
    story.begin()
    with sink.pause():
        story.run("plan")
        during = pipe.file.getvalue().splitlines()
    assert during == ["▸ ship  started, run ship-1"]
    assert pipe.file.getvalue().splitlines()[1:] == ["▸ plan  python", "✓ plan  python  1.0 s"]


def test_the_end_of_a_run_does_not_wait(pipe: Any) -> None:
    """A run that ends while a prompt is open is told at once: nobody may answer any more."""
    sink = ConsoleSink(pipe)
    story = Story(sink.emit)
    story.begin()
    with sink.pause():
        story.run("plan")
        story.finish()
        assert pipe.file.getvalue().splitlines()[-1].startswith("✓ ship succeeded")
    assert len(pipe.file.getvalue().splitlines()) == 4


def test_a_pause_ends_with_an_error(terminal: Callable[..., Any]) -> None:
    """A prompt that raises gives the screen back."""
    sink = ConsoleSink(terminal())
    Story(sink.emit).begin()
    with pytest.raises(KeyboardInterrupt), sink.pause():
        raise KeyboardInterrupt
    assert sink._display is not None
    sink.close()


def test_close_leaves_what_was_shown(terminal: Callable[..., Any]) -> None:
    """A display that is closed before the run ended leaves its tree, and the cursor."""
    console = terminal()
    sink = ConsoleSink(console)
    story = Story(sink.emit)
    story.begin()
    story.start("plan")
    sink.close()
    sink.close()
    left = still(console.file.getvalue()).split("\x1b[2K")[-1].splitlines()
    assert [line.split("  ")[0] for line in left] == ["⠋ ship", "└─ ⠋ plan"]
    assert SHOW in console.file.getvalue()


def test_a_program_that_dies_leaves_the_terminal_usable() -> None:
    """An exception that ends the process in the middle of a run takes the display down."""
    program = """
        import sys
        from rich.console import Console
        from handrail.model import events as ev
        from handrail.sinks.console import ConsoleSink
        console = Console(file=sys.stdout, force_terminal=True, width=80, height=20)
        sink = ConsoleSink(console, live=True)
        sink.emit(ev.stamp(ev.WorkflowStarted("ship"), "ship-1", 1, 1.0))
        raise RuntimeError("the application broke")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        env=None,
        check=False,
    )
    assert "the application broke" in done.stderr
    assert done.stdout.rindex(SHOW) > done.stdout.rindex(HIDE)
    assert "ship" in done.stdout[done.stdout.rindex(SHOW) :]


def test_stdout_is_left_alone_unless_it_is_the_terminal(terminal: Callable[..., Any]) -> None:
    """Output of the application that goes to a file or pipe does not end up in the display."""
    sink = ConsoleSink(terminal())
    before = (sys.stdout, sys.stderr)
    Story(sink.emit).begin()
    during = (sys.stdout, sys.stderr)
    sink.close()
    assert during == before


# -- what it needs -------------------------------------------------------------------------------


def test_without_rich_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library is missed when the sink is made, not at the first event."""
    real = builtins.__import__

    def absent(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("rich"):
            raise ModuleNotFoundError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(
        MissingExtra, match=r'sinks.console needs rich: pip install "handrail\[cli]'
    ):
        ConsoleSink()


def test_another_console_is_refused() -> None:
    """A stream is no console; the error says what is."""
    with pytest.raises(WrongUse, match=r"takes a rich\.console\.Console, got"):
        ConsoleSink(sys.stderr)  # type: ignore[arg-type]


def test_log_lines_go_above_the_tree() -> None:
    """What a handler of `logging` writes, made before the run, is a line of its own above it."""
    program = """
        import logging, pty, os, sys
        logging.basicConfig(level=logging.INFO, format="%(message)s")
        from rich.console import Console
        from handrail.model import events as ev
        from handrail.sinks.console import ConsoleSink
        handler = logging.getLogger().handlers[0]
        sink = ConsoleSink(Console(stderr=True, width=80, height=20), live=True)
        sink.emit(ev.stamp(ev.WorkflowStarted("ship"), "ship-1", 1, 1.0))
        logging.info("one " + "x" * 30)
        logging.info("two")
        sink.emit(ev.stamp(ev.WorkflowCompleted("succeeded"), "ship-1", 2, 2.0))
        assert handler.stream is sys.__stderr__
        logging.info("after")
    """
    screen, inside = pty.openpty()
    done = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], stderr=inside)
    os.close(inside)
    told = b""
    with suppress(OSError):  # the terminal has gone
        while data := os.read(screen, 4096):
            told += data
    os.close(screen)
    assert done.wait(60) == 0
    lines = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line) for line in told.decode().split("\r\n")]
    kept = [line.rpartition("\r")[2] for line in lines]
    assert [one for one in kept if one.startswith(("one", "two", "after"))] == [
        "one " + "x" * 30,
        "two",
        "after",
    ]
