"""`handrail check` finds agents that would be refused, from the source alone."""

from __future__ import annotations

import pytest

from handrail.cli.check import agent_mistakes
from handrail.static.lint import check_module
from handrail.static.lint_reads import stage_mistakes

HEAD = """\
from handrail import Agent, AgentOptions, Steps, step, workflow

coder = Agent("coder", "Do {{ it }}.", backend="codex")
anyone = Agent[int]("anyone", "Do it.")
few = AgentOptions(max_turns=3)

@workflow
def flow(where: str, other: Agent) -> Steps[None]:
    {}
"""


def found(line: str) -> list[str]:
    """What is found in a workflow with this line."""
    text = HEAD.format(line)
    return [
        f"{finding.line - text[: text.index('    ' + line)].count(chr(10))} {finding.message}"
        for finding in check_module(text, "flow.py", agent_mistakes)
        if finding.code == "HR109"
    ]


PROMPTS = """\
from handrail import Agent, Steps, step, workflow

asks = Agent("asks", "{{ name }} {{ ctx.run_id }} {% if x is defined %}{{ x }}{% endif %} "
             "{{ y | default('') }} {% for i in range(3) %}{{ i }}{% endfor %}")

@workflow
def flow(given: dict) -> Steps[None]:
    yield from step("a").agent(CALL)
"""


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ('asks, {"name": 1, "more": 2}', ""),
        ('asks, lambda ctx: {"name": 1}', ""),
        ("asks, given", ""),
        ("asks, {**given}", ""),
        ('asks, {given["x"]: 1}', ""),
        ('Agent("odd", "{{ unclosed"), {}', ""),
        ("asks", "the prompt of 'asks' needs 'name', which the context lacks. Add it to"),
        (
            'asks, lambda ctx: {"names": 1}',
            "the prompt of 'asks' needs 'name', which the context lacks. Did you mean 'names'?",
        ),
        ('Agent("b", "{{ it }}"), {}, model="x"', "the prompt of 'b' needs 'it', which"),
    ],
)
def test_a_variable_that_the_context_lacks_is_found(call: str, said: str) -> None:
    """The prompt and the keys of the context are compared where both are written out."""
    text = PROMPTS.replace("CALL", call)
    found = [str(one) for one in check_module(text, "f.py", agent_mistakes) if one.code == "HR110"]
    assert len(found) == bool(said)
    assert all(said in one for one in found)


STAGES = """\
from handrail import Executor, Steps, step, workflow

@workflow
def flow() -> Steps[None]:
    yield from step("v").validate(["lnit", "tests", "nothing like it"])

EXECUTOR
"""


NAMED = """\
from handrail import Agent, Steps, step, workflow

PROMPT = "{{ tsak }}"
a = Agent("a", PROMPT)

@workflow
def flow() -> Steps[None]:
    given = {"task": 1}
    yield from step("wrong").agent(a, given)
    yield from step("wrong too").agent(a, context=dict(task=1))
    more = {"name": 1}
    more["tsak"] = 2
    yield from step("right").agent(a, more)
    later = {"name": 1}
    later.update(tsak=2)
    yield from step("right too").agent(a, later)
"""


def test_a_prompt_and_a_context_that_have_names_are_compared() -> None:
    """Where each is assigned once, and nothing else is done to it."""
    found = [one.line for one in check_module(NAMED, "f.py", agent_mistakes)]
    assert found == [9, 10]


@pytest.mark.parametrize(
    ("executor", "configured", "said"),
    [
        ("", [], []),
        ('Executor(stages={"lint": "x"})', [], ["no stage is named 'lnit'. Did you mean 'lint'?"]),
        ("", ["test", "lnit"], ["no stage is named 'tests'. Did you mean 'test'?"]),
    ],
)
def test_a_stage_that_is_nearly_known_is_found(
    executor: str, configured: list[str], said: list[str]
) -> None:
    """Known are those of the project and of executors of the file; there may be others."""
    text = STAGES.replace("EXECUTOR", executor)
    found = check_module(text, "f.py", lambda symbols: stage_mistakes(symbols, configured))
    assert [str(one).partition("HR110 ")[2] for one in found] == said


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            'yield from step("a").agent(anyone, backend="cluade")',
            "1 step 'a': agent 'anyone': there is no backend 'cluade'. Did you mean 'claude'?",
        ),
        (
            'yield from step("a").agent(other, backend="cluade").retry(2)',
            "1 step 'a': agent 'agent': there is no backend 'cluade'. Did you mean 'claude'?",
        ),
        (
            'yield from step("a").agent(coder, options=AgentOptions(max_turns=3))',
            "1 step 'a': agent 'coder': backend 'codex' cannot honour max_turns. Those that can: ",
        ),
        (
            'yield from step("a").agent(other, backend="codex", options=AgentOptions(max_turns=3))',
            "1 step 'a': agent 'agent': backend 'codex' cannot honour max_turns. ",
        ),
        (
            'yield from step("a").agent(Agent("x", "y", backend="claude:"))',
            "1 agent 'x': 'claude:' names no model after the colon. ",
        ),
        (
            'yield from step("a").agent(Agent[int]("x", "y", fallback=["codx"]))',
            "1 agent 'x', fallback: there is no backend 'codx'. Did you mean 'codex'?",
        ),
        (
            'yield from step("a").generate(anyone, backend="gemnii")',
            "1 step 'a': agent 'anyone': there is no backend 'gemnii'. Did you mean 'gemini'?",
        ),
    ],
)
def test_an_agent_that_would_be_refused_is_found(line: str, said: str) -> None:
    """With the words of the refusal, at the line of the step or of the agent."""
    (finding,) = found(line)
    assert finding.startswith(said)


@pytest.mark.parametrize(
    "line",
    [
        'yield from step("a").agent(coder)',
        'yield from step("a").agent(coder, model="gpt-6")',
        'yield from step("a").agent(anyone, backend="claude", options=AgentOptions(max_turns=3))',
        'yield from step("a").agent(anyone, options=AgentOptions(max_turns=3))',
        'yield from step("a").agent(coder, options=few)',
        'yield from step("a").agent(coder, options=AgentOptions(max_turns=int(where)))',
        'yield from step("a").agent(coder, backend=where)',
        'yield from step("a").agent(coder, **{"backend": "cluade"})',
        'yield from step("a").call(dict, backend="cluade")',
        'yield from step("a").agent(other, options=AgentOptions(max_turns=3))',
        'dict(a=1).agent(backend="cluade")',
    ],
)
def test_what_is_not_written_out_or_is_right_is_left_alone(line: str) -> None:
    """In doubt nothing is found: the run says it when it starts."""
    assert found(line) == []
