"""``handrail init``: what it writes works as it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from handrail.cli.init import Example
from handrail.cli.quickstart import find_example
from tests.cli.conftest import Cli


def test_a_new_workflow_is_clean_and_runs(cli: Cli) -> None:
    """`check` finds nothing in it, and `run` gives its value."""
    assert cli("init", "my_flow").code == 0
    assert cli("check", "my_flow.py", "test_my_flow.py").code == 0

    outcome = cli("run", "my_flow.py", "--input", "topic=rain", "--quiet")

    assert outcome.code == 0
    assert "Poem(text='Write a poem of 3 lines about rain.', words=8)" in outcome.out


def test_the_test_of_a_new_workflow_passes(cli: Cli, folder: Path) -> None:
    """The tests that came with it pass."""
    cli("init", "flows/my_flow")

    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "flows"]
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        command, capture_output=True, encoding="utf-8", cwd=folder, env=env, check=False
    )

    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout


@pytest.mark.parametrize("example", get_args(Example))
def test_a_template_is_an_example(cli: Cli, folder: Path, example: str) -> None:
    """It is written as it stands, `check` finds nothing in it, and it has one workflow."""
    done = cli("init", "mine", "--template", example)
    assert (done.code, "handrail show mine.py" in done.out) == (0, True)
    assert (folder / "mine.py").read_text("utf-8") == find_example(f"{example}.py").read_text(
        "utf-8"
    )
    assert cli("check", "mine.py").code == 0
    assert cli("show", "mine.py").code == 0
    assert cli("init", "mine", "--template", example).code == 2


@pytest.mark.parametrize("there", ["my_flow.py", "test_my_flow.py"])
def test_nothing_is_written_over(cli: Cli, folder: Path, there: str) -> None:
    """If one of the files is there, neither is written, and the exit code is 2."""
    (folder / there).write_text("mine", "utf-8")

    outcome = cli("init", "my_flow")

    assert outcome.code == 2
    assert outcome.err == f"handrail: {there}: already exists and is not overwritten.\n"
    assert [(file.name, file.read_text()) for file in folder.iterdir()] == [(there, "mine")]


@pytest.mark.parametrize(
    ("name", "hint"), [("my-flow", "Try my_flow."), ("class", ""), ("1st", ""), ("a b", "Try a_b.")]
)
def test_a_name_must_be_one_that_python_takes(cli: Cli, folder: Path, name: str, hint: str) -> None:
    """Another is refused, with one that would do if there is one."""
    outcome = cli("init", name)

    assert outcome.code == 2
    assert outcome.err.strip().endswith(
        f"is not a valid name for a Python module and function. {hint}".strip()
    )
    assert list(folder.iterdir()) == []


def test_the_ending_py_may_be_given(cli: Cli, folder: Path) -> None:
    """`init my_flow.py` writes the same files as `init my_flow`."""
    cli("init", "my_flow.py")

    assert {file.name for file in folder.iterdir()} == {"my_flow.py", "test_my_flow.py"}
