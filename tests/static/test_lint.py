"""The lint finds what would go wrong in a run, and leaves sound workflows alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handrail.static.lint import CODES, Finding, check, check_module, workflows_in
from handrail.static.source import Source, SourceUnavailable
from tests.static.programs import programs, run

HEAD = """\
from handrail import RunCancelled, StepFailed, Steps, step, workflow
def act(): ...
async def fetch(url): ...
def numbers(n):
    yield from range(n)
def helper(i):
    yield from step("aid").call(act)
def make(i):
    return step(f"made-{i}").call(act)
@workflow
def child(x) -> Steps[int]:
    yield from step("c").call(act)
"""


def findings(body: str, *, before: str = "", signature: str = "(x) -> Steps[int]") -> list[Finding]:
    """What is found in a workflow with this body, in which ``YIELD_A`` is short for a step."""
    body = body.replace("YIELD_A", 'yield from step("a").call(act)')
    lines = "".join(
        f"    {line}\n" for line in (*body.splitlines(), 'yield from step("z").call(act)')
    )
    text = f"{before}{HEAD}@workflow\ndef flow{signature}:\n{lines}"
    return list(check(Source(text, "flow.py", name="flow")))


def codes(body: str, *, before: str = "", signature: str = "(x) -> Steps[int]") -> list[str]:
    """The codes of what is found, by line."""
    return [one.code for one in findings(body, before=before, signature=signature)]


@pytest.mark.parametrize(
    "body",
    [
        "a = YIELD_A",
        's = step("a").call(act)\nyield from s',
        's = step("a").call(act)\nyield from s.retry(2)',
        'base = step("a")\nyield from base.call(act)',
        'many = [step(f"a{i}").call(act) for i in x]\nyield from step("g").parallel(*many)',
        'all = []\nall.append(make(1))\nall.append(make(2))\nyield from step("g").race(*all)',
        'y = []\ny.append(step("a").call(act))\ny.append(step("b").call(act))\nuse(*y)',
        'yield from step("v").validate(on_failure=step("fix").call(act))',
        'yield from step("g").race(step("a").call(act), make(1))',
        'YIELD_A if x else step("b").call(act)',
        'yield from (s := step("a").call(act))',
        'x.kept = step("a").call(act)\nyield from x.kept',
        "for n in numbers(3):\n    yield from make(n)",
        "yield from helper(1)",
        "h = helper(1)\nif h:\n    yield from h",
        "h = helper(1)\nh.close()\nx = h == 1",
        "h = helper(1)\ny = h\nx = h == 1",
        'h = helper(1)\nyield from scope("s", h)',
        'yield from scope("s", helper(1))',
        'h = yield from helper(1)\nyield from step("b").call(act, h)',
        "h = helper(1)\nh = yield from h\nx(h + 1)",
        'h = helper(1)\nyield from step("g").parallel(*h)',
        'yield from step("w").run_workflow(child, 1)',
        'yield from step("t").call(time.time)',
        'yield from step("a").agent(x, lambda ctx: {"at": time.time()})',
        'yield from step("a").call(fetch, x)',
        'print("once more")',
        'y = os.path.join("a", "b")',
        "y = random.Random(7)",
        "x.open()\nx.exists()",
        "time = x\ntime.time()",
    ],
)
def test_sound_code_is_left_alone(body: str) -> None:
    """Nothing is found in a workflow that is written as the documentation says."""
    assert findings(body, before="import os, random, time\n") == []


# Steps


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ('step("a").call(act)', "nothing is done with it"),
        ('[step(f"a{i}").call(act) for i in x]', "nothing is done with it"),
        ('a = step("a").call(act)', "it is assigned to a, which is not used"),
        ('a: object = step("a").call(act)', "it is assigned to a, which is not used"),
        ('_ = [step("a").call(act)]', "it is assigned to _, which is not used"),
        ('if x:\n    return step("a").call(act)', "it is returned"),
        ('if step("a").ask("?"):\n    pass', "it is used as a condition"),
        ('while x and step("a").ask("?"):\n    pass', "it is used as a condition"),
        ('if step("a").ask("?") == "yes":\n    pass', "as if it were its own result"),
        ('y = step("a").call(act).output', "as if it were its own result"),
        ("y = f\"{step('a').call(act)}\"", "as if it were its own result"),
        ('for y in step("a").call(act):\n    pass', "it is iterated over"),
        ("helper(1)", "steps of helper() are never yielded: nothing is done with it"),
        ("h = helper(1)", "steps of helper() are never yielded: it is assigned to h"),
        ('yield from step("b").call(act, helper(1))', "it is an argument of .call()"),
        ('yield from step("b").agent(x, {"n": helper(1)})', "it is an argument of .agent()"),
        ('yield from step("b").python(act, args=(helper(1),))', "is an argument of .python()"),
        ('h = helper(1)\nyield from step("b").call(act, h)', "to h, which is used as a"),
        ('h = helper(1)\nyield from step("b").call(act, n=[h])', "to h, which is used as a"),
        (
            'h = helper(1)\nif h:\n    yield from step("b").call(act)',
            "to h, which is used as a",
        ),
        ("h = helper(1)\ny = h.name + h[0]", "to h, which is used as a"),
        ("h: object = helper(1)\nreturn h", "to h, which is used as a"),
    ],
)
def test_a_step_that_is_never_yielded_is_found(body: str, why: str) -> None:
    """A step that is built and dropped is reported with what became of it."""
    (found,) = findings(body)
    assert found.code == "HR101"
    assert why in found.message


@pytest.mark.parametrize(
    "body",
    [
        'yield from step("a")',
        'yield from step("a").retry(2)',
        'yield from step("g").parallel(step("a"), step("b").call(act))',
        'step("a")',
    ],
)
def test_a_step_without_a_verb_is_found(body: str) -> None:
    """A step that says nothing but its name is reported once, with verbs to choose from."""
    (found,) = findings(body)
    assert found.code == "HR102"
    assert ".call()" in found.hint


@pytest.mark.parametrize(
    "body",
    [
        "yield",
        "yield None",
        'yield "plan"',
        "yield [step('a').call(act)]",
        "yield helper(1)",
        "yield from [make(1), make(2)]",
    ],
)
def test_a_yield_of_no_step_is_found(body: str) -> None:
    """Only steps may be yielded; a helper needs ``yield from``."""
    assert codes(body) == ["HR103"]


def test_the_yield_behind_a_return_is_no_mistake() -> None:
    """``return`` then ``yield`` is how a function without steps becomes a generator."""
    text = f"{HEAD}@workflow\ndef flow() -> Steps[int]:\n    return 1\n    yield\n"
    assert check_module(text, "flow.py") == ()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "is a blank name"),
        ("  ", "is a blank name"),
        (" a", "begins or ends with a blank"),
        ("..", "paths need for themselves"),
        ("a~2", "paths need for themselves"),
        ("a\n1", "cannot be printed"),
        ("x" * 121, "has 121 characters"),
    ],
)
def test_a_name_that_no_step_can_have_is_found(name: str, said: str) -> None:
    """A literal name that a run would refuse is reported with the reason."""
    (found,) = findings(f"yield from step({name!r}).call(act)")
    assert (found.code, said in found.message) == ("HR105", True)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('yield from step("a").call(lambda: 1)', "a lambda as action"),
        (
            'def local(): ...\nyield from step("a").call(local)',
            "the local function local as action",
        ),
        ('f = lambda: 1\nyield from step("a").call(f)', "a lambda as action"),
        (
            'def local(i): ...\nyield from step("a").python(partial(local, 1))',
            "local function local",
        ),
        ('yield from step("a").for_each(x, lambda i: make(i))', "a lambda as body"),
    ],
)
def test_a_callable_without_a_name_of_its_own_is_found(body: str, said: str) -> None:
    """Lambdas and local functions as actions and bodies cannot be recognised on resume."""
    (found,) = findings(body, before="from functools import partial\n")
    assert (found.code, said in found.message) == ("HR206", True)


def test_a_bare_yield_is_found() -> None:
    """``yield step(...)`` is reported, because its result has no type."""
    assert codes('y = yield step("a").call(act)') == ["HR401"]


# Names


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        ("YIELD_A\nYIELD_A", [2]),
        ('s = step("a").call(act)\nyield from s\nyield from s', [3]),
        ("if x:\n    YIELD_A\nYIELD_A", [3]),
        (
            "try:\n    YIELD_A\nexcept StepFailed:\n    YIELD_A",
            [4],
        ),
        (
            "try:\n    YIELD_A\nfinally:\n    YIELD_A",
            [4],
        ),
        ("YIELD_A.when(x)\nYIELD_A", [2]),
        ('yield from step("g").parallel(\n    step("a").call(act),\n    step("a").call(act))', [3]),
        ("yield from helper(1)\nyield from helper(2)", [2]),
        ('yield from step("aid").call(act)\nyield from helper(2)', [-7]),
        ("for i in x:\n    YIELD_A", [2]),
        ("while True:\n    YIELD_A", [2]),
        ('while (yield from step("a").ask("?")):\n    pass', [1]),
        ('yield from step("g").race(*[step("a").call(act) for i in x])', [1]),
        (
            "for i in x:\n  try:\n    YIELD_A\n    break\n  except KeyError:\n    continue",
            [3],
        ),
        (
            "for i in x:\n    if i:\n        break\n    for k in x:\n        YIELD_A",
            [5],
        ),
        ("for k in y:\n    if x:\n        YIELD_A\n        break\nif not x:\n    YIELD_A", [6]),
        ("for i in x:\n    if i:\n        YIELD_A\n    if x:\n        break", [3]),
        ("y = 1\nfor i in x:\n    if y:\n        YIELD_A\n    y = 0", [4]),
        ("for i in x:\n    if i == 2:\n        for k in y:\n            YIELD_A", [4]),
        ("for i in x:\n    if i != 2:\n        YIELD_A", [3]),
        ("if x:\n    YIELD_A\nx = f()\nif not x:\n    YIELD_A", [5]),
        ("if x:\n    YIELD_A\nelse:\n    YIELD_A\nif not x:\n    YIELD_A", [6]),
        ("if f():\n    YIELD_A\nif not f():\n    YIELD_A", [4]),
        (
            "for i in x:\n    if x:\n        YIELD_A\n        continue\n    if x:\n        y",
            [3],
        ),
    ],
)
def test_a_name_that_comes_twice_is_found(body: str, lines: list[int]) -> None:
    """The second use is reported; in a loop, the only one."""
    found = findings(body)
    start = HEAD.count("\n") + 2
    assert [(one.code, one.line - start) for one in found] == [("HR104", line) for line in lines]


@pytest.mark.parametrize(
    "body",
    [
        "if x:\n    YIELD_A\nelse:\n    YIELD_A",
        "if x:\n    YIELD_A\n    return 1\nYIELD_A",
        "if x:\n    YIELD_A\n    raise ValueError\nYIELD_A",
        "match x:\n    case 1:\n        YIELD_A\n    case _:\n        YIELD_A",
        "try:\n    x()\nexcept KeyError:\n    YIELD_A\nexcept ValueError:\n    YIELD_A",
        "try:\n    x()\nexcept KeyError:\n    YIELD_A\nelse:\n    YIELD_A",
        "for i in x:\n    YIELD_A\n    break",
        "for i in x:\n    if i:\n        YIELD_A\n        return 1",
        'for i in x:\n    yield from step(f"a-{i}").call(act)',
        'for i in x:\n    yield from step(f"g-{i}").parallel(step("a").call(act), make(i))',
        'yield from step("g").parallel(step("g").call(act))\nYIELD_A',
        'yield from step("b").branch((x, step("a").call(act)), (x, step("a").call(act)))',
        "with x:\n    if x:\n        YIELD_A\n        return 1\nYIELD_A",
        "y = (YIELD_A) if x else (YIELD_A)",
        "for i in x:\n    yield from helper(i)\n    break",
        "for i in x:\n    if i:\n        YIELD_A\n    if i:\n        break",
        "y = 0\nwhile not y:\n    if x:\n        YIELD_A\n        y = 1",
        "for i in x:\n    if x and i:\n        YIELD_A\n    if i:\n        break",
        "for i in x:\n    if i == 1:\n        YIELD_A\n    if i != 1:\n        continue\n    break",
        "for i in x:\n    if i == 2:\n        YIELD_A",
        "for n, i in enumerate(x):\n    if n == 0 and i:\n        YIELD_A",
        "y = True\nfor i in x:\n    if y:\n        YIELD_A\n        y = False",
        "y = None\nfor i in x:\n    if y is None:\n        y = YIELD_A",
        "for i in x:\n    if len(i):\n        YIELD_A\n    if len(i):\n        break",
        "if x.ok:\n    YIELD_A\nif not x.ok:\n    pass\nelse:\n    return 1\nYIELD_A",
        "if x:\n    pass\nelif y:\n    YIELD_A\nif y and x:\n    pass\nelif x:\n    YIELD_A",
    ],
)
def test_a_name_that_comes_once_on_every_way_is_let_pass(body: str) -> None:
    """Two places may share a name if one run comes by only one of them."""
    assert codes(body) == []


def test_a_name_in_a_loop_is_told_how_to_differ() -> None:
    """The hint is an f-string with the loop's variable."""
    (found,) = findings("for item in x:\n    YIELD_A")
    assert 'step(f"a-{item}")' in found.hint


