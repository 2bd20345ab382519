"""An agent makes a prompt, and takes an answer only if it is of its type."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

import attrs
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from handrail.agents.agent import Agent
from handrail.agents.fake import FakeBackend
from handrail.errors import AgentError, AnswerRejected, DefinitionError, HandrailError, WrongUse
from handrail.model.events import (
    AgentFinished,
    AgentMessage,
    AgentTurnCompleted,
    AgentTurnStarted,
    AgentUsage,
)
from handrail.model.results import AgentResult, Usage
from handrail.ports.agent import AgentReply
from handrail.typed.jsonsafe import json_safe
from handrail.typed.schema import json_schema
from tests.agents.conftest import MakeRequest

if TYPE_CHECKING:
    from decimal import Decimal

Climb = Callable[..., Any]


@dataclass
class Report:
    title: str
    score: int


@dataclass
class Priced:
    inside: list[Unknown]


@dataclass
class Unknown:
    price: Decimal
    anything: Any


@attrs.frozen
class Verdict:
    ok: bool
    reports: list[Report] = attrs.field(factory=list)


class Point(msgspec.Struct, frozen=True):
    x: float
    y: float | None = None


class Options(TypedDict, total=False):
    color: Literal["red", "blue"]
    tags: dict[str, list[int]]


GOOD = '{"title": "Fine", "score": 3}'


@pytest.mark.parametrize(
    "output", [{"type": "object"}, [Report], (int, str), {"title": str, "score": int}]
)
def test_a_schema_or_a_value_is_no_output_type(output: Any) -> None:
    """The error says that a Python type is wanted, and what came."""
    with pytest.raises(WrongUse, match=r"output= takes a Python type .*not a JSON schema"):
        Agent("a", "x", output=output)


async def test_an_agent_of_text_answers_with_the_reply_itself(make_request: MakeRequest) -> None:
    """Without output=, the answer is the reply's text, and the prompt is the template's alone."""
    backend = FakeBackend(['\n  one {"a": 1} two\n'])
    result = await Agent("writer", "Write {{ what }}.", backend=backend).run(
        make_request({"what": "it"})
    )
    assert result == AgentResult('one {"a": 1} two')
    assert [turn.prompt for turn in backend.turns] == ["Write it."]
    assert backend.turns[0].schema is None


async def test_the_schema_is_in_the_prompt_once(make_request: MakeRequest) -> None:
    """With output=, the backend is sent the prompt, the JSON schema, and the schema as data."""
    backend = FakeBackend([GOOD])
    await Agent("judge", "Judge it.", output=Report, backend=backend).run(make_request())
    schema = json_schema(Report)
    (turn,) = backend.turns
    assert turn.prompt.startswith("Judge it.\n\n")
    assert turn.prompt.count(json.dumps(schema, indent=2)) == 1
    assert turn.schema == schema


async def test_a_turn_says_who_asks_and_where(make_request: MakeRequest, run_id: str) -> None:
    """A turn carries the agent's name, the run, the path and the context."""
    backend = FakeBackend(["x"])
    await Agent("writer", "Write.", backend=backend).run(make_request({"a": 1}))
    (turn,) = backend.turns
    assert (turn.agent, turn.run_id, turn.path, turn.turn, turn.session, turn.context) == (
        "writer", run_id, "work/plan", 1, None, {"a": 1},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("output", "text", "value"),
    [
        (Report, f"First {GOOD}", Report("Fine", 3)),
        (Verdict, '```json\n{"ok": false}\n```\nThat is all.', Verdict(ok=False)),
        (Point, 'x: {"x": 1} or rather {"x": 2.5, "y": 1}', Point(2.5, 1.0)),
        (Options, '{"color": "red", "tags": {"a": [1]}}', {"color": "red", "tags": {"a": [1]}}),
        (list[Report], f"I found [{GOOD}].", [Report("Fine", 3)]),
        (int, "The count is\n42", 42),
        (Literal["yes", "no"], "I think so.\nyes", "yes"),
    ],
    ids=["dataclass", "attrs", "struct", "typed dict", "list", "int", "literal"],
)
async def test_the_answer_is_of_the_output_type(
    make_request: MakeRequest, output: Any, text: str, value: Any
) -> None:
    """The last JSON value that fits is converted to the type, whatever stands around it."""
    agent = Agent("judge", "Judge.", output=output, backend=FakeBackend([text]))
    assert (await agent.run(make_request())).output == value


