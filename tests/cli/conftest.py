"""The command as tests use it: in this process, or as a process of its own."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from handrail.cli import main

FLOWS = '''\
from __future__ import annotations

from dataclasses import dataclass

from handrail import RunCancelled, Steps, step, workflow


@dataclass(frozen=True)
class Greeting:
    text: str
    times: int


@workflow(description="Greet somebody")
def greet(who: str, times: int = 2) -> Steps[Greeting]:
    """Say hello."""
    text = yield from step("text").call("hello {}".format, who)
    return Greeting(text, times)


@workflow
def fails() -> Steps[None]:
    yield from step("divide").call(divmod, 1, 0)


@workflow
def asks() -> Steps[str]:
    return (yield from step("merge?").ask("Merge it?", choices=["yes", "no"]))


@workflow
def gives_up() -> Steps[None]:
    yield from step("first").call(str)
    raise RunCancelled("not today")
'''


DURABLE = """\
import os
from pathlib import Path

from handrail import step, workflow

HOLD = "echo $$ >leader; until [ -e go ]; do sleep 0.02; done"


def note(text):
    with open("notes", "a") as stream:
        stream.write(text + "\\n")
    return text


def undo(ctx):
    note("undone")


def survive(text):
    note(text)
    if not Path("go").exists():
        os.kill(os.getpid(), 9)
    return text


@workflow
def dies(first="a", second="b"):
    one = yield from step("first").call(note, first).with_rollback(undo)
    two = yield from step("second").call(survive, second)
    return one + two


@workflow
def asks():
    yield from step("before").call(note, "before")
    answer = yield from step("merge?").ask("Merge it?", choices=["yes", "no"])
    return (yield from step("after").call(note, f"merged: {answer}"))


@workflow
def waits():
    return (yield from step("wait").wait_for("approved", int))


@workflow
def holds():
    yield from step("before").call(note, "before").with_rollback(undo)
    yield from step("hold").command(HOLD)
    return (yield from step("after").call(note, "after"))


@workflow
def asks_while_it_works():
    answer, _ = yield from step("both").parallel(
        step("merge?").ask("Merge it?", choices=["yes", "no"]),
        step("hold").command(HOLD),
    )
    return answer
"""


@dataclass(frozen=True)
class Outcome:
    """What a command came to."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """What it printed, as JSON."""
        return json.loads(self.out)


Cli: TypeAlias = Callable[..., Outcome]
"""What runs the command."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder; what is imported from it is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HANDRAIL_DEBUG", "")  # put back after the test, whatever --debug sets
    return tmp_path


@pytest.fixture
def flows(folder: Path) -> Path:
    """A file of four workflows, ``flows.py`` in the working folder."""
    file = folder / "flows.py"
    file.write_text(FLOWS, "utf-8")
    return file


@pytest.fixture
def durable(folder: Path) -> Path:
    """A file of workflows whose steps leave notes, ``durable.py`` in the working folder.

    ``dies`` kills its process in its second step, and ``holds`` waits in it, until there is a file
    ``go``.
    """
    file = folder / "durable.py"
    file.write_text(DURABLE, "utf-8")
    return file


def notes() -> list[str]:
    """What the steps of ``durable.py`` have done so far, in order."""
    file = Path("notes")
    return file.read_text("utf-8").splitlines() if file.exists() else []


@pytest.fixture
def cli(folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Runs the command in this process, without a terminal; its imports are forgotten each time.

    What is on its stdin can be given as ``text``.
    """
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)

    def run(*words: str, text: str = "") -> Outcome:
        capfd.readouterr()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode()), "utf-8"))
        code = main(words)
        for name in set(sys.modules) - before:
            if str(folder) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]
        out, err = capfd.readouterr()
        return Outcome(code, str(out), str(err))

    return run


def spawned(*words: str, text: str = "", **variables: str) -> Outcome:
    """Runs the command as a process of its own, in the current folder."""
    done = subprocess.run(
        [sys.executable, "-m", "handrail.cli", *words],
        input=text,
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONIOENCODING": "utf-8", **variables},
        timeout=60,
        check=False,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def process(folder: Path) -> Cli:
    """``spawned``, in an empty working folder."""
    del folder
    return spawned


@contextlib.contextmanager
def live(*words: str, until: str = "leader") -> Generator[subprocess.Popen[str]]:
    """The command as a process that goes on, once it has written a line into this file."""
    with subprocess.Popen(
        [sys.executable, "-m", "handrail.cli", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    ) as child:
        try:
            wait_for(Path(until), child)
            yield child
        finally:
            Path("go").touch()  # what it started ends too
            child.kill()


def wait_for(file: Path, child: subprocess.Popen[str]) -> None:
    """Return when the file has a whole line; the process must not end before."""
    while not (file.exists() and file.read_text().endswith("\n")):
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(0.02)
            raise AssertionError(child.communicate())


def killed(*words: str) -> None:
    """Run the command in a process that kills itself."""
    assert spawned(*words).code == -signal.SIGKILL
