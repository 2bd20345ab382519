"""What files of Conductor and of workhorse say, row by row."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest

from handrail import DefinitionError, Executor, OpenGate
from handrail.yaml import load, settings
from tests.yaml.kit import conductor, run, workhorse, write

AGENT = "{{name: {}, prompt: '{}', output: {{x: {{type: {}}}}}, routes: [{{to: {}}}]}}"


@attrs.frozen
class Row:
    """A file, the answers of its agents, and what comes of it."""

    text: str
    answers: Mapping[str, Any] = attrs.field(factory=dict)
    inputs: Mapping[str, Any] = attrs.field(factory=dict)
    files: Mapping[str, str] = attrs.field(factory=dict)
    value: Any = None
    prompts: list[str] | None = None
    steps: list[str] | None = None
    error: str = ""
    gate: Any = None


SCRIPT = "import json, sys\nprint(json.dumps({'n': len(sys.argv) - 1, 'said': sys.argv[1:]}))\n"
LOOP = """
agents:
- name: a
  prompt: "Round {{ context.iteration }}{% if b is defined %}, after {{ b.output.why }}{% endif %}."
  output: {x: {type: string}}
  routes: [{to: b}]
- name: b
  prompt: "Judge {{ a.output.x }}."
  output: {ok: {type: boolean}, why: {type: string}}
  routes: [{to: a, when: "{{ not output.ok }}"}, {to: $end}]
"""
TWO = """
agents:
- {name: a, prompt: A, output: {x: {type: string}}, routes: [{to: both}]}
- {name: one, prompt: "One of {{ a.output.x }}", output: {y: {type: string}}}
- {name: two, prompt: Two, output: {y: {type: string}}}
parallel:
- {name: both, agents: [one, two], failure_mode: MODE, routes: [{to: $end}]}
"""
EACH = """
agents:
- {name: a, prompt: A, output: {x: {type: array}}, routes: [{to: each}]}
for_each:
- name: each
  type: for_each
  source: a.output.x
  as: thing
  max_concurrent: 1
  KEY
  agent: {name: m, prompt: "{{ _index }} {{ _key }} {{ thing.id }}", output: {y: {type: string}}}
  routes: [{to: $end}]
"""
GATE = """
agents:
- name: a
  type: human_gate
  prompt: "Ship {{ workflow.input.what }}?"
  options:
  - {label: Ship it, value: ship, route: b}
  - {label: Not yet, value: no, route: c, prompt_for: reason}
- {name: b, type: set, value: "shipped"}
- {name: c, type: set, value: "{{ a.output.additional_input.reason }}"}
"""
MODES = """
agents:
- {name: a, prompt: A, output: {x: {type: string}}, routes: [{to: b}]}
- {name: b, prompt: "B", output: {x: {type: string}}, routes: [{to: c}]}
- name: c
  INPUT
  prompt: "{{ a is defined }} {{ b is defined }}"
  output: {x: {type: string}}
