"""Values that no program can be given are refused before anything starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from handrail.errors import DefinitionError
from handrail.system.spawn import arguments, checked, input_bytes


def test_a_text_is_run_by_the_shell_and_words_are_not() -> None:
    """Text becomes one argument of ``/bin/sh -c``; words stay as they are."""
    assert arguments("a | b") == ["/bin/sh", "-c", "a | b"]
    assert arguments(("a", "|", "b")) == ["a", "|", "b"]


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ([], r"must name a program, got \[\]"),
        ([""], r"must name a program, got \[''\]"),
        ("  ", r"must name a program, got '  '"),
        (["seq", 3], r"argument 1 of command 'seq 3' must be str, got int\. Write str"),
        (["echo", "a\0b"], r"argument 1 of command .* has a NUL character at 1"),
        ("echo a\0b", r"has a NUL character at 6"),
        (["echo", "\ud800"], r"argument 1 .* cannot be encoded"),
    ],
)
def test_words_that_cannot_be_executed_are_named(argv: Any, expected: str) -> None:
    """The error names the argument by its place, and what is wrong with it."""
    with pytest.raises(DefinitionError, match=expected):
        start(argv)


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"A=B": "x"}, r"'A=B' cannot name an environment variable"),
        ({"": "x"}, r"'' cannot name an environment variable"),
        ({"N": 3}, r"the value of environment variable 'N' must be str, got int"),
        ({"TOKEN": "s3cret\0"}, r"the value of environment variable 'TOKEN' has a NUL"),
    ],
)
def test_variables_that_cannot_be_set_are_named(env: Any, expected: str) -> None:
    """The error names the variable and keeps its value to itself."""
    with pytest.raises(DefinitionError, match=expected) as caught:
        start(["true"], env=env)
    assert "s3cret" not in str(caught.value)


def test_a_working_directory_with_nul_is_refused() -> None:
    """The error says that it is the working directory."""
    with pytest.raises(DefinitionError, match="the working directory of command 'true' has a NUL"):
        start(["true"], cwd="/tmp\0")


def test_input_text_becomes_utf8() -> None:
    """Text is encoded, bytes and undecodable bytes of file names pass unchanged."""
    assert [input_bytes(None), input_bytes("é"), input_bytes(b"\xff"), input_bytes("\udcff")] == [
        b"",
        b"\xc3\xa9",
        b"\xff",
        b"\xff",
    ]


def test_input_text_that_has_no_encoding_is_refused() -> None:
    """A lone surrogate in stdin is an error that says where it is."""
    with pytest.raises(DefinitionError, match=r"stdin cannot be encoded: .* at 2"):
        input_bytes("ab\ud800")


def start(
    argv: Sequence[str] | str, *, cwd: str | None = None, env: Mapping[str, str] | None = None
) -> None:
    """Start a command that must be refused."""
    checked(argv, cwd=cwd, env=env or {}, has_stdin=False).spawn()
