"""Inputs from the command line and from files."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from handrail import InvalidInput, Steps, WorkflowDefinition, step, workflow
from handrail.cli.exits import Refused
from handrail.cli.inputs import Arguments, arguments_for, read_file
from tests.cli.conftest import Cli


@workflow
def plain(task: str, rounds: int = 3, *, when: date | None = None) -> Steps[None]:
    """Inputs of several types."""
    yield from step("a").call(print, task, rounds, when)


@workflow
def listing(first: int, /, second: int = 2, *rest: int, **named: float) -> Steps[None]:
    """Every kind of parameter."""
    yield from step("a").call(print, first, second, rest, named)


def given(flow: Any, *typed: str, file: Path | None = None) -> Arguments:
    """The arguments for a workflow."""
    definition: WorkflowDefinition = flow.definition
    return arguments_for(definition, typed, read_file(file))


def test_text_is_converted_by_the_annotation() -> None:
    """An int, a date and a text come from the same kind of text."""
    expected = {"task": "7", "rounds": 7, "when": date(2026, 1, 31)}
    assert given(plain, "task=7", "rounds=7", "when=2026-01-31") == ([], expected)


def test_only_the_first_equals_sign_counts() -> None:
    """A value may hold more of them, and may be empty."""
    assert given(plain, "task=a=b=") == ([], {"task": "a=b="})
    assert given(plain, "task=") == ([], {"task": ""})


def test_every_kind_of_parameter_can_be_given() -> None:
    """Positional-only ones and ``*rest`` are passed by position, ``**named`` by name."""
    args, kwargs = given(listing, "first=1", "rest=[3, 4]", "ratio=0.5")

    assert (args, kwargs) == ([1, 2, 3, 4], {"ratio": 0.5})


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ([], r"'plain': needs task \(str\). Add --input task=VALUE"),
        (["task"], "--input 'task': is not name=value"),
        (["=x"], "--input '=x': is not name=value"),
        (["task=a", "task=b"], "input 'task': was given twice"),
        (["task=a", "ronds=1"], r"unknown input 'ronds'.*Did you mean 'rounds'\?.*rounds \(int"),
    ],
)
def test_a_wrong_input_is_named(typed: Sequence[str], said: str) -> None:
    """The text says which input, what is wrong with it, and what to type."""
    with pytest.raises(Refused, match=said):
        given(plain, *typed)


def test_a_value_of_another_type_is_named_with_what_was_expected() -> None:
    """The text holds the parameter, what came, and the type."""
    with pytest.raises(InvalidInput, match=r"input 'rounds': got 'many', expected int"):
        given(plain, "task=a", "rounds=many")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("in.json", '{"task": "a", "when": "2026-01-31"}'),
        ("in.toml", 'task = "a"\nwhen = 2026-01-31\n'),
    ],
)
def test_inputs_come_from_a_file(tmp_path: Path, name: str, text: str) -> None:
    """JSON and TOML are read by their ending; what was typed wins over the file."""
    file = tmp_path / name
    file.write_text(text, "utf-8")

    assert given(plain, file=file) == ([], {"task": "a", "when": date(2026, 1, 31)})
    assert given(plain, "task=b", file=file)[1]["task"] == "b"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("in.json", "{", "is not JSON"),
        ("in.toml", "= 1", "is not TOML"),
        ("in.json", "[1]", "must be an object of names"),
        ("in.json", '{"task": "a", "rounds": "3"}', "input 'rounds': got '3', expected int"),
    ],
)
def test_a_wrong_file_of_inputs_is_named(tmp_path: Path, name: str, text: str, said: str) -> None:
    """A file says its types itself: in JSON a text is no number."""
    file = tmp_path / name
    file.write_text(text, "utf-8")

    with pytest.raises((Refused, InvalidInput), match=said):
        given(plain, file=file)


def test_a_missing_file_of_inputs_is_a_usage_error(cli: Cli, flows: Path) -> None:
    """The line names the file, and nothing is run."""
    del flows
    outcome = cli("run", "flows.py:greet", "--inputs", "nowhere.json")

    assert outcome.code == 2
    assert (
        outcome.err == "handrail: inputs nowhere.json: cannot be read: No such file or directory.\n"
    )


def test_inputs_come_from_stdin(process: Cli, flows: Path) -> None:
    """``--inputs -`` reads JSON from stdin."""
    del flows
    outcome = process("run", "flows.py:greet", "--inputs", "-", "--quiet", text='{"who": "Ada"}')

    assert outcome.out == "Greeting(text='hello Ada', times=2)\n"