@pytest.mark.extra("pydantic")
async def test_a_pydantic_model_is_an_output_type(climb: Climb, make_request: MakeRequest) -> None:
    """A model of pydantic is validated by pydantic, and its reason is what the re-ask quotes."""
    import pydantic

    class Finding(pydantic.BaseModel):
        line: int = pydantic.Field(gt=0)

    backend = FakeBackend(['{"line": 0}', '{"line": 7}'])
    result = await climb(Agent("finder", "Find.", output=Finding, backend=backend), make_request())
    assert result.output == Finding(line=7)
    assert "greater than 0" in backend.turns[1].prompt


async def test_an_answer_that_does_not_fit_is_asked_for_again(
    climb: Climb, make_request: MakeRequest
) -> None:
    """The second prompt has the reason, and the result counts both turns."""
    backend = FakeBackend(['{"title": "Fine"}', GOOD])
    result = await climb(
        Agent("judge", "Judge it.", output=Report, backend=backend), make_request()
    )
    assert result == AgentResult(Report("Fine", 3), attempts=2)
    assert "missing required field `score`" in backend.turns[1].prompt


async def test_an_answer_of_no_text_is_asked_for_again(
    climb: Climb, make_request: MakeRequest
) -> None:
    """It is the answer of an agent that has none."""
    backend = FakeBackend(["", " \n", "done"])
    result = await climb(Agent("worker", "Do it.", backend=backend), make_request())
    assert (result.output, result.attempts) == ("done", 3)
    assert "it gave no text" in backend.turns[1].prompt


async def test_a_backend_without_a_session_is_told_everything_again(
    climb: Climb,
    make_request: MakeRequest,
) -> None:
    """Where no session is named, a re-ask repeats the whole prompt and the refused answer."""
    backend = FakeBackend(["no idea", GOOD])
    await climb(Agent("judge", "Judge it.", output=Report, backend=backend), make_request())
    first, second = (turn.prompt for turn in backend.turns)
    assert second.startswith(first)
    assert "no idea" in second[len(first) :]


async def test_a_session_is_gone_on_with(climb: Climb, make_request: MakeRequest) -> None:
    """Where a reply names a session, the re-ask goes into it, and repeats nothing."""
    backend = FakeBackend([AgentReply("no idea", session="s-1"), AgentReply(GOOD, session="s-1")])
    result = await climb(
        Agent("judge", "Judge it.", output=Report, backend=backend), make_request()
    )
    assert [turn.session for turn in backend.turns] == [None, "s-1"]
    assert "no JSON value found" in backend.turns[1].prompt
    assert "Judge it." not in backend.turns[1].prompt
    assert result.session == "s-1"


async def test_a_long_refused_answer_is_quoted_in_part(
    climb: Climb, make_request: MakeRequest
) -> None:
    """Of a refused answer of 100,000 characters only the beginning and the end are sent back."""
    answer = "start " + "x" * 100_000 + " end"
    backend = FakeBackend([answer, GOOD])
    await climb(Agent("judge", "Judge it.", output=Report, backend=backend), make_request())
    again = backend.turns[1].prompt
    assert len(again) < 6_000
    assert "start xxx" in again
    assert "xxx end" in again
    assert "characters left out" in again


async def test_usage_is_the_sum_of_all_turns(climb: Climb, make_request: MakeRequest) -> None:
    """Tokens and costs of refused answers count as well; the model is the last that was named."""
    backend = FakeBackend(
        [
            AgentReply("?", model="m-1", usage=Usage(input_tokens=10, cost_usd=0.5)),
            AgentReply("?"),
            AgentReply(GOOD, model="m-2", usage=Usage(input_tokens=5, output_tokens=7)),
        ]
    )
    result = await climb(Agent("judge", "Judge.", output=Report, backend=backend), make_request())
    assert result.usage == Usage(input_tokens=15, output_tokens=7, cost_usd=0.5)
    assert (result.model, result.attempts) == ("m-2", 3)


@pytest.mark.parametrize("max_reasks", [0, 1, 2])
async def test_re_asks_end(climb: Climb, make_request: MakeRequest, max_reasks: int) -> None:
    """After the prompt and max_reasks more the answer is rejected, with the last reason and it."""
    backend = FakeBackend([f"answer {number}" for number in range(1, 10)])
    agent = Agent("judge", "Judge.", output=Report, backend=backend, max_reasks=max_reasks)
    turns = max_reasks + 1
    said = rf"agent 'judge': no answer fits Report\(title: str, score: int\) after {turns} turns?: "
    with pytest.raises(AnswerRejected, match=said) as caught:
        await climb(agent, make_request())
    assert len(backend.turns) == turns
    assert f"The last answer was 'answer {turns}'." in str(caught.value)


