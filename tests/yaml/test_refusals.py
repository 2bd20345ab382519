"""What a file says that has no counterpart, or that is wrong: with line and advice, before a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from handrail.yaml import FileRefused, load
from handrail.yaml.files import YamlFiles
from handrail.yaml.tables import INSTEAD, SCHEMAS
from tests.yaml.kit import conductor, run, workhorse, write

HEAD = "workflow:\n  name: flow\n  entry_point: a\n"
A = "agents:\n- name: a\n  prompt: A\n"
W = "name: flow\nstart: a\nnodes:\n- id: a\n  type: agent\n  prompt: p.md\n  next: b\n"
NAMES = range(1, 9)
BOMB = "".join(f"    x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9)}]\n" for n in NAMES)
MERGES = "".join(f"    x{n}: &x{n}\n      <<: [{', '.join([f'*x{n - 1}'] * 9)}]\n" for n in NAMES)
CASES = {
    "skills": (f"{HEAD}{A}  skills: [x]\n", 7, "`skills:` has no counterpart", "into the prompt"),
    "plugins": (f"{HEAD}{A}  plugins: [x]\n", 7, "`plugins:`", "put it where"),
    "dialog": (f"{HEAD}{A}  dialog: {{trigger_prompt: x}}\n", 7, "`dialog:`", "human_gate"),
    "session_key": (f"{HEAD}{A}  session_key: x\n", 7, "`session_key:`", "session=earlier"),
    "context_tier": (f"{HEAD}{A}  context_tier: x\n", 7, "`context_tier:`", "`model:`"),
    "max_session_seconds": (f"{HEAD}{A}  max_session_seconds: 9\n", 7, "`max_session", "timeout_"),
    "sandbox": (f"{HEAD}{A}  sandbox: {{x: 1}}\n", 7, "`sandbox:`", "sandbox = true"),
    "tool_output": (
        f"{HEAD}  runtime:\n    tool_output: {{max_chars: 9}}\n{A}", 5, "`tool_output:`", "program",
    ),
    "skill_discovery": (
        f"{HEAD}  runtime:\n    skill_discovery: {{sources: [x]}}\n{A}", 5, "`skill_dis", "put it",
    ),
    "plugin_sources": (
        f"{HEAD}  runtime:\n    plugin_sources: {{x: y}}\n{A}", 5, "`plugin_sou", "put it where",
    ),
    "default_context_tier": (
        f"{HEAD}  runtime:\n    default_context_tier: x\n{A}", 5, "`default_con", "`model:`",
    ),
    "provider": (f"{HEAD}  runtime: {{provider: hermes}}\n{A}", 4, "provider 'hermes'", "environment"),
    "provider settings": (
        f"{HEAD}  runtime:\n    provider: {{name: claude, base_url: x}}\n{A}", 5,
        "`provider.base_url:`", "environment",
    ),
    "hooks": (f"{HEAD}  hooks: {{on_start: x}}\n{A}", 4, "`hooks:`", "notify"),
    "pricing": (f"{HEAD}  cost: {{pricing: {{m: x}}}}\n{A}", 4, "`pricing:`", "prices of its own"),
    "max_tokens": (f"{HEAD}  context: {{max_tokens: 9}}\n{A}", 4, "`max_tokens:`", "`mode: explicit`"),
    "max_depth": (
        f"{HEAD}agents:\n- name: a\n  type: workflow\n  workflow: flow.yaml\n  max_depth: 2\n", 8,
        "`max_depth:`", "Limits",
    ),
    "questions": (
        f"{HEAD}agents:\n- name: a\n  type: questions\n  prompt: x\n", 6, "type 'questions'", "human_gate",
    ),
    "requires": (f"requires: [{{cmd: uv}}]\n{W}- {{id: b, type: fail}}\n", 1, "`requires:`", "script node"),
    "power": (f"{W}  power: high\n- {{id: b, type: fail}}\n", 8, "`power:`", "`model:`"),
    "models": (f"{W}  model: {{claude: x}}\n- {{id: b, type: fail}}\n", 8, "a model for each", "--backend"),
    "refuel": (
        "name: f\nstart: a\nnodes:\n- {id: a, type: script, script: s.py, refuel: n, next: b}\n- {id: b, type: fail}\n",
        4, "`refuel:`", "--max-steps",
    ),
    "a misspelt key": (f"{HEAD}{A}  promt: x\n", 7, "there is no key 'promt'", "Did you mean 'prompt'?"),
    "a key of nothing": (f"{HEAD}{A}  zzzzz: x\n", 7, "there is no key 'zzzzz'", "There are: name"),
    "a missing key": (f"{HEAD}agents:\n- name: a\n", 5, "`prompt:` is missing", "Add it."),
    "a node that there is not": (f"{HEAD}{A}  routes:\n  - to: b\n", 7, "no node 'b'", "There are: a."),
    "an entry that there is not": (f"workflow:\n  name: f\n  entry_point: z\n{A}", 3, "no node 'z'", "a."),
    "a word that is none": (f"{HEAD}  context: {{mode: all}}\n{A}", 4, "'all' is no word", "last_only"),
    "a number that is none": (f"{HEAD}  limits: {{max_iterations: 0}}\n{A}", 4, "above 0", "Write it so."),
    "a type that is none": (f"{HEAD}agents:\n- {{name: a, type: skript}}\n", 5, "no node of type 'skript'", "'script'"),
    "an input that is no name": (
        f"{HEAD}  input:\n    my-in: {{type: string}}\n{A}", 5, "'my-in' cannot be", "underscores",
    ),
    "a child that is missing": (
        f"{HEAD}agents:\n- name: a\n  type: workflow\n  workflow: no.yaml\n", 7, "no file 'no.yaml'", "path",
    ),
    "a prompt that is missing": (f"{W}- {{id: b, type: fail}}\n", 4, "no file 'p.md'", "path"),
    "a flow that is missing": (
        "name: f\nstart: a\nflows: {x: {start: b, nodes: [{id: b, type: fail}]}}\nnodes:\n- {id: a, type: flow, name: y, next: b}\n- {id: b, type: fail}\n", 5, "no flow 'y'", "x",
    ),
    "a key that is there twice": (f"{HEAD}{A}  prompt: B\n", 7, "'prompt' is there twice", "Keep one"),
    "no mapping": ("- a\n", 1, "this is no mapping", "A workflow is"),
    "no YAML": ("workflow: [\n", 2, "this is not YAML", "Correct it."),
    "a list that is none": (f"{HEAD}{A}  tools: x\n", 7, "`tools:` must be a list", "Write it so."),
    "a mapping that is none": (f"{HEAD}  limits: 3\n{A}", 4, "`limits:` must be a mapping", "name"),
    "an agent that is none": (f"{HEAD}agents: [a]\n", 4, "must be a list of mappings", "name"),
    "a variable that is not set": (f"{HEAD}{A}  model: ${{NO_SUCH_ONE}}\n", 7, "NO_SUCH_ONE", ":-default}"),
    "a bomb of aliases": (f"{HEAD}  metadata:\n    x0: &x0 [1]\n{BOMB}{A}", 5, "more than 100000 values", "fewer aliases"),
    "a bomb of merges": (f"{HEAD}  metadata:\n    x0: &x0 {{k: 1}}\n{MERGES}{A}", 5, "more than 100000 values", "fewer"),
    "an alias to itself": (f"{HEAD}  metadata: &m {{x: *m}}\n{A}", 4, "leads back to itself", "Correct"),
    "lists in lists": (f"{HEAD}  metadata: {'[' * 3000}{']' * 3000}\n{A}", 1, "nested too deep", "Correct"),
    "a large file": (f"{HEAD}{A}#{'x' * 10_000_000}", 1, "larger than", "Split it."),
    "a tab": (f"{HEAD}agents:\n\t- name: a\n", 5, "this is not YAML", "Correct it."),
    "a second document": (f"{HEAD}{A}---\n{A}", 7, "this is not YAML", "Correct it."),
    "a date that is none": (f"{HEAD}{A}  description: 2020-13-45\n", 7, "'2020-13-45' is no value", "Correct"),
    "an object of Python": (f"{HEAD}{A}  metadata: !!python/name:os.system x\n", 7, "this is not YAML", "Correct"),
    "nothing": ("", 1, "this is no mapping", "A workflow is"),
    "a workflow that is empty": (f"workflow: {{}}\n{A}", 1, "`workflow:` is missing", "Add it."),
    "agents that are none": (f"{HEAD}agents: false\n", 4, "`agents:` is missing", "Add it."),
    "an entry that is a list": (f"workflow:\n  name: f\n  entry_point: [a]\n{A}", 3, "must be one value", "Write it so."),
    "a condition that is a mapping": (f"{HEAD}{A}  routes:\n  - {{to: a, when: {{x: 1}}}}\n", 8, "must be one value", "Write it so."),
    "a text for a number": (f"{HEAD}{A}  output:\n    x: {{type: number, minimum: low}}\n", 8, "must be a number", "Write it so."),
    "a pattern that is none": (f"{HEAD}{A}  output:\n    x: {{type: string, pattern: '('}}\n", 7, "malformed", "Correct"),
    "an unknown key inside": (
        f"{HEAD}{A}  output:\n    x:\n      type: object\n      properties:\n        y: {{typo: string}}\n", 11, "'typo'", "'type'",
    ),
    "a default of another type": (f"{HEAD}  input:\n    n: {{type: number, default: x}}\n{A}", 5, "does not fit", "Correct"),
    "a template that is none": (f"{HEAD}agents:\n- name: a\n  prompt: 'x {{{{ 1 + }}}}'\n", 6, "`prompt:` is malformed", "Correct"),
    "two nodes of a name": (f"{HEAD}{A}- name: a\n  prompt: B\n", 7, "two nodes 'a'", "another name"),
    "a member that is no step": (
        f"{HEAD}agents:\n- {{name: s, type: set, value: x}}\nparallel:\n- {{name: a, agents: [s]}}\n", 5, "'set' cannot be a member", "agent, script",
    ),
    "a member twice": (f"{HEAD}agents:\n- {{name: s, prompt: S}}\nparallel:\n- {{name: a, agents: [s, s]}}\n", 7, "'s' twice", "Keep"),
    "an option twice": (
        f"{HEAD}agents:\n- {{name: a, type: human_gate, prompt: x, options: [{{label: l, value: v, route: a}}, {{label: l, value: w, route: a}}]}}\n",
        5, "'l' twice", "Keep",
    ),
    "a circle of branches": (
        "name: f\nstart: a\nnodes:\n- {id: a, type: branch, path: x, default: b}\n- {id: b, type: branch, path: x, default: a}\n",
        4, "leads back to itself", "elsewhere",
    ),
    "a timeout that is none": (f"{W.replace('p.md', 'flow.yaml')}  timeout: soon\n", 8, "'soon'", "infinity"),
    "a file that is missing": (f"{HEAD}agents:\n- name: a\n  prompt: !file no.md\n", 6, "no.md", "path"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_refusal_names_the_line_and_what_to_write(name: str, tmp_path: Path) -> None:
    """The first refusal has file, line, what is refused, and what to write instead."""
    text, line, what, instead = CASES[name]
    file = write(tmp_path, text)
    with pytest.raises(FileRefused) as caught:
        load(file)
    refused = caught.value
    assert (Path(refused.file).name, refused.line) == ("flow.yaml", line)
    assert what in refused.what
    assert instead in refused.instead
    assert str(refused).startswith(f"{refused.file}:{line}: ")


@pytest.mark.parametrize(
    "content",
    [b"a: \xe9", b"a: \0", "a: 1".encode("utf-16"), b""],
    ids=["latin", "nul", "utf16", "empty"],
)
def test_a_file_that_is_no_text_is_refused(content: bytes, tmp_path: Path) -> None:
    """Bytes that are not UTF-8, or that YAML does not allow, are a refusal with the file's name."""
    (tmp_path / "flow.yaml").write_bytes(content)
    with pytest.raises(FileRefused, match=r"flow\.yaml:1: "):
        load(tmp_path / "flow.yaml")


