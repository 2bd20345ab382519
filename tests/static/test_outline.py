"""A workflow's outline is what its source says, found without running it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handrail.errors import HandrailError
from handrail.static.may_run import may_run
from handrail.static.outline import (
    BranchNode,
    ExitNode,
    HelperNode,
    LoopNode,
    StepNode,
    TryNode,
    outline,
)
from handrail.static.source import Source, SourceUnavailable, source_of
from handrail.static.text import to_text
from tests.static.programs import distinct, programs, run

HEAD = "from handrail import Steps, step, workflow\n"
CONSTANTS = 'CONSTANT = "constant"\nTWICE = "once"\nTWICE = "again"\n'


def source(body: str, *, before: str = "", head: str = HEAD) -> Source:
    """A module with a workflow of this body."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return Source(f"{head}{before}\ndef flow(x):\n{lines}", "flow.py", name="flow")


def steps(body: str, *, before: str = "", head: str = HEAD) -> list[str]:
    """The paths of the steps that it may run."""
    return [one.path for one in may_run(source(body, before=before, head=head))]


def first(body: str, *, before: str = "") -> Any:
    """The first node of its outline."""
    return outline(source(body, before=before)).nodes[0]


# How steps are written


@pytest.mark.parametrize(
    "body",
    [
        'yield from step("a").call(f)',
        'yield step("a").call(f)',
        'x = yield from step("a").call(f)',
        'return (yield from step("a").call(f))',
        'x.y[0] = (yield from step("a").call(f)).output',
        'f(1, k=(yield from step("a").ask("?")) == "yes")',
        "f\"{(yield from step('a').call(f))}\"",
        'if (yield from step("a").ask("?")) == "yes":\n    pass',
        'yield from (\n    step("a")\n    .call(f)\n    .retry(2)\n)',
        's = step("a").call(f)\nyield from s',
        's = step("a").call(f)\nyield from s.retry(2)',
        's = step("a").call(f)\ns = s.retry(2)\nyield from s',
        'yield from (s := step("a").call(f))',
        'yield from step(name="a").call(f)',
        'yield from (step("a").call(f) for _ in "x")',
        'NAME = "a"\nyield from step(NAME).call(f)',
    ],
)
def test_a_step_is_found_however_it_is_yielded(body: str) -> None:
    """The step ``a`` is found in each spelling, once."""
    assert steps(body) == ["a"]


@pytest.mark.parametrize(
    ("head", "spelled"),
    [
        ("from handrail import step as s\n", "s"),
        ("import handrail\n", "handrail.step"),
        ("import handrail as h\n", "h.step"),
        ("from handrail import *\n", "step"),
        ("from .flows import step\n", "step"),
        ("import handrail\nstep = handrail.step\n", "step"),
        ("from handrail import step\ngo = step\n", "go"),
        ("", "step"),
    ],
)
def test_step_is_known_by_what_was_imported(head: str, spelled: str) -> None:
    """Handrail's ``step`` is followed through imports and aliases; a fragment may have none."""
    assert steps(f'yield from {spelled}("a").call(f)', head=head) == ["a"]


@pytest.mark.parametrize(
    "head", ["from other import step\n", "def step(name): ...\n", "step = make()\n"]
)
def test_another_step_is_not_taken_for_ours(head: str) -> None:
    """A ``step`` that is somebody else's is no step of handrail's."""
    assert [node.verb for node in outline(source('yield step("a").call(f)', head=head)).nodes] == [
        ""
    ]


@pytest.mark.parametrize(
    ("written", "name", "literal"),
    [
        ('"plan"', "plan", True),
        ('f"plan"', "plan", True),
        ("f\"{'plan'}\"", "plan", True),
        ("TWICE", "{TWICE}", False),
        ('f"fix-{i}"', "fix-{i}", False),
        ('f"fix-{i:03}-{item.name!r}"', "fix-{i}-{item.name}", False),
        ('"fix-" + str(i)', "fix-{i}", False),
        ('"fix-%d" % i', "{'fix-%d' % i}", False),
        ("name", "{name}", False),
        ("CONSTANT", "constant", True),
    ],
)
def test_a_name_is_shown_as_far_as_the_source_says_it(
    written: str, name: str, literal: bool
) -> None:
    """A literal is itself; what only a run knows stands in braces."""
    node = first(f"yield from step({written}).call(f)", before=CONSTANTS)
    assert (node.name.text, node.name.literal) == (name, literal)


