"""The command line takes a workflow's file as it takes one of Python."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from handrail.cli import main
from tests.yaml.kit import conductor, write

FLOW = conductor("""
    agents:
    - {name: a, type: script, command: echo, args: ["{{ workflow.input.t }}"], routes: [{to: g}]}
    - name: g
      type: human_gate
      prompt: Sure?
      options: [{label: "yes", value: "yes", route: b}, {label: "no", value: "no", route: $end}]
    - {name: b, type: set, value: "{{ a.output.stdout | trim }}!"}
    """, head="input: {t: {type: string, description: A text}}\n", output='r: "{{ b.output }}"\n')  # fmt: skip


Typed = Callable[..., tuple[str, str, int]]


@pytest.fixture
def typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Typed:
    """What a line prints, and its exit code."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    write(tmp_path, FLOW)

    def type_(*words: str) -> tuple[str, str, int]:
        code = main(list(words))
        said = capsys.readouterr()
        return said.out, said.err, code

    return type_


def test_a_file_runs_is_answered_and_resumed(typed: Typed) -> None:
    """It waits for its gate, a plan shows its steps, an answer and a resume end it."""
    _, said, code = typed(
        "run", "flow.yaml", "--input", "t=hi", "--run-id", "one", "--gates", "fail"
    )
    assert code != 2, said
    assert typed("run", "flow.yaml", "--inputs", '{"t": "hi"}', "--run-id", "two")[2] == 3
    planned = typed("plan", "two")
    assert ("recorded     a  command" in planned[0], planned[2]) == (True, 0), planned
    assert typed("answer", "two", "g", "yes")[2] == 0
    ended = typed("resume", "two")
    assert (ended[2], "'r': 'hi!'" in ended[0]) == (0, True), ended
    shown = typed("show", "two")
    assert ("flow" in shown[0], shown[2]) == (True, 0)


def test_a_file_is_checked_charted_and_shown(typed: Typed) -> None:
    """Check finds nothing, graph has nodes and routes, show the inputs."""
    assert typed("check", "flow.yaml")[2] == 0
    chart = typed("graph", "flow.yaml")[0]
    assert ('n1["g<br>human_gate"]' in chart, 'n1 -->|"yes"| n2' in chart) == (True, True), chart
    assert (
        "g  human_gate → b if yes; $end if no" in typed("graph", "flow.yaml", "--format", "text")[0]
    )
    assert "A text" in typed("show", "flow.yaml")[0]


def test_a_file_that_is_refused_runs_nothing(typed: Typed, tmp_path: Path) -> None:
    """The command ends with 2 and the line; the check with 1."""
    write(tmp_path, FLOW.replace("prompt: Sure?", "prompt: Sure?\n  skills: [x]"))
    _, said, code = typed("run", "flow.yaml", "--input", "t=hi")
    assert (code, "flow.yaml:" in said, "there is no key 'skills'" in said) == (2, True, True)
    assert typed("check", "flow.yaml")[2] == 1
    assert not (tmp_path / ".handrail").exists()


def test_a_file_that_is_missing_is_said_to_be(typed: Typed) -> None:
    """A name with the suffix of a workflow's file is that of a file."""
    _, said, code = typed("run", "no.yaml")
    assert (code, "there is no such file" in said) == (2, True)


def test_a_file_is_converted(typed: Typed, tmp_path: Path) -> None:
    """The code is printed, or written; and runs."""
    assert typed("convert", "flow.yaml")[0].startswith('"""flow, converted from flow.yaml."""')
    assert typed("convert", "flow.yaml", "-o", "flow_too.py")[2] == 0
    out, _, code = typed("run", "flow_too.py", "--input", "t=x", "--gates", "approve")
    assert (code, "'r': 'x!'" in out) == (0, True)
