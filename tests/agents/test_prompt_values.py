"""What stands in a prompt for a value: text as it is, data as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pytest

from handrail import Agent, AgentResult, CommandResult, Executor, step
from handrail.testing import FakeBackend
from tests.engine.support import just


class Color(Enum):
    """A choice."""

    RED = "red"


@dataclass
class Plan:
    """A typed output."""

    title: str
    parts: list[str]


PLAN = Plan("a <b> & 'c' é", ["x"])
AS_JSON = {"title": PLAN.title, "parts": ["x"]}


async def prompt_of(template: str, **context: Any) -> str:
    """The prompt that a backend is given."""
    backend = FakeBackend(["ok"])
    agent = Agent("a", template, backend=backend)
    result = await Executor().run(just(step("x").agent(agent, context)))
    assert result.success, result.error
    return str(backend.turns[0].prompt)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (PLAN, AS_JSON),
        ([PLAN, 1], [AS_JSON, 1]),
        ({"a": (1, None, True)}, {"a": [1, None, True]}),
        (AgentResult(PLAN), AS_JSON),
        (Color.RED, "red"),
    ],
)
async def test_data_is_json_in_a_prompt(value: Any, shown: Any) -> None:
    """With and without the filter; nothing in it is escaped as for HTML."""
    for template in ("{{ value | tojson }}", "{{ value | tojson(indent=2) }}", "{{ value }}"):
        text = await prompt_of(template, value=value)
        assert json.loads(text) == shown
        assert "\\u003c" not in text


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("plain <text>", "plain <text>"),
        (3, "3"),
        (1.5, "1.5"),
        (True, "True"),
        (None, "None"),
        (AgentResult("said"), "said"),
        (CommandResult(0, "printed\n", ""), "printed"),
    ],
)
async def test_text_and_numbers_stand_as_they_are(value: Any, shown: str) -> None:
    """As they always did; of a result its text."""
    assert await prompt_of("<{{ value }}>", value=value) == f"<{shown}>"


TEXTS = [
    "{{ plan | string }}", "{{ plan | trim }}", "{{ plan | indent }}", "{{ plan | safe }}",
    "{{ plan | truncate(400) }}", "{{ plan | replace('zz', '') }}", "{{ plan ~ '' }}",
    "{{ '%s' | format(plan) }}", "{{ '%s' % plan }}", "{{ '%s' % (plan,) }}",
    "{{ '%(a)s' % {'a': plan} }}", "{{ '%(a)s' | format(a=plan) }}", "{{ plans | join(', ') }}",
    "{{ holders | join('', attribute='plan') }}", "{{ plans | map('string') | first }}",
    "{% for one in plans %}{{ one }}{% endfor %}",
    "{% for one in plans %}{{ one ~ '' }}{% endfor %}",
    "{{ plan | pprint }}", "{{ result | trim }}", "{{ result ~ '' }}",
    "{% set text = plan | string %}{{ text }}", "{% if plan %}{{ '' ~ plan }}{% endif %}",
]  # fmt: skip


@pytest.mark.parametrize("template", TEXTS)
async def test_data_is_json_wherever_it_becomes_text(template: str) -> None:
    """By a filter, an operator, in a loop: a model never reads what Python calls a value."""
    known = {"plan": PLAN, "plans": [PLAN], "holders": [{"plan": PLAN}]}
    text = await prompt_of(template, **known, result=AgentResult(PLAN))
    assert json.loads(text) == AS_JSON


@pytest.mark.parametrize(
    ("template", "shown"),
    [
        ("{{ plans | map(attribute='title') }}", json.dumps([PLAN.title], ensure_ascii=False)),
        ("{{ range(2) }}", "[0, 1]"),
        ("{{ 7 % 4 }} {{ '%d%%' % 3 }}", "3 3%"),
        ("{{ 'a' ~ none ~ 1 }}", "aNone1"),
        ("{{ ['a', 2, none] | join('-') }} {{ 'abc' | join('-') }}", "a-2-None a-b-c"),
        ("{{ {'q': 'a b'} | urlencode }}", "q=a+b"),
        ("{{ ' said ' | trim | upper }}", "SAID"),
    ],
)
async def test_what_is_no_data_is_as_jinja_has_it(template: str, shown: str) -> None:
    """Text, numbers and their operators are untouched; what is made on the way is a list."""
    assert await prompt_of(template, plans=[PLAN]) == shown