def test_a_pattern_matches_the_names_it_can_become() -> None:
    """``fix-{i}`` matches ``fix-1`` and ``fix-``, and nothing that begins otherwise."""
    name = first('yield from step(f"fix-{i}").call(f)').name
    assert [name.matches(text) for text in ("fix-1", "fix-", "fax-1")] == [True, True, False]


def test_a_variable_stands_for_what_was_last_assigned() -> None:
    """A variable that is used again for another step stands for that one from there on."""
    body = 's = step("a").call(f)\nyield from s\ns = step("b").call(f)\nyield from s'
    assert [node.name.text for node in outline(source(body)).nodes if isinstance(node, StepNode)]
    assert [node.name.text for node in outline(source(body)).nodes] == ["a", "b"]


def test_a_variable_that_two_arms_assign_may_be_either() -> None:
    """Both steps are listed where the source does not say which one it will be."""
    body = 'if x:\n    s = step("a").call(f)\nelse:\n    s = step("b").call(f)\nyield from s'
    assert steps(body) == ["a", "b"]


@pytest.mark.parametrize("body", ["yield from steps[0]", "yield x", "yield from x", "yield make()"])
def test_a_step_from_elsewhere_is_named_for_its_expression(body: str) -> None:
    """A step that the source does not show has no verb, and its name is in braces."""
    node = first(body)
    assert isinstance(node, StepNode)
    assert (node.verb, node.name.text[0], node.name.literal) == ("", "{", False)


def test_the_order_is_that_of_evaluation() -> None:
    """A step in an argument runs before the step it is an argument of."""
    body = 'yield from step("b").call(f, (yield from step("a").call(g)))'
    assert steps(body) == ["a", "b"]


@pytest.mark.parametrize(
    ("written", "detail", "modifiers"),
    [
        (".call(build, 1)", "build", ()),
        (".call(build, action=1)", "build", ()),
        (".call(lambda: 1)", "lambda", ()),
        (".python(partial(build, 1))", "build", ()),
        ('.command(["git", "commit", "-m", "a b"])', "git commit -m 'a b'", ()),
        ('.command(f"make {x}")', "make {x}", ()),
        (".agent(coder, {})", "coder", ()),
        ('.agent(Agent("writer", "..."), {})', "writer", ()),
        (".agent(planner, {})", "the planner", ()),
        ('.validate(["lint", Stage("unit", "pytest")])', "lint, unit", ()),
        (".validate()", "the configured stages", ()),
        ('.ask("Merge?", choices=["yes", "no"])', "Merge? (yes / no)", ()),
        ('.wait_for("paid", str)', "paid", ()),
        (".wait_for(PAID, str)", "PAID", ()),
        (".sleep(5)", "5", ()),
        (".generate(writer, {})", "writer", ()),
        (".validate(stages)", "stages", ()),
        (".command(argv)", "argv", ()),
        (".run_workflow(child, 1)", "child", ()),
        (".run_workflow(child, workflow=1)", "child", ()),
        ('.parallel(on_error="continue", max_concurrency=4)', "4 at a time, continue", ()),
        (".for_each(files, body)", "files", ()),
        (".call(f).retry(3, backoff=1).once()", "f", ("retry 3", "once")),
        (".call(f).when(ready).with_rollback(undo)", "f", ("when ready", "rollback undo")),
        (".call(f).timeout(5).skip_on_error()", "f", ("timeout 5", "skip on error")),
    ],
)
def test_a_step_says_what_it_acts_on(written: str, detail: str, modifiers: tuple[str, ...]) -> None:
    """The verb's object and the modifiers are told in a few words."""
    before = 'planner = Agent("the planner", "...")\n'
    node = first(f'yield from step("a"){written}', before=before)
    assert (node.detail, node.modifiers) == (detail, modifiers)


# Control flow


def test_branches_keep_their_conditions() -> None:
    """An ``if`` has an arm for each condition, and an ``else`` even where none is written."""
    node = first('if x > 1:\n    yield from step("a").call(f)\nelif x:\n    return 1')
    assert isinstance(node, BranchNode)
    assert [arm.condition for arm in node.arms] == ["x > 1", "x", "else"]


