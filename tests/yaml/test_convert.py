"""Python that was written from a file runs as the file does, and passes what Python must."""

from __future__ import annotations

import importlib.util
import random
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.cli.check import findings_in
from handrail.yaml import load
from handrail.yaml.convert import python_of
from tests.yaml.kit import conductor, run, workhorse, write
from tests.yaml.test_resume import FLOW
from tests.yaml.test_rows import EACH, GATE, LOOP, TWO

KINDS = """
agents:
- {name: a, prompt: "Of {{ workflow.input.t }}\\nin two lines", output: {x: {type: boolean}, n: {type: number}}, validator: {criteria: short},
   retry: {max_attempts: 2, delay_seconds: 0}, model: big, routes: [{to: s, when: "{{ output.x and output.n >= 0.5 }}"}, {to: e}]}
- {name: s, type: script, command: echo, args: ['{"k": "{{ a.output.n }}"}'], routes: [{to: v, when: "k == '1.0'"}, {to: v}]}
- {name: v, type: set, values: {k: "{{ s.output.k }}", l: "[1]"}, routes: [{to: w}]}
- {name: w, type: wait, duration: 1ms, routes: [{to: e}]}
- {name: e, type: terminate, status: success, reason: "as {{ a.output.x }}", output_template: {r: "{{ e.output.reason }}", v: "{{ v.output | default('none') }}"}}
"""
GOTO = """
agents:
- {name: a, prompt: "A{{ context.iteration }}", output: {x: {type: boolean}, y: {type: boolean}}, routes: [{to: b, when: "{{ output.x }}"}, {to: c}]}
- {name: b, prompt: B, output: {x: {type: boolean}, y: {type: boolean}}, routes: [{to: c, when: "{{ output.y }}"}, {to: a, when: "{{ output.x }}"}, {to: $end}]}
- {name: c, prompt: C, output: {x: {type: boolean}, y: {type: boolean}}, routes: [{to: b, when: "{{ output.x }}"}, {to: $end}]}
"""
TEXT = 'r: "{{ context.iteration }}"\n'
HORSE = workhorse("""
    - {id: a, type: agent, prompt: p.md, args: {w: "{{ n.v }}"}, outputs: [{key: ok, default: "no"}], next: b}
    - {id: b, type: call, fn: incr, args: {value: "{{ n.v }}"}, outputs: [{key: n, wrap: v}], next: c}
    - {id: c, type: branch, path: n.v, conditions: [{op: ">=", value: "3", next: f}], default: d}
    - {id: d, type: branch, path: ok, cases: {"yes": f, "no": a}, default: g}
    - {id: f, type: flow, name: inner, args: {m: "{{ n.v }}"}, outputs: [{key: m}], next: e}
    - {id: e, type: terminal}
    - {id: g, type: fail}
    """, head="""
    flows:
      inner:
        start: one
        vars: {m: null}
        nodes:
        - {id: one, type: call, fn: incr, args: {value: "{{ m }}"}, outputs: [{key: m}], next: two}
        - {id: two, type: terminal}
    """)  # fmt: skip
INPUT = (
    "input: {t: {type: string, default: x}, what: {type: string, default: it, description: What}}\n"
)
FILES: Mapping[str, tuple[str, bool]] = {
    "kinds": (conductor(KINDS, head=INPUT), False),
    "loop": (conductor(LOOP, head="limits: {max_iterations: 99}\n", output=TEXT), False),
    "parallel": (conductor(TWO.replace("MODE", "continue_on_error"), output='r: "{{ both.outputs }}"\n'), False),
    "each": (conductor(EACH.replace("KEY", "key_by: thing.id"), output='r: "{{ each.outputs }}"\n'), False),
    "each of texts": (conductor(EACH.replace("KEY", "").replace(", output: {y: {type: string}}", ""), output='r: "{{ each.outputs }}"\n'), False),
    "gate": (conductor(GATE, head=INPUT, output='r: "{{ b.output | default(c.output) }}"\n'), False),
    "goto": (conductor(GOTO, head="limits: {max_iterations: 99}\n", output=TEXT), True),
    "all": (FLOW.replace("1h", "1ms"), False),
    "workhorse": (HORSE, False),
}  # fmt: skip
PROMPTS = {"p.md": "{{ w }} of {{ workhorse_var('n') }}{{ missing.too }}\n"}