def test_a_name_is_checked_in_each_body() -> None:
    """Each member of ``for_each`` has names of its own, which may not come twice either."""
    before = (
        'def body(i):\n    yield from step("b").call(act)\n    yield from step("b").call(act)\n'
    )
    (found,) = findings('yield from step("g").for_each(x, body)', before=before)
    assert (found.code, found.line) == ("HR104", 3)


@given(programs, st.lists(st.booleans(), max_size=60))
def test_a_name_that_a_run_uses_twice_was_found(program: str, draws: list[bool]) -> None:
    """The literal path at which a run would end, because it was taken, had been reported."""
    paths = [path for path in run(program, draws) if "-" not in path]
    taken = next((path for index, path in enumerate(paths) if path in paths[:index]), None)
    if taken is not None:
        name = repr(taken.rpartition("/")[2])
        found = check(Source(program, "flow.py", name="flow"))
        assert any(one.code == "HR104" and name in one.message for one in found)


# What is read


READS = """\
from handrail import Executor
def ready(ctx):
    return ctx.output("plan") and ctx.inputs["x"] and ctx.output("z")
@workflow
def outer() -> Steps[None]:
    yield from step("plan").call(act)
    yield from step("in").run_workflow(child)
"""


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("lambda ctx: ctx.output('plan')", ""),
        ("lambda ctx: ctx.output('/z/deep')", ""),
        ("ready", ""),
        ("lambda one: one.result('plna') is None", "no step is named 'plna'. Did you mean 'plan'?"),
        ("lambda ctx: ctx.output('nothing')", "no step is named 'nothing'."),
        ("lambda ctx: ctx.inputs['y']", "workflow 'flow' has no input 'y'. It has: x."),
        ("lambda ctx: ctx.inputs.get('y')", "workflow 'flow' has no input 'y'. It has: x."),
        ("lambda ctx: 'y' in ctx.inputs", "workflow 'flow' has no input 'y'. It has: x."),
        ("lambda ctx: ctx.inputs.get('x', 1)", ""),
        (
            "lambda ctx: ctx.results['plna'].success",
            "no step is named 'plna'. Did you mean 'plan'?",
        ),
        ("lambda ctx: 'plan' in ctx.results", ""),
        ("lambda ctx: other.output('plna')", ""),
    ],
)
@pytest.mark.parametrize("slot", ["call(act).when({})", "branch(({}, step('b').call(act)))"])
def test_a_name_that_nothing_has_is_found(body: str, said: str, slot: str) -> None:
    """What a function of the context reads is a step of a workflow of the text, or an input."""
    before = READS.replace("@workflow", "from handrail import Steps, step, workflow\n@workflow")
    found = findings(f'yield from step("a").{slot.format(body)}', before=before)
    assert [str(one).partition("HR110 ")[2] for one in found] == [said] * bool(said)