def test_a_condition_names_the_step_it_asks() -> None:
    """A step that is yielded in a condition stands there by its name."""
    asked = 'if (yield from step("merge?").ask("Merge?")) == "yes":\n    return 1'
    step_, branch = outline(source(asked)).nodes
    assert isinstance(step_, StepNode)
    assert isinstance(branch, BranchNode)
    assert branch.arms[0].condition == "merge? == 'yes'"


@pytest.mark.parametrize(
    ("cases", "conditions"),
    [
        ("case 1:\n        return 1", ["1", "else"]),
        (
            "case [a, *_] if a:\n        return 1\n    case _:\n        pass",
            ["[a, *_] if a", "else"],
        ),
        ("case 1 | _:\n        return 1", ["else"]),
    ],
)
def test_a_match_has_an_arm_for_each_case(cases: str, conditions: list[str]) -> None:
    """Patterns are conditions; where one takes everything, it is the ``else``."""
    node = first(f"match x:\n    {cases}\nyield")
    assert isinstance(node, BranchNode)
    assert ([arm.condition for arm in node.arms], node.subject) == (conditions, "x")


@pytest.mark.parametrize(
    "body",
    [
        'y = (yield from step("a").call(f)) if x else (yield from step("b").call(f))',
        'y = yield from (step("a").call(f) if x else step("b").call(f))',
    ],
)
def test_a_conditional_expression_is_a_branch(body: str) -> None:
    """Only one side of ``a if x else b`` runs."""
    assert [[one.name.text for one in arm.nodes] for arm in first(body).arms] == [["a"], ["b"]]


def test_what_follows_and_or_may_be_left_out() -> None:
    """The right side of ``and`` runs only if the left one holds."""
    node = first('x and (yield from step("a").call(f))')
    assert [(arm.condition, len(arm.nodes)) for arm in node.arms] == [("x", 1), ("else", 0)]


def test_a_while_asks_again_before_each_turn() -> None:
    """Steps in the test of a ``while`` belong to the loop."""
    node = first('while (yield from step("more?").ask("More?")):\n    pass')
    assert isinstance(node, LoopNode)
    assert (node.header, [one.name.text for one in node.test]) == ("while more?", ["more?"])


def test_the_else_of_a_loop_is_kept_without_its_body() -> None:
    """A loop that only stops early still decides whether its ``else`` runs."""
    body = 'for i in x:\n    break\nelse:\n    return 1\nyield from step("a").call(f)'
    assert steps(body) == ["a"]
    assert isinstance(first(body), LoopNode)


def test_handlers_are_known_by_their_exceptions() -> None:
    """Each ``except`` keeps the names that it catches, and a bare one has none."""
    body = (
        'try:\n    yield from step("a").call(f)\nexcept (ValueError, h.StepFailed):\n    raise\n'
        'except:\n    return 1\nelse:\n    return 2\nfinally:\n    yield from step("b").call(f)'
    )
    node = first(body)
    assert isinstance(node, TryNode)
    assert [one.exceptions for one in node.handlers] == [("ValueError", "h.StepFailed"), ()]
    assert [len(block) for block in (node.nodes, node.orelse, node.final)] == [1, 1, 1]


@pytest.mark.parametrize(
    "body",
    [
        "total = sum(range(x))\nyield",
        "for i in x:\n    if i:\n        break\nyield",
        "if x:\n    x = 1\nyield",
        "with x:\n    pass\nyield",
        "try:\n    pass\nexcept ValueError:\n    pass\nyield",
        "match x:\n    case 1:\n        pass\nyield",
        'f = lambda: (yield from step("a").call(f))\nyield',
        'def inner():\n    yield from step("a").call(f)\nyield',
        'class Inner:\n    def method(self):\n        yield from step("a").call(f)\nyield',
    ],
)
def test_what_yields_nothing_is_left_out(body: str) -> None:
    """Plain code, and functions that are only defined, leave nothing in the outline."""
    assert outline(source(body)).nodes == ()


def test_code_after_a_return_is_left_out() -> None:
    """Nothing behind a ``return`` in its block runs."""
    nodes = outline(source('return 1\nyield from step("a").call(f)')).nodes
    assert [type(node) for node in nodes] == [ExitNode]


# What runs inside


