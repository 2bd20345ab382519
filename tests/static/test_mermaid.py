"""A workflow's flowchart is valid Mermaid and shows what the source says."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handrail.static.mermaid import Flowchart, label, to_mermaid
from handrail.static.source import Source
from tests.static.programs import programs

# What Mermaid 11 was seen to parse and draw; our charts use nothing else.
NODE = re.compile(r' +(n\d+)(\[|\(|\(\[|\{|\{\{|\[/|\[\\|\[\[|>)"([^"]*)"[\]\)\}/\\]+')
BOX = re.compile(r' +subgraph (g\d+)\["([^"]*)"\]')
EDGE = re.compile(r'    (n\d+) (-->|-\.->)(?:\|"([^"]*)"\|)? (n\d+)')


def chart(body: str, *, before: str = "") -> str:
    """The chart of a workflow with this body."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    text = f"from handrail import step\n{before}\ndef flow(x):\n{lines}"
    return to_mermaid(Source(text, "flow.py", name="flow"))


def shown(text: str) -> str:
    """What Mermaid shows for a label, as it decodes it."""
    plain = text.replace("<br/>", " / ").replace("#8288;", "")
    return re.sub(r"#(\d+);", lambda found: chr(int(found.group(1))), plain)


def edges(text: str) -> set[tuple[str, str, str]]:
    """The arrows as (from, label, to): nodes by the first line of their text, dashed with a ~."""
    names: dict[str, str] = {}
    found: set[tuple[str, str, str]] = set()
    for line in text.splitlines()[1:]:
        if node := NODE.fullmatch(line):
            names[node.group(1)] = shown(node.group(3)).partition(" / ")[0]
    for line in text.splitlines()[1:]:
        if edge := EDGE.fullmatch(line):
            dashes = "~" if edge.group(2) == "-.->" else ""
            said = dashes + shown(edge.group(3) or "")
            found.add((names[edge.group(1)], said, names[edge.group(4)]))
    return found


def test_steps_follow_one_another() -> None:
    """A straight workflow is a line from its name to the end."""
    body = 'yield from step("a").call(f)\nyield from step("b").call(f)\nreturn 1'
    assert edges(chart(body)) == {("flow", "", "a"), ("a", "", "b"), ("b", "", "end")}


@pytest.mark.parametrize(
    ("verb", "drawn"),
    [
        (".call(f)", 'n2["a<br/>call: f"]'),
        (".agent(coder, {})", 'n2("a<br/>agent: coder")'),
        ('.command("make")', 'n2[/"a<br/>command: make"/]'),
        ('.ask("Sure?")', 'n2{{"a<br/>ask: Sure?"}}'),
        (".validate()", 'n2[\\"a<br/>validate: the configured stages"/]'),
        (".run_workflow(child)", 'n2[["a<br/>run_workflow: child"]]'),
        (".sleep(5)", 'n2>"a<br/>sleep: 5"]'),
        (".call(f).retry(2).once()", 'n2["a<br/>call: f<br/>retry 2, once"]'),
    ],
)
def test_each_kind_of_step_has_its_shape(verb: str, drawn: str) -> None:
    """Agents, commands, gates, checks, sub-workflows and waits are told apart at a glance."""
    assert f"    {drawn}\n" in chart(f'yield from step("a"){verb}')


def test_a_name_from_an_f_string_keeps_its_braces() -> None:
    """The changing part of a name is shown as it is written."""
    assert '"fix-{i}<br/>' in chart('yield from step(f"fix-{i}").call(f)')


def test_branches_carry_their_conditions() -> None:
    """Each way out of an ``if`` has its condition's source; an early return goes to the end."""
    body = 'if x > 1:\n    yield step("a").call(f)\nelif x:\n    return 1\nyield step("b").call(f)'
    assert edges(chart(body)) == {
        ("flow", "", "if"),
        ("if", "x > 1", "a"),
        ("if", "x: return", "end"),
        ("if", "else", "b"),
        ("a", "", "b"),
        ("b", "", "end"),
    }


def test_a_long_condition_is_shortened() -> None:
    """A label has at most 48 characters of source."""
    (condition,) = {
        said
        for _, said, end in edges(
            chart(f"if {'x + ' * 50}1:\n    return 1\nyield step('a').call(f)")
        )
        if end == "end" and said
    }
    assert condition.endswith("…: return")
    assert len(condition) <= 48 + len(": return")


def test_a_loop_goes_back() -> None:
    """The end of a loop's body goes back to its head, ``break`` leaves, ``continue`` goes back."""
    body = (
        "for i in x:\n"
        "    if i:\n        continue\n"
        '    yield from step(f"a{i}").call(f)\n'
        "    if not i:\n        break\n"
        'else:\n    yield from step("e").call(f)'
    )
    assert edges(chart(body)) == {
        ("flow", "", "for i in x"),
        ("for i in x", "each", "if"),
        ("if", "i: again", "for i in x"),
        ("if", "else", "a{i}"),
        ("a{i}", "", "if"),
        ("if", "not i: break", "end"),
        ("if", "else: again", "for i in x"),
        ("for i in x", "done", "e"),
        ("e", "", "end"),
    }