async def test_a_rejected_answer_is_shown_shortened(
    climb: Climb, make_request: MakeRequest
) -> None:
    """The error for an answer of 100,000 characters has some hundreds of them."""
    backend = FakeBackend(["x" * 100_000])
    agent = Agent("judge", "Judge.", output=Report, backend=backend, max_reasks=0)
    with pytest.raises(AnswerRejected) as caught:
        await climb(agent, make_request())
    assert len(str(caught.value)) < 800


async def test_constrained_text_is_asked_for_again_without_json(
    climb: Climb,
    make_request: MakeRequest,
) -> None:
    """Text with constraints is taken as text, checked, and re-asked with the constraint."""
    short = Annotated[str, msgspec.Meta(max_length=5)]
    backend = FakeBackend(["far too long", "short"])
    result = await climb(Agent("writer", "Write.", output=short, backend=backend), make_request())
    assert result.output == "short"
    assert "JSON" not in backend.turns[0].prompt
    assert "length <= 5" in backend.turns[1].prompt


async def test_a_structured_value_is_taken_as_it_is(make_request: MakeRequest) -> None:
    """A backend's own value of the type is the output itself, and other data is converted."""
    report = Report("Fine", 3)
    agent = Agent("judge", "Judge.", output=Report, backend=FakeBackend([report]))
    assert (await agent.run(make_request())).output is report
    agent = Agent("judge", "Judge.", output=Report, backend=FakeBackend([json.loads(GOOD)]))
    assert (await agent.run(make_request())).output == report


async def test_a_structured_value_of_another_type_is_asked_for_again(
    climb: Climb,
    make_request: MakeRequest,
) -> None:
    """A structured value that does not fit is refused with the reason, like text."""
    backend = FakeBackend([{"title": "Fine", "score": "three"}, json.loads(GOOD)])
    result = await climb(Agent("judge", "Judge.", output=Report, backend=backend), make_request())
    assert result.attempts == 2
    assert "Expected `int`, got `str` - at `$.score`" in backend.turns[1].prompt


async def test_each_turn_is_told_of(
    climb: Climb, make_request: MakeRequest, emitted: list[Any]
) -> None:
    """A turn's start with its prompt and its end with the problem and the usage are emitted."""
    used = Usage(output_tokens=4)
    backend = FakeBackend(["?", AgentReply(GOOD, usage=used)])
    await climb(Agent("judge", "Judge.", output=Report, backend=backend), make_request())
    path = "work/plan"
    assert emitted == [
        AgentTurnStarted(path, 1, backend.turns[0].prompt, "fake"),
        AgentMessage(path, "?"),
        AgentFinished(path, "completed"),
        AgentTurnCompleted(path, 1, "no JSON value found"),
        AgentTurnStarted(path, 2, backend.turns[1].prompt, "fake"),
        AgentMessage(path, GOOD),
        AgentUsage(path, used),
        AgentFinished(path, "completed", usage=used),
        AgentTurnCompleted(path, 2, None, used),
    ]


async def test_an_agent_without_a_backend_says_what_to_do(make_request: MakeRequest) -> None:
    """The error names both places that a backend can come from."""
    with pytest.raises(
        AgentError, match=r"agent 'judge'.*backend=\.\.\.\).*Executor\(agents=\{'judge': \.\.\.\}\)"
    ):
        await Agent("judge", "Judge.").run(make_request())


async def test_a_backend_that_raises_is_not_asked_again(make_request: MakeRequest) -> None:
    """What a backend raises ends the attempt as it is."""
    backend = FakeBackend([ConnectionError("down"), GOOD])
    with pytest.raises(ConnectionError, match="down"):
        await Agent("judge", "Judge.", output=Report, backend=backend).run(make_request())
    assert len(backend.turns) == 1


