"""The command as tests use it: in this process, or as a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder; what is imported from it is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HANDRAIL_DEBUG", raising=False)
    return tmp_path


@pytest.fixture
def flows(folder: Path) -> Path:
    """A file of four workflows, ``flows.py`` in the working folder."""
    file = folder / "flows.py"
    file.write_text(FLOWS, "utf-8")
    return file


@pytest.fixture
def cli(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Outcome]]:
    """Runs the command in this process, without a terminal."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)

    def run(*words: str) -> Outcome:
        capfd.readouterr()
        code = main(words)
        return Outcome(code, *capfd.readouterr())

    yield run
    for name in set(sys.modules) - before:
        if str(folder) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


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
def process(folder: Path) -> Callable[..., Outcome]:
    """``spawned``, in an empty working folder."""
    del folder
    return spawned