FAILING = {
    "a class": "{{ ''.__class__.__mro__ }}", "a class in a text": "x {{ ''|attr('__class__') }}",
    "globals": "{{ cycler.__init__.__globals__ }}", "a format": "{{ '{0.__class__}'.format(1) }}",
    "a range": "{{ range(10**9)|list }}", "a division": "{{ 1/0 }}", "a name": "{{ nobody.x }}",
    "itself": "{% include 'flow.yaml' %}",
}  # fmt: skip


@pytest.mark.parametrize("name", FAILING)
def test_a_template_that_fails_ends_the_run_with_its_line(name: str, tmp_path: Path) -> None:
    """What a template may not reach, or cannot compute, fails the run at the line of its node."""
    node = f'agents:\n- {{name: a, type: script, command: echo, args: ["{FAILING[name]}"]}}\n'
    result, _ = run(load(write(tmp_path, HEAD + node)), {})
    assert result.status == "failed"
    assert "flow.yaml:5: node 'a': " in str(result.error)


def test_a_merged_key_may_be_said_again(tmp_path: Path) -> None:
    """What a mapping says itself goes before what ``<<`` brings in."""
    nodes = (
        "agents:\n- &b {name: a, prompt: A, routes: [{to: c}]}\n- {<<: *b, name: c, routes: []}\n"
    )
    result, backend = run(load(write(tmp_path, HEAD + nodes)), {"a": "x", "c": "y"})
    assert result.status == "succeeded"
    assert backend.prompts == ["A", "A"]