def _converted(folder: Path, text: str) -> tuple[Any, bool, Path]:
    code, is_goto = python_of(write(folder, text, PROMPTS))
    file = folder / "converted.py"
    file.write_text(code, "utf-8")
    spec = importlib.util.spec_from_file_location("converted", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["converted"] = module
    spec.loader.exec_module(module)
    workflows = [one for one in vars(module).values() if hasattr(one, "definition")]
    return workflows[-1], is_goto, file


def _drawn(seed: int) -> Mapping[str, Any]:
    """Answers that depend on the prompt, and on the seed."""

    def answer(turn: Any) -> Any:
        draw = random.Random(f"{seed} {turn.prompt.partition('End your answer')[0]}")
        if turn.agent.endswith("-check"):
            return {"passed": True, "reason": ""}
        wanted = turn.schema["properties"] if turn.schema else {}
        made = {
            "boolean": draw.random() < 0.6, "number": float(draw.randint(0, 2)), "string": draw.choice("pq"),
            "array": [{"id": f"{one}"} for one in range(draw.randint(0, 2))],
        }  # fmt: skip
        return {
            key: made.get(said.get("type", ""), draw.choice(["yes", "no"]))
            for key, said in wanted.items()
        }

    return dict.fromkeys(("a", "b", "c", "m", "one", "two", "a-check"), answer)


@pytest.mark.parametrize("name", FILES)
def test_a_converted_file_runs_as_the_file(
    name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Over drawn answers both end alike, with equal values, and ask equal prompts."""
    folder = tmp_path_factory.mktemp(name)
    text, jumps = FILES[name]
    converted, is_goto, _ = _converted(folder, text)
    assert is_goto == jumps
    interpreted = load(folder / "flow.yaml")
    inputs = {"things": ["p", "q"]} if name == "all" else {}

    @given(st.integers(0, 10_000))
    def check(seed: int) -> None:
        def gate(opened: Any) -> Any:
            return (
                "yes" if name == "all" else random.Random(seed).choice(["Ship it", "Not yet: late"])
            )

        ends = [run(one, _drawn(seed), gate, **inputs) for one in (interpreted, converted)]
        (first, asked), (second, asked_again) = ends
        if first.status == "failed" and "max_iterations" in first.error:
            assert second.status == "failed"
            assert "max_steps" in second.error
            return
        assert (first.status, first.value) == (second.status, second.value), (
            first.error,
            second.error,
        )
        assert sorted(asked.prompts) == sorted(asked_again.prompts)

    check()


def test_what_is_written_passes_the_check_and_mypy(tmp_path: Path) -> None:
    """Neither the check nor mypy, which is strict, finds anything in the code of any file."""
    for name, (text, _) in FILES.items():
        _, _, file = _converted(tmp_path / name, text)
        assert list(findings_in(file)) == []
        file.rename(tmp_path / f"{name.replace(' ', '_')}_flow.py")
    pytest.importorskip("mypy")
    words = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", str(tmp_path)]
    done = subprocess.run(
        [*words, "--follow-imports=silent"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_a_sequence_reads_as_a_person_would_write_it(tmp_path: Path) -> None:
    """A loop-back is a loop of Python, a condition is Python, and a step has its round."""
    code, _ = python_of(write(tmp_path, conductor(LOOP)))
    body = code[code.index("@workflow") :]
    assert "while True:\n        n += 1\n" in body
    assert (
        "b = yield from step(f'b-{n}').agent(B, {'prompt': render('Judge {{ a.output.x }}.', seen)}).answer()"
        in body
    )
    assert "if not b['ok']:\n            continue\n        return {}" in body