@pytest.mark.parametrize(
    "body",
    [
        "yield from other.helper()",
        "yield from other.made",
        'yield from step("v").validate()',
    ],
)
def test_names_are_not_judged_where_a_step_may_be_unseen(body: str) -> None:
    """A helper of another file, a step from elsewhere and unnamed stages may have the name."""
    asks = 'yield from step("a").call(act).when(lambda ctx: ctx.output("nothing"))'
    assert {"HR110"}.isdisjoint(codes(f"{body}\n{asks}"))


@pytest.mark.parametrize(
    ("sought", "found"), [("plna", True), ("lint", False), ("lnit", True), ("else", False)]
)
def test_unnamed_stages_hide_no_slip(sought: str, *, found: bool) -> None:
    """Beside a ``validate`` of stages that are named elsewhere, a name is wrong only if it is close
    to a known one. A stage that the project has is known.
    """
    text = (
        f"{HEAD}    yield from step('plan').call(act)\n"
        f"    yield from step('v').validate(x)\n"
        f"    yield from step('b').call(act).when(lambda ctx: ctx.output({sought!r}))\n"
    )
    known = check_module(text, "flow.py", stages=["lint"])
    assert [one.code for one in known if one.code == "HR110"] == ["HR110"] * found


# The body


@pytest.mark.parametrize(
    ("code", "written"),
    [
        ("HR201", "time.time()"),
        ("HR201", "monotonic()"),
        ("HR201", "datetime.datetime.now()"),
        ("HR201", "dt.utcnow()"),
        ("HR201", "datetime.date.today()"),
        ("HR202", "random.random()"),
        ("HR202", "random.Random()"),
        ("HR202", "uuid.uuid4()"),
        ("HR202", "secrets.token_hex()"),
        ("HR202", "os.urandom(8)"),
        ("HR203", 'open("x")'),
        ("HR203", "input()"),
        ("HR203", 'os.listdir(".")'),
        ("HR203", 'os.path.exists("x")'),
        ("HR203", 'Path("x").read_text()'),
        ("HR203", '(Path("x") / "y").exists()'),
        ("HR203", "x.write_text(1)"),
        ("HR203", "paths.ROOT.read_text()"),
        ("HR203", "ROOT.exists()"),
        ("HR203", 'sp.run(["ls"])'),
        ("HR203", 'requests.get("x")'),
        ("HR203", 'urllib.request.urlopen("x")'),
        ("HR204", 'os.environ["X"]'),
        ("HR204", 'os.environ.get("X")'),
        ("HR204", 'os.getenv("X")'),
        ("HR205", "time.sleep(1)"),
        ("HR205", "asyncio.sleep(1)"),
        ("HR108", "asyncio.run(x)"),
        ("HR108", "fetch(x)"),
        ("HR107", "child(x)"),
        ("HR107", "child.run(x)"),
    ],
)
def test_what_does_not_belong_in_a_body_is_found(code: str, written: str) -> None:
    """Clock, chance, I/O, environment, sleeping, async code and runs belong in steps."""
    before = (
        "import asyncio, datetime, os, random, requests, secrets, time, urllib.request, uuid\n"
        "import subprocess as sp\nfrom datetime import datetime as dt\nfrom pathlib import Path\n"
        "from time import monotonic\nimport paths\nROOT = Path('x') / 'y'\n"
    )
    assert codes(f"y = {written}", before=before) == [code]


