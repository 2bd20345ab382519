"""What is printed and written is safe to look at, and for its user alone."""

from __future__ import annotations

import os
import stat
import threading
import webbrowser
from pathlib import Path

import pytest

from handrail.shortening import for_terminal
from handrail.web.beside import open_browser
from tests.cli.conftest import Cli

EVIL = "\x1b]52;c;cm0gLXJm\x07\x1b[2J\x1bc\u202eevil\u2066\x9b2J\x9d52;c;x\x9c\x08"
FLOW = f"""\
from handrail import step, workflow

EVIL = {EVIL!a}


def fail():
    raise ValueError(f"failed {{EVIL}}")


@workflow(description=f"says {EVIL!a}")
def asks():
    yield from step("say").call(str, f"said {{EVIL}}")
    yield from step("fail").call(fail).default(EVIL)
    yield from step(f"wait").wait_for(f"go{EVIL.replace(chr(27), "")[:0]}")
    yield from step("merge?").ask(f"Merge {{EVIL}} it?", choices=[f"yes{{EVIL}}", "no"])
"""


@pytest.mark.parametrize("gates", [[], ["--gates", "ask"]])
def test_no_command_prints_terminal_codes_of_a_record(
    cli: Cli, folder: Path, gates: list[str]
) -> None:
    """Neither a gate's question nor anything else that was recorded reaches the terminal raw."""
    (folder / "flow.py").write_text(FLOW)
    said = [cli("run", "flow.py", "--run-id", "r", *gates)]
    said.append(cli("signal", "r", "go", "1"))
    said.append(cli("resume", "r", "--gates", "ask", text="maybe\nno\n"))
    commands = (
        *(("show", "r"), ("show", "r", "say"), ("show", "r", "fail"), ("runs",), ("tail", "r")),
        *(("show", "flow.py:asks"), ("list", "."), ("plan", "r"), ("report", "r")),
        *(("graph", "flow.py"), ("diff", "r", "r", "--all"), ("check", "flow.py")),
        ("answer", "r", "merge?", EVIL),
    )
    said += [cli(*words) for words in commands]
    for one in said:
        for code in ("\x1b]", "\x1b[2J", "\x1bc", "\u202e", "\u2066", "\x9b", "\x9d", "\x08"):
            assert code not in one.out + one.err


def test_colours_and_redrawn_lines_stay() -> None:
    """The live tree needs them."""
    drawn = "\x1b[?25l\x1b[1;32mok\x1b[0m\r\x1b[2K\x1b[1A\tx\n\x1b[?25h"
    assert for_terminal(drawn) == drawn
    assert for_terminal(f"a{EVIL}b") == "aevilb"
    assert for_terminal("\x1b") + for_terminal("]52;c;x") == "]52;c;x"


def test_what_is_written_is_for_its_user_alone(cli: Cli, flows: Path, folder: Path) -> None:
    """The journal, artifacts, logs, exports and reports."""
    os.umask(0o022)
    assert cli("run", "flows.py:greet", "--input", "who=ann", "--run-id", "r").code == 0
    assert cli("export", "r").code == 0
    assert cli("report", "r", "-o", "r.html").code == 0
    assert cli("trust").code == 0
    open_to_others = [
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.name not in {"flows.py", ".gitignore"}
        and (path.name[0] == "." or path.is_file())
        and stat.S_IMODE(path.stat().st_mode) & 0o077
    ]
    assert open_to_others == []


def test_a_browser_gets_no_token_among_its_arguments(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It opens a file of this user alone, which leads to the address."""
    del folder
    opened: list[str] = []
    done = threading.Event()

    def open_it(url: str) -> bool:
        opened.append(url)
        done.set()
        return True

    monkeypatch.setattr(webbrowser, "open", open_it)
    open_browser("http://127.0.0.1:1/?token=abc&x=1#/runs/r")
    assert done.wait(10)
    file = Path(opened[0].removeprefix("file://"))
    assert "abc" not in opened[0]
    assert "http://127.0.0.1:1/?token=abc&amp;x=1#/runs/r" in file.read_text("utf-8")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