def test_each_key_without_a_counterpart_is_refused_in_a_case() -> None:
    """The cases above have each key of the table, but for two that stand beside others."""
    marked = {
        rule.removesuffix("!")[1:] or key
        for rules in SCHEMAS.values()
        for key, rule in rules.items()
        if rule.startswith("-")
    }
    assert marked | {"provider", "model"} == set(INSTEAD)
    assert set(INSTEAD) - {name.split()[0] for name in CASES} == {
        "skill_injection",
        "trim_strategy",
    } | {"model"}


def test_a_file_is_refused_with_all_that_is_wrong_in_it(tmp_path: Path) -> None:
    """The error says how many more there are, and the check lists each, in order of lines."""
    file = write(tmp_path, f"{HEAD}{A}  skills: [x]\n  promt: y\n  dialog: {{trigger_prompt: z}}\n")
    with pytest.raises(FileRefused, match=r"\(2 more: handrail check "):
        load(file)
    assert [one.line for one in YamlFiles.findings(file)] == [7, 8, 9]


def test_what_has_no_counterpart_may_be_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key that the caller or the project names is ignored; others are refused all the same."""
    monkeypatch.chdir(tmp_path)
    file = write(tmp_path, f"{HEAD}{A}  skills: [x]\n  dialog: {{trigger_prompt: z}}\n")
    with pytest.raises(FileRefused, match="`dialog:`"):
        load(file, without=["skills"])
    result, _ = run(load(file, without=["skills", "dialog"]), {"a": "x"})
    assert result.status == "succeeded"
    (tmp_path / "pyproject.toml").write_text("[tool.handrail]\nyaml_without = 'skills dialog'\n")
    assert run(load(file), {"a": "x"})[0].status == "succeeded"


def test_a_name_that_nothing_sets_is_a_warning_of_workhorses_files(tmp_path: Path) -> None:
    """It renders empty there, and the check says where it stands."""
    text = workhorse("""
        - {id: a, type: agent, prompt: p.md, args: {x: "{{ known }}{{ unknown }}"}, next: b}
        - {id: b, type: terminal}
        """, head="vars: {known: 1}\n")  # fmt: skip
    file = write(tmp_path, text, {"p.md": "{{ x }} {{ nobody }} {{ node_timeout_min }}"})
    found = list(YamlFiles.findings(file))
    assert [(one.code, one.line) for one in found] == [("HR220", 6), ("HR220", 6)]
    assert ["'nobody'" in found[0].message, "'unknown'" in found[1].message] == [True, True]


def test_a_file_that_can_run_has_no_finding(tmp_path: Path) -> None:
    """What the tables allow is found right."""
    assert not list(YamlFiles.findings(write(tmp_path, conductor(A))))
