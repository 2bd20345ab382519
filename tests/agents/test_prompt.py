"""A prompt is made from its context, and every mistake in it is told with its place."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from handrail.agents.agent import Agent
from handrail.agents.fake import FakeBackend
from handrail.agents.prompt import Prompt
from handrail.errors import MissingExtra, PromptError
from tests.agents.conftest import MakeRequest

Ask = Callable[..., Any]


@pytest.fixture
def ask(make_request: MakeRequest) -> Ask:
    """A function of a prompt and a context: the text that the backend is sent."""

    async def sent(prompt: Prompt, context: Mapping[str, Any] | None = None, **inputs: Any) -> str:
        backend = FakeBackend(["ok"])
        await Agent("writer", prompt, backend=backend).run(make_request(context, **inputs))
        return backend.turns[0].prompt

    return sent


async def test_a_template_is_filled_from_the_context(ask: Ask) -> None:
    """Text is a Jinja2 template of the context's values, with nothing escaped or cut off."""
    template = "{% for name in names %}- {{ name }}\n{% endfor %}{{ plan.title }}\n"
    context = {"names": ["<a> & b", "{{ c }}"], "plan": {"title": "'T'"}}
    assert await ask(template, context) == "- <a> & b\n- {{ c }}\n'T'\n"


async def test_ctx_is_the_workflow_context(ask: Ask, run_id: str) -> None:
    """The template can use ctx for the run's inputs and results."""
    text = await ask("{{ ctx.inputs.task }} in {{ ctx.run_id }}", {}, task="sweep")
    assert text == f"sweep in {run_id}"


async def test_a_ctx_of_the_context_goes_first(ask: Ask) -> None:
    """A value that the context calls ctx is not hidden."""
    assert await ask("{{ ctx }}", {"ctx": "mine"}) == "mine"


async def test_text_without_markup_stays_as_it_is(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Text without any markup needs no Jinja2."""
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert await ask('Answer {"a": {"b": 1}} %}\n') == 'Answer {"a": {"b": 1}} %}\n'


async def test_a_template_without_jinja2_names_the_extra(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where Jinja2 is not installed, the error says how to install it."""
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingExtra, match=r'jinja2: pip install "handrail\[agents\]"'):
        await ask("{{ task }}")


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("Do\n{{ tusk }}", "line 2: 'tusk' is undefined. Did you mean 'task'[?] It can use: ctx, "),
        ("{{ zebra }}", r"line 1: 'zebra' is undefined\. It can use: ctx, plan, task\."),
        ("{% if zebra %}x{% endif %}", "line 1: 'zebra' is undefined"),
        ("{{ plan.headline }}", "line 1: 'dict object' has no attribute 'headline'"),
        ("{{ ctx.inputs.nothing }}", "line 1: .* has no attribute 'nothing'"),
        ("\n\n{% for %}", r"line 3: Expected.*\{% raw %\}"),
        ("{{ task", "line 1: unexpected end of template"),
        ("{{ task | shout }}", "line 1: No filter named 'shout'"),
        ("a\n{{ 1 / 0 }}", "line 2: ZeroDivisionError: division by zero"),
        ("{{ task + 1 }}", "line 1: TypeError: "),
        ("{% include 'a.md' %}", "line 1: 'a.md' cannot be included: .*pathlib.Path"),
    ],
)  # fmt: skip
async def test_a_mistake_in_a_template_is_told_with_its_line(
    ask: Ask, template: str, said: str
) -> None:
    """The error names the agent, the line, what is wrong, and the names there are."""
    with pytest.raises(PromptError, match=f"agent 'writer': prompt, {said}"):
        await ask(template, {"task": "x", "plan": {"title": "T"}})


async def test_an_optional_name_can_be_tested_for(ask: Ask) -> None:
    """Strictness leaves room for `is defined` and `default`."""
    template = "{% if hint is defined %}{{ hint }}{% endif %}{{ tone | default('calm') }}"
    assert await ask(template) == "calm"


