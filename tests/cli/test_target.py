"""How a TARGET becomes a workflow."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Cli

ONE = """\
from flows import greet
from handrail import step, workflow


@workflow("the only one")
def only():
    return (yield from step("name").call(str, __name__))
"""


@pytest.mark.usefixtures("flows")
def test_the_name_may_be_left_out_where_there_is_one_workflow(cli: Cli, folder: Path) -> None:
    """Workflows that the file imported from elsewhere do not count."""
    (folder / "one.py").write_text(ONE, "utf-8")

    assert cli("run", "one.py", "--quiet").out == "one\n"


@pytest.mark.parametrize("target", ["one.py:only", "one:only", "one", "one.py:the only one"])
@pytest.mark.usefixtures("flows")
def test_a_workflow_has_several_names(cli: Cli, folder: Path, target: str) -> None:
    """It is found by file or module, by the function's name and by its own."""
    (folder / "one.py").write_text(ONE, "utf-8")

    assert cli("run", target, "--quiet").out == "one\n"


def test_a_file_in_a_package_may_import_relatively(cli: Cli, folder: Path) -> None:
    """It is imported as part of its package, from wherever it is named."""
    package = folder / "project" / "flows"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "names.py").write_text("NAME = 'relative'\n", "utf-8")
    text = ONE.replace("from flows import greet", "from .names import NAME")
    (package / "one.py").write_text(text.replace("__name__", "NAME"), "utf-8")

    assert cli("run", "project/flows/one.py", "--quiet").out == "relative\n"


def test_a_file_may_have_the_name_of_a_module(cli: Cli, folder: Path) -> None:
    """The module that is imported already stays what it is."""
    import json

    (folder / "json.py").write_text(ONE.replace("from flows import greet\n", ""), "utf-8")

    assert cli("run", "json.py", "--quiet").out == "json_workflow\n"
    assert sys.modules["json"] is json


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("flow.py", "handrail: flow.py: there is no such file. There is flows.py.\n"),
        ("flows.py", "defines 4 workflows. Say which: flows.py:greet, "),
        ("flows.py:gret", "has no workflow 'gret'. It has: greet, fails, asks, gives_up. Did you"),
        ("flows.py:Greeting", "flows.py:Greeting: is not a workflow."),
        ("flows.py:", "TARGET 'flows.py:': is not file.py:name or module:name."),
        (".", ".: is a folder, not a Python file. handrail list ."),
        ("folder/", "folder/: is a folder, not a Python file. handrail list folder/"),
        ("nothing.here:x", "module 'nothing.here': there is no such file or module."),
        ("empty.py", "empty.py: defines no workflow."),
        ("broken.py", "broken.py:2: SyntaxError: "),
        ("binary.py", "handrail: binary.py: SyntaxError: source code string cannot contain null"),
        ("raises.py", "raises.py:3: ZeroDivisionError: division by zero.\n"),
        ("imports.py", "imports.py:1: ModuleNotFoundError: No module named 'not_there'.\n"),
        ("leaves.py", "leaves.py: it ended the process when it was imported (exit 5)."),
    ],
)
@pytest.mark.usefixtures("flows")
def test_a_target_that_cannot_be_used_is_one_line(
    cli: Cli, folder: Path, target: str, said: str
) -> None:
    """Exit code 2, and on stderr what is wrong, at which line, and what there is instead."""
    (folder / "folder").mkdir()
    (folder / "empty.py").touch()
    (folder / "broken.py").write_text("a = 1\ndef\n", "utf-8")
    (folder / "binary.py").write_bytes(b"\0")
    (folder / "raises.py").write_text("def f():\n\n    return 1 / 0\n\nf()\n", "utf-8")
    (folder / "imports.py").write_text("import not_there\n", "utf-8")
    (folder / "leaves.py").write_text("raise SystemExit(5)\n", "utf-8")

    outcome = cli("show", target)

    assert (outcome.code, outcome.out) == (2, "")
    assert said in outcome.err
    assert outcome.err.startswith("handrail: ")
    assert outcome.err.count("\n") == 1