def test_a_helper_is_followed() -> None:
    """The steps of ``yield from helper(...)`` are the workflow's own."""
    helper = 'def helper(i):\n    yield from step(f"h-{i}").call(f)\n'
    assert steps("yield from helper(1)", before=helper) == ["h-{i}"]


def test_a_helper_from_elsewhere_is_named() -> None:
    """A helper whose source is in another file is a node without an inside."""
    node = first("yield from helpers.helper(x)")
    assert (node.call, node.nodes) == ("helpers.helper(x)", None)


def test_recursion_is_followed_once() -> None:
    """A helper that calls itself is entered once and then named."""
    helper = 'def helper(i):\n    yield from step(f"h-{i}").call(f)\n    yield from helper(i - 1)\n'
    node = first("yield from helper(1)", before=helper)
    assert isinstance(node, HelperNode)
    assert node.nodes is not None
    assert isinstance(node.nodes[1], HelperNode)
    assert node.nodes[1].nodes is None


def test_a_function_that_returns_steps_is_followed() -> None:
    """``yield from make(x)`` is the step that ``make`` returns, on each of its ways."""
    make = (
        'def make(i):\n    if i:\n        return step("a").call(f)\n    return step("b").call(f)\n'
    )
    assert steps("yield from make(1)", before=make) == ["a", "b"]


@pytest.mark.parametrize(
    ("group", "paths"),
    [
        ('.parallel(step("a").call(f), step("b").call(f))', ["g", "g/a", "g/b"]),
        ('.race(step("a").call(f), make(1))', ["g", "g/a", "g/made"]),
        ('.parallel(*[step(f"x{i}").call(f) for i in x])', ["g", "g/x{i}"]),
        (".parallel(*(make(i) for i in x))", ["g", "g/made"]),
        (".parallel(*x)", ["g", "g/{x}"]),
        (".parallel(*x.steps())", ["g", "g/{x.steps()}"]),
        (".branch(*x)", ["g", "g/{*x}"]),
        ('.parallel(step("h").race(step("a").call(f)))', ["g", "g/h", "g/h/a"]),
        ('.branch((yes, step("a").call(f)), (lambda ctx: 1, make(2)))', ["g", "g/a", "g/made"]),
        (".for_each(x, body)", ["g", "g/{key}/b"]),
        (".for_each(x, partial(body, 1))", ["g", "g/{key}/b"]),
        (".for_each(x, make)", ["g", "g/{key}/made"]),
        (".work(x, body)", ["g", "g/{key}/b"]),
        (".worktree(body, 1)", ["g", "g/b"]),
        ('.holding("x", body, 1)', ["g", "g/b"]),
        ('.for_each(x, lambda i: step("l").call(f, i))', ["g", "g/{key}/l"]),
        ('.validate(["t"], on_failure=step("fix").call(f))', ["g", "g/{round}/fix"]),
        ('.call(f).on_error(lambda ctx, r: step("other").call(f))', ["g", "g/other"]),
        (".call(f).on_error(make)", ["g", "g/made"]),
    ],
)
def test_steps_inside_steps_have_their_paths(group: str, paths: list[str]) -> None:
    """Members, bodies, fixes and fallbacks stand below the step they run in."""
    before = (
        'def make(i):\n    return step("made").call(f)\n'
        'def body(i):\n    yield from step("b").call(f)\n'
    )
    assert steps(f'yield from step("g"){group}', before=before) == paths


def test_a_variable_may_hold_what_a_function_returns() -> None:
    """A step that a function made is followed through the variable it is kept in."""
    make = 'def make(i):\n    log(i)\n    return step("made").call(f)\n'
    assert steps("s = make(1)\nyield from s", before=make) == ["made"]


def test_two_variables_that_hold_one_another_are_named() -> None:
    """Assignments that go round in a circle end at what is known."""
    assert steps("for i in x:\n    yield from s\n    s = t\n    t = s") == ["{s}"]


def test_a_list_that_a_while_fills_is_a_group() -> None:
    """Steps that are appended in a ``while`` are members."""
    body = (
        'many = []\nwhile x:\n    many.append(step(f"b{x}").call(f))\n'
        'yield from step("g").parallel(*many)'
    )
    assert steps(body) == ["g", "g/b{x}"]