def test_a_while_asks_in_each_turn() -> None:
    """Steps in the test of a ``while`` are inside its loop."""
    body = 'while (yield from step("more?").ask("?")):\n    yield from step(f"a{x}").call(f)'
    assert edges(chart(body)) == {
        ("flow", "", "while"),
        ("while", "", "more?"),
        ("more?", "", "while more?"),
        ("while more?", "true", "a{x}"),
        ("a{x}", "again", "while"),
        ("while more?", "done", "end"),
    }


def test_an_endless_loop_is_left_by_break_alone() -> None:
    """``while True`` has no way out of its head."""
    body = 'while True:\n    yield from step(f"a{x}").call(f)\n    if x:\n        break'
    assert ("while True", "done", "end") not in edges(chart(body))
    assert ("if", "x: break", "end") in edges(chart(body))


def test_errors_go_to_their_handlers() -> None:
    """A dashed arrow with the exception leads from the ``try`` to each handler."""
    body = (
        'try:\n    yield from step("a").call(f)\n'
        'except StepFailed:\n    yield from step("b").call(f)\n'
        "except (KeyError, ValueError):\n    raise\n"
        'finally:\n    yield from step("c").call(f)'
    )
    assert edges(chart(body)) == {
        ("flow", "", "try"),
        ("try", "", "a"),
        ("try", "~StepFailed", "b"),
        ("a", "", "c"),
        ("b", "", "c"),
        ("try", "~KeyError, ValueError: raise", "c"),
        ("try", "~error", "c"),
        ("c", "~error", "failed"),
        ("c", "", "end"),
    }


def test_a_raise_goes_to_the_handler_that_surely_takes_it() -> None:
    """A raised exception that a handler around it names goes there, another one ends the run."""
    body = (
        "try:\n"
        "    if x:\n        raise ValueError(x)\n"
        "    raise WorkflowError('no')\n"
        'except ValueError:\n    yield from step("a").call(f)'
    )
    found = edges(chart(body))
    assert ("if", "~x: raise ValueError(x)", "a") in found
    assert ("if", "~else: raise WorkflowError('no')", "failed") in found


def test_a_return_goes_through_finally() -> None:
    """An early return reaches the end by way of the ``finally``."""
    body = (
        'try:\n    if x:\n        return 1\n    yield step("a").call(f)\n'
        'finally:\n    yield step("c").call(f)\nyield step("d").call(f)'
    )
    found = edges(chart(body))
    assert {("if", "x: return", "c"), ("c", "return", "end"), ("c", "", "d")} <= found


def test_a_check_loops_through_its_fix() -> None:
    """``validate`` goes to its fix until it passes."""
    body = 'yield from step("v").validate(["t"], on_failure=step("fix").call(f))'
    assert edges(chart(body)) == {
        ("flow", "", "v"),
        ("v", "not passed", "fix"),
        ("fix", "", "v"),
        ("v", "passed", "end"),
    }


def test_a_fallback_is_on_the_way_of_errors() -> None:
    """``on_error`` leads to the step that stands in."""
    body = 'yield from step("a").call(f).on_error(lambda ctx, r: step("b").call(f))'
    assert ("a", "~on error", "b") in edges(chart(body))


def test_a_group_forks_and_joins_in_its_box() -> None:
    """Members stand side by side in a box with the group's name."""
    body = 'yield from step("g").parallel(step("a").call(f), *[step(f"b{i}").call(f) for i in x])'
    text = chart(body)
    assert edges(text) == {
        ("flow", "", "parallel"),
        ("parallel", "", "a"),
        ("parallel", "", "b{i}"),
        ("a", "", "all done"),
        ("b{i}", "", "all done"),
        ("all done", "", "end"),
    }
    assert [box.group(2) for box in map(BOX.fullmatch, text.splitlines()) if box] == [
        "g",
        "for i in x",
    ]


def test_a_body_ends_inside_its_group() -> None:
    """A ``return`` or ``raise`` in a member's body ends the member, not the workflow."""
    before = "def body(i):\n    if i:\n        return 1\n    raise ValueError(i)\n    yield\n"
    body = 'yield from step("g").for_each(x, body)'
    assert edges(chart(body, before=before)) == {
        ("flow", "", "for_each: x"),
        ("for_each: x", "", "if"),
        ("if", "i: return", "all done"),
        ("if", "~else: raise ValueError(i)", "all done"),
        ("all done", "", "end"),
    }


def test_a_branch_step_has_an_arm_for_each_predicate() -> None:
    """``.branch`` leads to one of its steps, by the predicate's source."""
    body = 'yield step("b").branch((big, step("a").call(f)), (lambda c: c > 1, step("c").call(f)))'
    assert {("b", "big", "a"), ("b", "c > 1", "c")} <= edges(chart(body))