def test_the_arguments_of_a_step_are_part_of_the_body() -> None:
    """A clock that is read for an argument is read in the body."""
    assert codes('yield from step("a").call(act, time.time())', before="import time\n") == ["HR201"]


def test_helpers_and_bodies_are_part_of_the_body() -> None:
    """Generators and makers that run as part of the workflow are held to the same rules."""
    before = (
        "import time\n"
        'def aid():\n    yield from step(f"a{time.time()}").call(act)\n'
        'def made(i):\n    return step(f"b{time.time()}").call(act)\n'
        "def act_slowly():\n    time.sleep(1)\n"
    )
    body = (
        'yield from aid()\nyield from step("g").for_each(x, made)\n'
        'yield from step("c").call(act_slowly)'
    )
    assert [(one.code, one.line) for one in findings(body, before=before)] == [
        ("HR201", 3),
        ("HR201", 5),
    ]


# Errors on their way


@pytest.mark.parametrize(
    "caught", ["", " BaseException", " (ValueError, RunCancelled)", " h.RunCancelled"]
)
def test_a_handler_that_swallows_cancellation_is_found(caught: str) -> None:
    """What catches ``RunCancelled`` at a yield must raise again."""
    body = f"try:\n    YIELD_A\nexcept{caught}:\n    x = 1"
    assert codes(body) == ["HR301"]