@pytest.mark.parametrize(
    ("arguments", "options", "said"),
    [
        ((None, "x"), {}, "an agent's name must be text, got None"),
        ((" ", "x"), {}, "a name that is not blank"),
        (("a", 3), {}, r"agent 'a': a prompt is text, a pathlib\.Path .* got 3"),
        (("a", "x"), {"output": "Report"}, "output= takes a type, got the text 'Report'"),
        (("a", "x"), {"output": Callable}, "agent 'a', output=: .*has no JSON form"),
        (("a", "x"), {"output": list[Priced]}, r"the annotation of 'Unknown\.price: Decimal'"),
        (("a", "x"), {"backend": 3}, r"backend= takes a backend .* got 3"),
        (("a", "x"), {"backend": "claud"}, r"there is no backend 'claud'. Did you mean 'claude'"),
        (("a", "x"), {"max_reasks": -1}, "max_reasks of agent 'a' must be a whole number"),
    ],
)
def test_a_wrong_definition_says_what_is_wrong(
    arguments: tuple[Any, Any], options: Mapping[str, Any], said: str
) -> None:
    """Each wrong argument is refused when the agent is made, with the agent and the value."""
    with pytest.raises(HandrailError, match=said) as caught:
        Agent(*arguments, **options)
    assert isinstance(caught.value, (WrongUse, DefinitionError))


def test_identity_changes_with_what_decides_the_answer() -> None:
    """Name, prompt and output type make another identity; backend and re-asks do not."""
    agent = Agent("judge", "Judge.", output=Report)
    same = Agent("judge", "Judge.", output=Report, backend=FakeBackend([]), max_reasks=0)
    others = [
        Agent("other", "Judge.", output=Report),
        Agent("judge", "Judge!", output=Report),
        Agent("judge", "Judge.", output=Verdict),
        Agent("judge", "Judge."),
        Agent("judge", render),
    ]
    assert agent.identity == same.identity
    assert agent.identity not in [other.identity for other in others]
    assert json.loads(json.dumps(agent.identity)) == agent.identity


def render(context: Mapping[str, Any]) -> str:
    """A prompt function that can be named by module and name."""
    return str(context)


# --- the answer is found in noise -----------------------------------------------------------------

NAMES = st.text(max_size=12)
REPORTS = st.builds(Report, NAMES, st.integers(-(2**53), 2**53))
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
ANSWERS = st.one_of(
    st.tuples(st.just(Report), REPORTS),
    st.tuples(st.just(Verdict), st.builds(Verdict, st.booleans(), st.lists(REPORTS, max_size=3))),
    st.tuples(st.just(Point), st.builds(Point, FLOATS, st.none() | FLOATS)),
    st.tuples(
        st.just(Options),
        st.fixed_dictionaries(
            {},
            optional={
                "color": st.sampled_from(["red", "blue"]),
                "tags": st.dictionaries(NAMES, st.lists(st.integers(-9, 9), max_size=2)),
            },
        ),
    ),
    st.tuples(st.just(list[Report]), st.lists(REPORTS, max_size=3)),
    st.tuples(st.just(dict[str, int]), st.dictionaries(NAMES, st.integers(-99, 99))),
    st.tuples(st.just(bool), st.booleans()),
    st.tuples(st.just(int), st.integers(-(2**53), 2**53)),
)
BEFORE = st.text(st.sampled_from("word [1] {x} ()*#-.:\n`_"), max_size=60)
AFTER = st.sampled_from(["", "\n", "\n\nThat is my answer.", "\n```\n", "\nI hope {it} helps [ok]"])
INDENTS = st.sampled_from([None, 2])
FENCES = st.sampled_from(["", "```", "```json"])
DECOYS = st.sampled_from(["", GOOD, '[{"title": "", "score": 0}]', '{"x": 0}', "{}", "[]", "17"])


@given(answer=ANSWERS, noise=st.tuples(BEFORE, DECOYS, AFTER), indent=INDENTS, fence=FENCES)
# The fixture only makes requests, which are as good the second time.
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
async def test_any_answer_is_found_in_noise(
    make_request: MakeRequest,
    answer: tuple[Any, Any],
    noise: tuple[str, str, str],
    indent: int | None,
    fence: str,
) -> None:
    """A value in a reply comes back equal at the first turn, whatever stands before it."""
    output, value = answer
    before, decoy, after = noise
    text = json.dumps(json_safe(value), indent=indent, ensure_ascii=False)
    scalar = isinstance(value, (bool, int))
    shown = f"{fence or '```'}\n{text}\n```" if fence or scalar else text
    backend = FakeBackend([f"{before}\n{decoy}\n\n{shown}{after}"])
    result = await Agent("judge", "Judge.", output=output, backend=backend).run(make_request())
    assert result.output == value
    assert type(result.output) is type(value)
    assert result.attempts == 1