def test_a_helper_is_a_box_that_returns_to_its_caller() -> None:
    """A ``return`` in a helper goes on behind the helper."""
    before = 'def helper(i):\n    if i:\n        return 1\n    yield from step("h").call(f)\n'
    found = edges(chart('yield from helper(1)\nyield from step("b").call(f)', before=before))
    assert {("if", "i: return", "b"), ("h", "", "b")} <= found


def test_a_helper_from_elsewhere_is_one_node() -> None:
    """A helper without a source is drawn as the call it is."""
    body = "with x:\n    yield from helpers.helper(1)"
    assert edges(chart(body)) == {
        ("flow", "", "helpers.helper(1)"),
        ("helpers.helper(1)", "", "end"),
    }


def test_a_helper_that_begins_with_an_exit_has_a_place_to_start() -> None:
    """A box is never empty: what yields nothing has a node too."""
    before = "def helper(i):\n    with i:\n        return 1\n    yield\n"
    assert edges(chart("yield from helper(1)", before=before)) == {
        ("flow", "", "start"),
        ("start", "return", "end"),
    }


# Validity


def decoded(text: str) -> str:
    """What a label shows; nothing in it may be syntax to Mermaid."""
    assert not re.search(r'["<>`&]|%%|\n', text.replace("<br/>", ""))
    assert not re.search(r"#(?!\d+;)", text)
    assert not re.search(r"(style|classDef).*:", text)
    assert not re.search(r"\\n|\$\$|direction\s|^([-*+]|\d+[.)])\s", text)
    return shown(text)


NASTY = [
    *(
        "end",
        "subgraph",
        "direction LR",
        "style: #f00;",
        "classDef a:#f;",
        "%%{init: {}}%%",
        "%% c",
    ),
    *('"q"', "`b`", "1. a", "- a", "12) x", "# h", "a;b", "a|b", "a-->b", "[x]", "((x))", "{{x}}"),
    *("<script>", "a<br/>b", "&amp;", "#35;", "@{ shape: rect }", "$$x^2$$", "a\\nb", "fa:fa-car"),
    *("日本語", "🚀 go", ":::cls", "o", "x", "\\", " a ", "\ud800", "\u202e", "\x1b[2J", "a\nb"),
]
_texts = st.one_of(
    st.sampled_from(NASTY),
    st.text(
        st.sampled_from("\"'`#;:%&<>{}[]()|\\/-=.*_~@$ \nabstyleclassDefdirection1"), max_size=20
    ),
    st.text(max_size=12),
)


@given(_texts)
def test_any_text_can_be_a_label(text: str) -> None:
    """A label is free of syntax and shows the text, with unprintable characters spelled out."""
    expected = "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )
    assert decoded(label(text)[1:-1]) == (expected or " ")


@settings(max_examples=settings().max_examples * 6 // 10)
@given(_texts.filter(str.strip))
def test_any_name_gives_a_chart_of_known_lines(name: str) -> None:
    """A step, group and condition of any text stay inside their labels."""
    body = (
        f"yield from step({name!r}).parallel(step({name!r}).call(f))\n"
        f"if x == {name!r}:\n    return 1\nyield from step({name!r}).ask({name!r})"
    )
    assert _problems(chart(body)) == []


@settings(max_examples=settings().max_examples * 6 // 10)
@given(programs)
def test_any_workflow_gives_a_sound_chart(program: str) -> None:
    """Lines are of known forms, boxes close, arrows have both ends, and all can be reached."""
    assert _problems(to_mermaid(Source(program, "flow.py", name="flow"))) == []


def _problems(text: str) -> list[str]:
    head, *lines = text.splitlines()
    problems = [] if head == "flowchart TD" else [head]
    nodes: set[str] = set()
    arrows: list[tuple[str, str]] = []
    depth = 0
    for line in lines:
        if node := NODE.fullmatch(line):
            nodes.add(node.group(1))
        elif edge := EDGE.fullmatch(line):
            arrows.append((edge.group(1), edge.group(4)))
        elif BOX.fullmatch(line):
            depth += 1
        elif line.strip() == "end":
            depth -= 1
        else:
            problems.append(line)
    reached = {"n1"}
    while more := {end for start, end in arrows if start in reached} - reached:
        reached |= more
    problems += [f"dangling {a} {b}" for a, b in arrows if not {a, b} <= nodes]
    problems += [f"unreached {node}" for node in sorted(nodes - reached)]
    return problems + (["unclosed box"] if depth else [])


def test_the_same_arrow_is_drawn_once() -> None:
    """Two ways between the same nodes with the same label are one arrow."""
    drawing = Flowchart()
    a, b = drawing.node("box", "a"), drawing.node("box", "b")
    drawing.edge(a, b)
    drawing.edge(a, b)
    assert drawing.text().count("-->") == 1