@pytest.mark.parametrize(
    "body",
    [
        "try:\n    YIELD_A\nexcept BaseException:\n    raise",
        "try:\n    YIELD_A\nexcept RunCancelled:\n    raise\nexcept:\n    pass",
        "try:\n    YIELD_A\nexcept Exception:\n    pass",
        "try:\n    int(x)\nexcept:\n    pass",
        "try:\n    YIELD_A\nexcept errors():\n    pass",
    ],
)
def test_a_handler_that_lets_cancellation_through_is_let_pass(body: str) -> None:
    """Raising again, catching less, or having no yield inside keeps a cancellation on its way."""
    assert codes(body) == []


def test_suppress_of_everything_is_found() -> None:
    """``suppress(BaseException)`` around a yield is a handler like any other."""
    body = "with suppress(BaseException):\n    YIELD_A"
    assert codes(body, before="from contextlib import suppress\n") == ["HR301"]


@pytest.mark.parametrize(
    ("final", "expected"),
    [
        ("return 1", ["HR302"]),
        ("if x:\n        return 1", ["HR302"]),
        ("break", ["HR302"]),
        ("continue", ["HR302"]),
        ("match x:\n        case 1:\n            return 1", ["HR302"]),
        ("for k in x:\n        break", []),
        ("def inner():\n        return 1", []),
    ],
)
def test_a_way_out_of_finally_is_found(final: str, expected: list[str]) -> None:
    """Leaving a ``finally`` drops the error that is on its way."""
    body = f"for i in x:\n  try:\n    x()\n  finally:\n    {final}"
    assert codes(body) == expected