async def test_a_prompt_file_is_read_at_each_run(ask: Ask, tmp_path: Path) -> None:
    """A path is the template in that file as it is now, in UTF-8."""
    path = tmp_path / "plan.md"
    path.write_text("Plan {{ task }} \N{EN DASH} now", "utf-8")
    assert await ask(path, {"task": "it"}) == "Plan it \N{EN DASH} now"
    path.write_text("Changed", "utf-8")
    assert await ask(path) == "Changed"


async def test_a_prompt_file_includes_from_its_folder(ask: Ask, tmp_path: Path) -> None:
    """Includes are found beside the prompt file and below, and see the same names."""
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "rules.md").write_text("Rule: {{ rule }}", "utf-8")
    (tmp_path / "plan.md").write_text("{% include 'parts/rules.md' %}!", "utf-8")
    assert await ask(tmp_path / "plan.md", {"rule": "be kind"}) == "Rule: be kind!"


async def test_a_mistake_in_an_included_file_is_told_with_that_file(
    ask: Ask, tmp_path: Path
) -> None:
    """The place of an error is the innermost template's."""
    (tmp_path / "rules.md").write_text("Rules\n{{ rule }}", "utf-8")
    (tmp_path / "plan.md").write_text("{% include 'rules.md' %}", "utf-8")
    with pytest.raises(PromptError, match=r"prompt \S*rules\.md, line 2: 'rule' is undefined"):
        await ask(tmp_path / "plan.md")


async def test_a_missing_include_is_told_with_its_folder(ask: Ask, tmp_path: Path) -> None:
    """The error names the file that includes, the one that is missing, and where it was sought."""
    (tmp_path / "plan.md").write_text("\n{% include 'rules.md' %}", "utf-8")
    with pytest.raises(
        PromptError, match=rf"plan\.md, line 2: there is no 'rules\.md' to include in '{tmp_path}'"
    ):
        await ask(tmp_path / "plan.md")


async def test_a_missing_prompt_file_is_named(ask: Ask) -> None:
    """The error has the path, and the working directory that a relative one was sought in."""
    with pytest.raises(
        PromptError,
        match=rf"'prompts/no\.md' does not exist in {Path.cwd()}, the working directory",
    ):
        await ask(Path("prompts/no.md"))


async def test_a_prompt_file_that_is_no_text_is_refused(ask: Ask, tmp_path: Path) -> None:
    """Bytes that are no UTF-8, and a folder, are told as files that cannot be read."""
    (tmp_path / "latin").write_bytes(b"\xe9")
    for path in (tmp_path / "latin", tmp_path):
        with pytest.raises(PromptError, match=rf"'{path}' cannot be read: "):
            await ask(path)


async def test_a_function_makes_the_prompt(ask: Ask) -> None:
    """A sync or async function of the context returns the prompt, which is no template."""

    async def later(context: Mapping[str, Any]) -> str:
        return f"{{{{ {context['a']} }}}}"

    assert await ask(lambda context: f"a is {context['a']}", {"a": 1}) == "a is 1"
    assert await ask(later, {"a": 1}) == "{{ 1 }}"


async def test_a_function_that_returns_no_text_is_named(ask: Ask) -> None:
    """The error names the function and what it returned."""
    with pytest.raises(PromptError, match=r"test_prompt:no_text must return text, got None"):
        await ask(no_text)


async def test_what_a_prompt_function_raises_is_raised(ask: Ask) -> None:
    """A function's own exception reaches the step as it is."""
    with pytest.raises(KeyError, match="missing"):
        await ask(lambda context: context["missing"])


def no_text(context: Mapping[str, Any]) -> Any:
    """A prompt function that forgets to return."""
    return None


def test_identity_has_the_text_of_a_prompt_file(tmp_path: Path) -> None:
    """A changed file is another prompt; a file that is not there is known by its name."""
    path = tmp_path / "plan.md"
    assert Agent("a", path).identity["prompt"] == str(path)
    path.write_text("Plan.", "utf-8")
    assert Agent("a", path).identity == Agent("a", "Plan.").identity