"""
XY = {"a": {"x": "1"}, "b": {"x": "2"}, "c": {"x": "3"}}
ROWS = {
    "an agent with typed output": Row(
        conductor("agents: [{name: a, prompt: 'Of {{ workflow.input.t }}', output: {x: {type: number}}}]\n",
                  head="input: {t: {type: string}}\n", output='r: "{{ a.output.x }}"\n'),
        {"a": {"x": 3}}, {"t": "apples"}, value={"r": 3}, prompts=["Of apples"], steps=["a"],
    ),
    "an agent without an output has its text": Row(
        conductor("agents: [{name: a, prompt: Hello}]\n", output='r: "{{ a.output.result }}!"\n'),
        {"a": "hi"}, value={"r": "hi!"},
    ),
    "instructions go before each prompt": Row(
        conductor("agents: [{name: a, prompt: Hello}]\n", head="instructions: [Be brief.]\n"),
        {"a": "hi"}, value={}, prompts=["Be brief.\n\nHello"],
    ),
    "bounds of an answer are held": Row(
        conductor("agents: [{name: a, prompt: A, output: {x: {type: string, enum: [p, q]}}}]\n",
                  output='r: "{{ a.output.x }}"\n'),
        {"a": [{"x": "z"}, {"x": "q"}]}, value={"r": "q"},
    ),
    "a validator that refuses has the agent asked again": Row(
        conductor("agents: [{name: a, prompt: A, validator: {criteria: 'Be {{short}}'}}]\n",
                  output='r: "{{ a.output.result }}"\n'),
        {"a": ["long", "s"], "a-check": lambda turn: {"passed": "\ns\n" in turn.prompt, "reason": "no"}},
        value={"r": "s"},
    ),
    "a retry": Row(
        conductor("agents: [{name: a, prompt: A, retry: {max_attempts: 2, delay_seconds: 0}}]\n",
                  output='r: "{{ a.output.result }}"\n'),
        {"a": [ValueError("once"), "fine"]}, value={"r": "fine"},
    ),
    "a script, whose JSON is its output": Row(
        conductor("""
            agents:
            - name: a
              type: script
              command: python3
              args: [-c, "import json,os,sys; print(json.dumps({'s': sys.stdin.read(), 'e': os.environ['E']}))"]
              stdin: "{{ workflow.input.t }}"
              env: {E: "<{{ workflow.input.t }}>"}
              routes: [{to: b, when: "exit_code == 0"}, {to: $end}]
            - {name: b, type: set, value: "{{ a.output.s }}{{ a.output.e }}"}
            """, head="input: {t: {type: string}}\n", output='r: "{{ b.output }}"\n'),
        inputs={"t": "in"}, value={"r": "in<in>"}, steps=["a"],
    ),
    "a script that fails goes on with its exit code": Row(
        conductor("agents: [{name: a, type: script, command: sh, args: [-c, exit 3]}]\n",
                  output='r: "{{ a.output.exit_code }}"\n'), value={"r": 3},
    ),
    "a script that lacks a declared field fails": Row(
        conductor("agents: [{name: a, type: script, command: echo, args: ['{}'], output: {x: {type: string}}}]\n"),
        error="no JSON object with x",
    ),
    "a route by an expression": Row(
        conductor("""
            agents:
            - name: a
              prompt: A
              output: {coverage: {type: number}}
              routes: [{to: b, when: "coverage >= 70"}, {to: $end}]
            - {name: b, type: set, value: enough}
            """, output='r: "{{ b.output | default(\'little\') }}"\n'),
        {"a": {"coverage": 71}}, value={"r": "enough"},
    ),
    "a route with an output of its own": Row(
        conductor("agents: [{name: a, prompt: A, routes: [{to: $end, output: {why: '{{ output.result }}'}}]}]\n"),
        {"a": "so"}, value={"why": "so"},
    ),
    "terminate with success, and its own output": Row(
        conductor("agents: [{name: a, type: terminate, status: success, reason: done, output_template: {r: '{{ a.output.reason }}'}}]\n"),
        value={"r": "done"},
    ),
    "terminate with failure, and the data": Row(
        conductor("agents: [{name: a, type: terminate, status: failed, reason: 'no way', output_template: {n: '{{ 1 }}'}}]\n"),
        error='no way {"n": 1}',
    ),
    "a workflow in another file": Row(
        conductor("agents: [{name: a, type: workflow, workflow: child.yaml, input_mapping: {q: 'What is {{ workflow.input.t }}?'}}]\n",
                  head="input: {t: {type: string}}\n", output='r: "{{ a.output.answer }}"\n'),
        {"c": {"x": "42"}}, {"t": "it"},
        {"child.yaml": conductor("agents: [{name: c, prompt: '{{ workflow.input.q }}', output: {x: {type: string}}}]\n",
                                 head="input: {q: {type: string}}\n", output='answer: "{{ c.output.x }}"\n', start="c")},
        value={"r": "42"}, prompts=["What is it?"],
    ),
    "parallel": Row(
        conductor(TWO.replace("MODE", "fail_fast"), output='r: "{{ both.outputs.one.y }}{{ both.outputs.two.y }}"\n'),
        {"a": {"x": "z"}, "one": {"y": "p"}, "two": {"y": "q"}}, value={"r": "pq"},
    ),
    "parallel that continues": Row(
        conductor(TWO.replace("MODE", "continue_on_error"), output='r: "{{ both.errors | length }} {{ both.outputs.two.y }}"\n'),
        {"a": {"x": "z"}, "one": ValueError("bad"), "two": {"y": "q"}}, value={"r": "1 q"},
    ),
    "parallel that needs all": Row(
        conductor(TWO.replace("MODE", "all_or_nothing")),
        {"a": {"x": "z"}, "one": ValueError("bad"), "two": {"y": "q"}}, error="both",
    ),
    "for each item": Row(
        conductor(EACH.replace("KEY", "failure_mode: fail_fast"), output='r: "{{ each.outputs }}"\nn: "{{ each.count }}"\n'),
        {"a": {"x": [{"id": "u"}, {"id": "v"}]}, "m": [{"y": "1"}, {"y": "2"}]},
        value={"r": [{"y": "1"}, {"y": "2"}], "n": 2}, prompts=["A", "0 0 u", "1 1 v"],
    ),
    "for each item by key": Row(
        conductor(EACH.replace("KEY", "key_by: thing.id"), output='r: "{{ each.outputs.v.y }}"\n'),
        {"a": {"x": [{"id": "u"}, {"id": "v"}]}, "m": [{"y": "1"}, {"y": "2"}]},
        value={"r": "2"}, prompts=["A", "0 u u", "1 v v"], steps=["a", "each", "each/u/m", "each/v/m"],
    ),
    "context: accumulate": Row(conductor(MODES.replace("INPUT", "")), XY, value={}, prompts=["A", "B", "True True"]),
    "context: last_only": Row(
        conductor(MODES.replace("INPUT", ""), head="context: {mode: last_only}\n"), XY, value={}, prompts=["A", "B", "False True"],
    ),
    "context: explicit": Row(
        conductor(MODES.replace("INPUT", "input: [a.output, 'z.output?']"), head="context: {mode: explicit}\n"),
        XY, value={}, prompts=["A", "B", "True False"],
    ),
    "context: explicit, and one is missing": Row(
        conductor(MODES.replace("INPUT", "input: [z.output]"), head="context: {mode: explicit}\n"), XY, error="'z.output' is not there",
    ),
    "a gate": Row(
        conductor(GATE, head="input: {what: {type: string}}\n", output='r: "{{ b.output }}"\n'),
        inputs={"what": "it"}, gate="Ship it", value={"r": "shipped"}, steps=["a"],
    ),
    "a gate that asks for a text": Row(
        conductor(GATE, head="input: {what: {type: string}}\n", output='r: "{{ c.output }}"\n'),
        inputs={"what": "it"}, gate="Not yet: too early", value={"r": "too early"},
    ),
    "set and wait": Row(
        conductor("""
            agents:
            - {name: a, type: set, values: {n: "{{ 1 + 1 }}", t: "{{ 'x' }}y", l: "[1, {{ 2 }}]"}, routes: [{to: b}]}
            - {name: b, type: wait, duration: "{{ a.output.n }}ms"}
            """, output='r: "{{ a.output }}"\nw: "{{ b.output.waited_seconds }}"\n'),
        value={"r": {"n": 2, "t": "xy", "l": [1, 2]}, "w": 0.002}, steps=["b"],
    ),
    "a loop, whose steps are numbered": Row(
        conductor(LOOP, output='n: "{{ context.iteration }}"\n'),
        {"a": {"x": "t"}, "b": [{"ok": False, "why": "w"}, {"ok": True, "why": ""}]},
        value={"n": 4}, steps=["a", "b", "a-2", "b-2"],
        prompts=["Round 0.", "Judge t.", "Round 2, after w.", "Judge t."],
    ),
    "a loop without end": Row(
        conductor(LOOP, head="limits: {max_iterations: 3}\n"), {"a": {"x": "t"}, "b": {"ok": False, "why": "w"}},
        error="limits.max_iterations=3 is reached",
    ),
    "variables of the environment and files": Row(
        conductor("agents: [{name: a, prompt: !file p.md}]\n", head='description: "${NO_SUCH:-fine}"\n', output='r: "${NO_SUCH:-fine}"\n'),
        {"a": "x"}, files={"p.md": "From {% include 'q.md' %} ${NO_SUCH:-here}", "q.md": "q"},
        value={"r": "fine"}, prompts=["From q here"],
    ),
    "defaults of inputs": Row(
        conductor("agents: [{name: a, type: set, value: x}]\n", output='r: "{{ workflow.input.n }} {{ workflow.input.m }}"\n',
                  head="input: {n: {type: number, default: 2}, m: {type: string, required: false}}\n"),
        value={"r": "2 None"},
    ),
    "workhorse: an agent and a script": Row(
        workhorse("""
            - {id: a, type: agent, prompt: p.md, args: {who: "{{ name }}"}, outputs: [{key: plan}], next: b}
            - {id: b, type: script, script: s.py, args: ["{{ plan.text }}", "{{ nothing.at.all }}"], outputs: [{key: n}, {key: said}], next: c}
            - {id: c, type: terminal}
            """, head="vars: {name: Ann}\n"),
        {"a": {"plan": {"text": "t"}}}, files={"p.md": "For {{ who }} of {{ workhorse_var('name') }}, {{ node_timeout_min }} min", "s.py": SCRIPT},
        value={"name": "Ann", "plan": {"text": "t"}, "n": 2, "said": ["t", ""]}, prompts=["For Ann of Ann, 60 min"],
    ),
    "workhorse: an agent that fails has its defaults": Row(
        workhorse("""
            - {id: a, type: agent, prompt: p.md, timeout: infinity, outputs: [{key: ok, default: "no"}, {key: n}], next: b}
            - {id: b, type: branch, path: ok, cases: {"yes": d}, default: c}
            - {id: c, type: terminal}
            - {id: d, type: fail}
            """),
        {"a": ValueError("x")}, files={"p.md": "{{ node_timeout_s }}"}, value={"ok": "no", "n": None}, prompts=["unbounded"],
    ),
    "workhorse: numbers as text, and a loop": Row(
        workhorse("""
            - {id: a, type: call, fn: incr, args: {value: "{{ count.value }}"}, outputs: [{key: count, wrap: value}], next: b}
            - {id: b, type: branch, path: count.value, conditions: [{op: "<", value: "3", next: a}, {op: "==", value: "3", next: c}]}
            - {id: c, type: terminal}
            """),
        value={"count": {"value": 3}}, steps=["a", "a-2", "a-3"],
    ),
    "workhorse: a branch without a way": Row(
        workhorse("- {id: a, type: branch, path: no.such, cases: {x: b}}\n- {id: b, type: terminal}\n"), error="none of its routes",
    ),
    "workhorse: fail": Row(workhorse("- {id: a, type: fail}\n"), error="it reached 'a'"),
    "workhorse: a flow": Row(
        workhorse("""
            - {id: a, type: flow, name: inner, args: {n: "{{ start_at }}"}, outputs: [{key: m}], next: b}
            - {id: b, type: terminal}
            """, head="""
            vars: {start_at: 4}
            flows:
              inner:
                start: one
                vars: {n: null}
                nodes:
                - {id: one, type: call, fn: incr, args: {value: "{{ n }}"}, outputs: [{key: m}], next: two}
                - {id: two, type: terminal}
            """),
        value={"start_at": 4, "m": 5}, steps=["a", "a/one"],
    ),
    "workhorse: the output of another node": Row(
        workhorse("""
            - {id: a, type: call, fn: seed, outputs: [{key: n}], next: b}
            - {id: b, type: call, fn: incr, args: {value: "{{ get_node_output('a', 'n') }}"}, outputs: [{key: n}], next: c}
            - {id: c, type: terminal}
            """),
        value={"n": 1},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_what_a_file_says_happens(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that says this ends so, with these prompts and steps."""
    row = ROWS[name]
    monkeypatch.chdir(tmp_path)
    file = write(tmp_path, row.text, row.files)

    def gate(opened: OpenGate) -> Any:
        assert opened.question == "Ship it?"
        return row.gate

    result, backend = run(load(file), row.answers, gate if row.gate else None, **row.inputs)
    if row.error:
        assert (result.status, row.error in result.error) == ("failed", True), result.error
        return
    assert (result.error, result.value) == (None, row.value)
    if row.prompts is not None:
        assert backend.prompts == row.prompts
    if row.steps is not None:
        assert [one.path for one in result.step_results] == row.steps