# The workflow itself


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("@workflow\nasync def flow() -> int:\n    pass\n", "HR106", "is an async function"),
        ("@workflow\ndef flow() -> int:\n    return 1\n", "HR106", "never yields"),
        (
            'class A:\n  @workflow\n  def f(self) -> int:\n    yield from step("a").call(f)\n',
            "HR106",
            "is a method",
        ),
        (
            '@workflow\ndef flow():\n    yield from step("a").call(f)\n',
            "HR402",
            "no return annotation",
        ),
    ],
)
def test_a_workflow_that_is_none_is_found(text: str, code: str, said: str) -> None:
    """What ``@workflow`` would refuse, or a type checker not see, is reported at its ``def``."""
    (found,) = check_module(f"from handrail import step, workflow\n{text}", "flow.py")
    assert (found.code, said in found.message) == (code, True)


MODULE = """\
import handrail as h
from handrail import step, workflow
@workflow
def plain() -> Steps[int]:
    step("a").call(f)
@h.workflow("named")
def called() -> Steps[int]:
    yield from step("a")
@handrail_like.workflow
def other():
    yield 1
def outer():
    @workflow(description="inner")
    def inner() -> Steps[int]:
        yield None
if True:
    @workflow(name="x")
    def conditional() -> Steps[int]:
        yield from helper()
def helper():
    yield None
"""


def test_the_workflows_of_a_module_are_found_by_their_decorator() -> None:
    """Each spelling of ``@workflow`` counts; those inside functions cannot be named."""
    assert workflows_in(MODULE, "flows.py") == ("plain", "called", "conditional")


def test_a_module_is_checked_as_a_whole() -> None:
    """Every workflow of the text is checked, inner ones and helpers included, by line."""
    found = [(one.line, one.code) for one in check_module(MODULE, "flows.py")]
    assert found == [(4, "HR106"), (5, "HR101"), (8, "HR102"), (15, "HR103"), (21, "HR103")]