def test_a_list_that_is_filled_first_is_a_group() -> None:
    """Steps that a variable collects are members, those that a loop appends included."""
    body = (
        'many = [step("a").call(f)]\nfor i in x:\n    many.append(step(f"b{i}").call(f))\n'
        'yield from step("g").parallel(*many)'
    )
    assert steps(body) == ["g", "g/a", "g/b{i}"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("g/0/b", True),
        ("g~2/0/b", True),
        ("g/any key/b", True),
        ("g/0/c", False),
        ("g/0", False),
        ("h/0/b", False),
    ],
)
def test_a_possible_step_knows_its_paths(path: str, expected: bool) -> None:
    """A path is matched part by part, in whichever attempt of its group."""
    body = 'yield from step("g").for_each(x, lambda i: step("b").call(f))'
    assert may_run(source(body))[1].matches(path) is expected


@settings(max_examples=settings().max_examples * 3 // 4)
@given(programs, st.lists(st.booleans(), max_size=60))
def test_whatever_runs_was_listed(program: str, draws: list[bool]) -> None:
    """Each path that a run comes by matches a step that ``may_run`` gave before."""
    program = distinct(program)
    listed = may_run(Source(program, "flow.py", name="flow"))
    unlisted = [
        path for path in run(program, draws) if not any(one.matches(path) for one in listed)
    ]
    assert unlisted == []


# The text tree


def test_the_text_tree_reads_like_the_source() -> None:
    """Each step and statement has a line, indented as it is nested."""
    body = (
        'yield from step("plan").agent(planner, {}).retry(2)\n'
        'yield from step("verify").validate(["t"], on_failure=step("fix").call(f))\n'
        "for i in range(3):\n"
        "    try:\n"
        '        yield from step(f"try-{i}").call(f)\n'
        "        break\n"
        "    except StepFailed:\n"
        "        raise\n"
        "else:\n"
        "    return None\n"
        'if x:\n    yield from step("g").parallel(*[step(f"m{k}").call(f) for k in x])\n'
        "return 1"
    )
    expected = """\
flow(x)
├─ plan · agent planner, retry 2
├─ verify · validate t
│  └─ while not passed
│     └─ fix · call f
├─ for i in range(3)
│  ├─ try
│  │  ├─ try-{i} · call f
│  │  └─ break
│  └─ except StepFailed
│     └─ raise
├─ else
│  └─ return None
├─ if x
│  └─ g · parallel
│     └─ for k in x
│        └─ m{k} · call f
└─ return 1
"""
    assert to_text(source(body)) == expected


def test_the_text_tree_shows_what_happens_on_errors_and_matches() -> None:
    """Fallbacks, handlers, ``finally``, ``with`` and the cases of a match have lines."""
    body = (
        'yield from step("a").call(f).on_error(lambda ctx, r: step("b").call(f))\n'
        "try:\n"
        "    with lock:\n"
        '        yield from step("c").call(f)\n'
        "except:\n    pass\n"
        'else:\n    yield from step("d").call(f)\n'
        'finally:\n    yield from step("e").call(f)\n'
        "match x:\n    case 1:\n        return 1\n"
        'yield from step("h").branch((big, step("i").call(f)))\n'
        "yield from helpers.last(x)"
    )
    expected = """\
flow(x)
├─ a · call f, on error lambda
│  └─ on error
│     └─ b · call f
├─ try
│  └─ with lock
│     └─ c · call f
├─ except
├─ else
│  └─ d · call f
├─ finally
│  └─ e · call f
├─ match x: 1
│  └─ return 1
├─ h · branch
│  └─ if big
│     └─ i · call f
└─ helpers.last(x)
"""
    assert to_text(source(body)) == expected


def test_the_text_tree_has_no_characters_that_move_a_terminal() -> None:
    """What cannot be printed is spelled out."""
    assert "\\x1b[2J" in to_text(source('yield from step("\\x1b[2J").call(f)'))


@settings(max_examples=settings().max_examples * 3 // 10)
@given(programs)
def test_the_text_tree_has_every_step(program: str) -> None:
    """Each possible step's name begins a line of the tree."""
    place = Source(program, "flow.py", name="flow")
    lines = [line.lstrip("│├└─ ") for line in to_text(place).splitlines()]
    names = {one.names[-1].text for one in may_run(place)}
    assert [name for name in names if not any(line.startswith(f"{name} ·") for line in lines)] == []


# Where source comes from


def kept(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that leaves ``__wrapped__``."""

    @functools.wraps(function)
    def around(*args: Any) -> Any:
        return function(*args)

    return around


@kept
def decorated(x: int) -> Any:
    """A workflow, as far as its text goes."""
    yield from step("decorated").call(x)  # type: ignore[name-defined] # noqa: F821


async def plain(x: int) -> None:
    """A function like any other."""


def test_source_of_finds_a_function_behind_its_decorators() -> None:
    """The file's whole text is given, and the line of the first decorator."""
    place = source_of(decorated)
    line = place.text.splitlines()[place.first_line - 1]
    assert (line, place.name, place.filename) == ("@kept", "decorated", __file__)
    assert [one.path for one in may_run(place)] == ["decorated"]


def test_source_of_looks_through_partials() -> None:
    """A partial has the source of its function."""
    assert source_of(functools.partial(decorated, 1)).name == "decorated"


def test_of_two_functions_with_one_name_the_line_decides() -> None:
    """A name that is defined twice in a function is told apart by its line."""

    def make(second: bool) -> Callable[..., Any]:
        if second:

            def inner() -> Any:
                yield step("second")  # type: ignore[name-defined] # noqa: F821

        else:

            def inner() -> Any:
                yield step("first")  # type: ignore[name-defined] # noqa: F821

        return inner

    assert [may_run(source_of(make(second)))[0].path for second in (False, True)] == [
        "first",
        "second",
    ]


def _executed() -> Callable[..., Any]:
    names: dict[str, Any] = {}
    exec(compile("def made():\n    yield", "<made by a test>", "exec"), names)
    made: Callable[..., Any] = names["made"]
    return made


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda: None, "it is a lambda"),
        (len, "not a Python function"),
        (ModuleType, "not a Python function"),
        (_executed(), "which has no text"),
    ],
)
def test_no_source_is_a_clear_error(function: Callable[..., Any], said: str) -> None:
    """What has no text is refused with the reason."""
    with pytest.raises(SourceUnavailable, match=said) as caught:
        source_of(function)
    assert isinstance(caught.value, HandrailError)