def test_what_a_file_says_of_all_agents_is_the_executors(tmp_path: Path) -> None:
    """Backend, model, servers and bounds of the runtime are the arguments of an executor."""
    head = """
    runtime:
      provider: claude-agent-sdk
      default_model: opus
      temperature: 0.5
      max_tokens: 100
      default_reasoning_effort: high
      max_agent_iterations: 7
      mcp_servers:
        web: {command: npx, args: [-y, search], tools: [search]}
        docs: {type: http, url: https://example.com, tools: ["*"]}
    """
    given = settings(write(tmp_path, conductor("agents: [{name: a, prompt: A}]\n", head=head)))
    options = given["agent_options"]
    assert (given["backend"], given["model"]) == ("claude", "opus")
    assert (options.temperature, options.max_tokens, options.effort, options.max_turns) == (
        0.5,
        100,
        "high",
        7,
    )
    assert options.allowed_tools == ("mcp__web__search",)
    assert set(options.mcp_servers) == {"web", "docs"}
    assert options.mcp_servers["web"] == {"command": "npx", "args": ["-y", "search"]}
    with pytest.raises(DefinitionError, match="'claude' cannot honour temperature"):
        Executor(**given)


def test_a_file_bounds_its_runs(tmp_path: Path) -> None:
    """Its seconds, and dollars that it enforces, are limits of the workflow."""
    head = "limits: {timeout_seconds: 9, budget_usd: 2.5, budget_mode: enforce}\n"
    limits = load(
        write(tmp_path, conductor("agents: [{name: a, prompt: A}]\n", head=head))
    ).definition.limits
    assert limits is not None
    assert limits.budget is not None
    assert (limits.timeout_s, limits.budget.usd) == (9, 2.5)


def test_what_an_agent_says_goes_to_its_step(tmp_path: Path) -> None:
    """Model, effort, system prompt, tools and folder are options of the agent's step."""
    text = conductor("""
        agents:
        - name: a
          prompt: A
          model: "{{ workflow.input.m }}"
          reasoning: {effort: low}
          system_prompt: "Of {{ workflow.input.m }}"
          tools: []
          working_dir: sub
          timeout_seconds: 5
        """, head="input: {m: {type: string}}\n")  # fmt: skip
    _, backend = run(load(write(tmp_path, text)), {"a": "x"}, m="big")
    options = backend.turns[0].options
    assert (options.model, options.effort, options.system_prompt) == ("big", "low", "Of big")
    assert (options.tools, options.cwd) == ((), str(tmp_path / "sub"))