def test_a_file_that_does_not_parse_is_a_finding() -> None:
    """The finding has the line where Python gave up; a list of names cannot be given."""
    expected = [("HR100", "flow.py", 2)]
    text = "x = 1\ndef flow(:\n"
    for found in (check_module(text, "flow.py"), check(Source(text, "flow.py", name="flow"))):
        assert [(one.code, one.filename, one.line) for one in found] == expected
    with pytest.raises(SourceUnavailable, match=r"flow\.py:2"):
        workflows_in(text, "flow.py")


def test_bottomless_nesting_is_a_finding() -> None:
    """A file that cannot be walked through is reported, not a crash."""
    for depth in (1_000, 100_000):
        text = f"{HEAD}@workflow\ndef flow():\n    yield {'x + ' * depth}1\n"
        assert [one.code for one in check_module(text, "flow.py")] == ["HR100"]


def test_a_function_that_is_not_there_is_an_error() -> None:
    """Asking for a function that the text does not have is the caller's mistake."""
    with pytest.raises(SourceUnavailable, match="gone"):
        check(Source(HEAD, "flow.py", name="gone"))


# What is reported


def test_a_finding_reads_like_a_compilers() -> None:
    """A finding has file, line and column from 1 in characters, code, message and hint."""
    (found,) = findings('"é"; step("a").call(act)')
    line = HEAD.count("\n") + 3
    assert (found.filename, found.line, found.column) == ("flow.py", line, 10)
    assert str(found) == (
        f"flow.py:{line}:10: HR101 step 'a' is built but never yielded: nothing is done with it. "
        "Write `yield from step(...)`."
    )


@pytest.mark.parametrize(
    ("comment", "expected"),
    [
        ("# handrail: ignore[HR101]", []),
        ("# handrail: ignore[HR104, HR101]", []),
        ("# handrail: ignore", []),
        ("# because  # handrail: ignore[HR101]", []),
        ("# handrail: ignore[HR104]", ["HR101"]),
        ("# handrail", ["HR101"]),
        ('; "# handrail: ignore"', ["HR101"]),
    ],
)
def test_a_comment_lets_a_finding_pass(comment: str, expected: list[str]) -> None:
    """A comment with the code, or with none, silences the line; text in a string does not."""
    assert codes(f'step("a").call(act)  {comment}') == expected


@pytest.mark.parametrize(
    "body",
    [
        'step("a").call(  # handrail: ignore[HR101]\n    act,\n)',
        'step("a").call(\n    act,\n)  # handrail: ignore[HR101]',
        'if step("a").call(\n    act,\n) == 1:  # handrail: ignore[HR101]\n    x = 1',
    ],
)
def test_a_comment_counts_for_its_whole_statement(body: str) -> None:
    """A statement of several lines has its comment on any of them."""
    assert codes(body) == []


def test_a_comment_in_a_block_does_not_count_for_its_head() -> None:
    """The comment of an inner statement is no comment on the statement around it."""
    body = 'if step("a").call(act) == 1:\n    x = 1  # handrail: ignore'
    assert codes(body) == ["HR101"]


def test_every_code_is_in_the_table() -> None:
    """Each code that the sources mention is explained, and each that is explained is used."""
    package = Path(check.__code__.co_filename).parent
    used = {
        code
        for file in (*package.glob("lint*.py"), package.parent / "cli" / "check.py")
        for code in re.findall(r'"(HR\d{3})"', file.read_text(encoding="utf-8"))
    }
    assert used == set(CODES)
    assert all(rule.title and rule.explanation.endswith(".") for rule in CODES.values())


@settings(max_examples=settings().max_examples * 4 // 10)
@given(programs)
def test_findings_come_by_line(program: str) -> None:
    """Findings are in the order of the text, and none comes twice."""
    found = check(Source(program, "flow.py", name="flow"))
    places = [(one.line, one.column, one.code, one.message) for one in found]
    assert places == sorted(set(places))