def test_a_function_that_moved_in_its_file_is_found_by_name() -> None:
    """A file that was edited since it was imported is searched for the name."""
    text = f'{HEAD}\n\n\ndef flow(x):\n    yield from step("a").call(x)\n'
    assert may_run(Source(text, "flow.py", first_line=2, name="flow"))[0].path == "a"


def test_a_function_that_is_gone_is_a_clear_error() -> None:
    """The error names what was wanted, and what is there."""
    with pytest.raises(SourceUnavailable, match=r"'gone'.*functions there: flow"):
        outline(Source("def flow(): yield", "flow.py", name="gone"))


def test_a_file_that_does_not_parse_is_a_clear_error() -> None:
    """The error has the file and line where Python gave up."""
    with pytest.raises(SourceUnavailable, match=r"flow\.py:2: "):
        outline(Source("x = 1\ndef flow(:\n", "flow.py", name="flow"))


@pytest.mark.parametrize(
    "text",
    [
        "def flow():\n\0\n",
        "(" * 3000,
        "x = " + "-" * 100_000 + "1",
        "def flow(x):\n    x = " + "x + " * 5000 + "1\n    yield",
    ],
)
def test_a_text_that_breaks_the_parser_is_a_clear_error(text: str) -> None:
    """Null bytes and bottomless nesting are reported like any other mistake."""
    with pytest.raises(SourceUnavailable):
        outline(Source(text, "flow.py", name="flow"))


def test_an_indented_fragment_is_read() -> None:
    """A function's text as ``inspect.getsource`` cuts it out of a class or function will do."""
    text = '    def flow(x):\n        yield from step("a").call(x)\n'
    assert [one.path for one in may_run(Source(text, "flow.py"))] == ["a"]


def test_methods_and_inner_functions_have_their_qualified_names(tmp_path: Path) -> None:
    """A function is found under the name that Python gives it."""
    text = f'{HEAD}class A:\n    def m(self):\n        def f():\n            yield step("a")\n'
    place = Source(text, str(tmp_path / "flow.py"), name="A.m.<locals>.f")
    assert [one.path for one in may_run(place)] == ["a"]
