"""Runs of files are resumed as those of Python: after a crash, and after an edit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from handrail import Executor, ReplayMismatch, SqliteJournal
from handrail.testing import JumpClock, Script, crash_everywhere
from handrail.yaml import load
from tests.yaml.kit import Answering, conductor, write

FLOW = conductor("""
    agents:
    - {name: a, prompt: "Write {{ b.output.why | default('it') }}.", output: {x: {type: string}}, routes: [{to: c}]}
    - {name: c, type: script, command: echo, args: ['{"n": 1}'], routes: [{to: g}]}
    - name: g
      type: human_gate
      prompt: Sure?
      options: [{label: "yes", value: "yes", route: b}, {label: "no", value: "no", route: $end}]
    - {name: b, prompt: "Judge {{ a.output.x }}.", output: {ok: {type: boolean}, why: {type: string}},
       routes: [{to: each, when: "{{ output.ok }}"}, {to: a}]}
    - {name: w, type: wait, duration: 1h}
    for_each:
    - name: each
      type: for_each
      source: workflow.input.things
      as: thing
      agent: {name: m, prompt: "{{ thing }}", output: {y: {type: string}}}
      routes: [{to: w}]
    """, head="limits: {max_iterations: 60}\ninput: {things: {type: array}}\n", output='r: "{{ each.outputs }}"\nn: "{{ c.output.n }}"\n')  # fmt: skip
ANSWERS: dict[str, Any] = {
    "a": lambda turn: {"x": "first" if "it" in turn.prompt else "second"},
    "b": lambda turn: {"ok": "second" in turn.prompt, "why": "more"},
    "m": {"y": "done"},
}


def _executor(journal: Any) -> Executor:
    return Executor(journal=journal, backend=Answering(ANSWERS), clock=JumpClock())


def test_a_run_that_is_killed_anywhere_goes_on(tmp_path: Path) -> None:
    """Whichever record the process dies at, the run ends as without, and nothing ended runs twice."""
    workflow = load(write(tmp_path, FLOW))
    told = crash_everywhere(
        workflow,
        executor=_executor,
        answers={"g": "yes", "g-2": "yes"},
        folder=tmp_path,
        limit=14,
        things=["p", "q"],
    )
    assert told.crashes > 10


def test_an_edited_file_is_a_changed_step(tmp_path: Path) -> None:
    """A prompt that was edited is a mismatch of its step, and of no other."""
    file = write(tmp_path, FLOW)
    journal = SqliteJournal(tmp_path / "runs.db")
    executor = Executor(journal=journal, backend=Answering(ANSWERS))
    options = executor.options(run_id="one")
    assert options.run_sync(load(file), things=[]).status == "suspended"
    write(tmp_path, FLOW.replace("Write {{", "Draw {{"))
    with pytest.raises(ReplayMismatch) as caught:
        executor.resume_sync("one", load(file))
    assert [change.path for change in caught.value.changes] == ["a"]
    plan = executor.plan_sync("one", load(file))
    assert [(step.path, step.state) for step in plan.steps][:2] == [
        ("a", "changed"),
        ("c", "recorded"),
    ]


def test_a_script_drives_a_file(tmp_path: Path) -> None:
    """Each line of a test says how a node's step ended."""
    script = Script(load(write(tmp_path, FLOW)), things=[])
    script.expect("a").returns({"x": "t"})
    assert list(script.pending) == ["c"]
