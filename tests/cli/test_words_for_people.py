"""What people read first: reasons, reports, mistakes in a workflow, in any locale."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from handrail import Executor, Ladder, SqliteJournal, Steps, step, workflow
from handrail.errors import DefinitionError, InvalidInput
from handrail.model.agent_options import AgentOptions
from handrail.model.policy import Backoff
from handrail.shortening import reason_of
from tests.cli.conftest import Cli, spawned


def bad(number: int) -> None:
    """Raise an error of two lines."""
    raise ValueError(f"bad {number}\nand more")


def member(number: int) -> Steps[None]:
    """Fail in a step, or in a program."""
    if number:
        yield from step("one").call(bad, number)
    program = "def f():\n    raise KeyError('zip')\nf()"
    yield from step("two").command([sys.executable, "-c", program])


@workflow
def child(number: int) -> Steps[None]:
    """Fail two composites further down."""
    yield from step("all").for_each([number], member, key=str)


@workflow
def fails(number: int) -> Steps[None]:
    """Fail below a child workflow."""
    yield from step("kid").run_workflow(child, number)


@pytest.mark.parametrize(("number", "said"), [(1, "ValueError: bad 1"), (0, "KeyError: 'zip'")])
async def test_a_reason_is_one_line_at_each_level(tmp_path: Path, number: int, said: str) -> None:
    """The step, its member, group and child, and the journal's view, give the line that matters."""
    executor = Executor(journal=SqliteJournal(tmp_path / "j.db"))

    result = await executor.run(fails, number)

    failed = [one for one in result.step_results if one.status == "failed"]
    assert len(failed) == 3
    for one in failed:
        assert one.reason is not None
        assert one.reason.endswith(said)
        assert "\n" not in one.reason
        assert "member" not in one.reason
    state = await executor.get(result.run_id)
    for view in state.steps:
        told = view.to_dict()
        assert told["reason"].endswith(said)
        assert told["cause"]["path"] == view.path
        assert told["given_by"] is None


MUCH = """exit code 1: F
======
FAIL: test_half (app.T)
------
Traceback (most recent call last):
  File "t.py", line 7, in test_half
AssertionError: 1 != 1.5

FAILED (failures=1)
"""


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        ("no", "builtins.OSError", "OSError: no"),
        ("OSError: no", "builtins.OSError", "OSError: no"),
        (
            "member 'a\\'b' failed: step \"x'y\" failed: E: no; cancelled: c",
            None,
            "E: no; cancelled: c",
        ),
        ("workflow 'w' failed: member '1' failed: E: one\ntwo", None, "E: one"),
        ("", "x.Gone", "Gone"),
        ("it said: Traceback (most recent call last):\n  File\nE: no\n", None, "it said: E: no"),
        ("Traceback (most recent call last):", None, "Traceback (most recent call last):"),
        (
            MUCH,
            "handrail.errors.StageFailed",
            "StageFailed: exit code 1: F ... FAIL: test_half (app.T) ... AssertionError: 1 != 1.5",
        ),
        (
            "exit code 1: F.\nE  assert 1 == 2\nFAILED test_a.py::test_b - assert 1 == 2\n1 failed",
            None,
            "exit code 1: F. ... FAILED test_a.py::test_b - assert 1 == 2",
        ),
        (
            "exit code 1: --- FAIL: TestX (0.00s)\n    x_test.go:3: no",
            None,
            "exit code 1: --- FAIL: TestX (0.00s)",
        ),
        (
            "exit code 1: \nrunning 1 test\ntest it ... FAILED\n",
            None,
            "exit code 1: ... test it ... FAILED",
        ),
        (f"no {'x ' * 400}end", None, f"no {'x ' * 165}... {'x ' * 79}end"),
    ],
)
def test_reasons(error: str, kind: str | None, said: str) -> None:
    """Steps around a failure, later lines and frames are left out."""
    assert reason_of(error, kind) == said


def test_a_report_begins_with_what_matters(cli: Cli, folder: Path) -> None:
    """What needs a person, what failed and why, and what it cost come before the rows."""
    (folder / "f.py").write_text(
        "from handrail import Agent, FakeBackend, StepFailed, step, workflow\n"
        "bot = Agent('bot', 'x', backend=FakeBackend(['y']))\n"
        "@workflow\n"
        "def f():\n"
        "    yield from step('bot').agent(bot)\n"
        "    try:\n"
        "        yield from step('bad').call(int, 'x')\n"
        "    except StepFailed:\n"
        "        pass\n"
        "    yield from step('go?').ask('Go on?', choices=['yes', 'no'])\n"
    )
    assert cli("run", "f.py", "--run-id", "r").code == 3

    text = cli("report", "r").out

    parts = [
        "### Needs a person",
        "an answer: Go on?",
        "### What failed, and why",
        "ValueError: invalid",
    ]
    places = [text.index(part) for part in [*parts, "### Cost", "1 launch", "### Steps"]]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("value", "first"),
    [
        (
            "| a | b |\n|---|---|\n| 1 | 2 |",
            "| a | b |\n|---|---|\n| 1 | 2 |\n\n### What failed on",
        ),
        ("done <b>", "### Value\n\n```text\nvalue: done <b>\n```\n\n### What failed on"),
    ],
)
def test_a_report_of_success_begins_with_the_value(cli: Cli, value: str, first: str) -> None:
    """Markdown stands as it is, and what failed and was handled comes behind."""
    Path("f.py").write_text(
        "from handrail import Steps, step, workflow\n@workflow\ndef flow() -> Steps[str]:\n"
        "    yield from step('a').parallel(step('b').call(int, 'x'), on_error='continue')\n"
        f"    return {value!r}\n"
    )
    cli("run", "f.py", "--run-id", "r")
    head, _, text = cli("report", "r").out.partition("\n\n")
    assert head == "## ✅ `flow` succeeded"
    assert text.startswith(first)


def test_a_misspelt_verb_is_named() -> None:
    """The error says which verb was meant, or that a modifier follows a verb."""
    named: Any = step("a")
    with pytest.raises(AttributeError, match=r"step 'a': .* 'cal'\. Did you mean `call`\?"):
        named.cal(int)
    with pytest.raises(AttributeError, match=r"It follows a verb: step\('a'\)\.call\(.*\)\.retry"):
        named.retry(3)
    with pytest.raises(AttributeError, match=r"Verbs: .*call, command, agent"):
        named.frobnicate()


@workflow
def counts(number: int) -> Steps[int]:
    """Return the number."""
    return (yield from step("a").call(int, number))


@pytest.mark.parametrize(("given", "error"), [(("x",), InvalidInput), ((), TypeError)])
def test_wrong_inputs_show_the_callers_line(given: tuple[Any, ...], error: type[Exception]) -> None:
    """At most two frames of ours follow it, and no other exception is shown."""
    with pytest.raises(error) as caught:
        Executor().run_sync(counts, *given)

    assert len(caught.traceback) <= 3
    assert caught.value.__cause__ is None


def test_a_limit_names_its_option(cli: Cli) -> None:
    """The error of `--max-steps` says that flag."""
    Path("many.py").write_text(
        "from handrail import step, workflow\n"
        "@workflow\n"
        "def many():\n"
        "    for n in range(3):\n"
        "        yield from step(f's{n}').call(int)\n"
    )
    assert "--max-steps" in cli("run", "many.py", "--max-steps", "1", "--quiet").err
    assert "--timeout" not in cli("run", "many.py", "--max-steps", "1", "--quiet").err


UMLAUT = '''\
from handrail import step, workflow
@workflow
def umlaut(x: str = "ä→☃"):
    """Größe."""
    yield from step("ä☃").call(str, "☃")
    return (yield from step("go?").ask("☃?", choices=["já", "nein"]))
'''


def test_no_locale_makes_a_command_fail(folder: Path) -> None:
    """In POSIX without UTF-8, what is no ASCII is escaped."""
    (folder / "u.py").write_text(UMLAUT, "utf-8")
    posix = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}

    assert spawned("run", "u.py", "--run-id", "u", **posix).code == 3
    for line in (
        "show u",
        "report u",
        "runs",
        "plan u",
        "list",
        "graph u.py",
        "check u.py",
        "tail u",
    ):
        outcome = spawned(*line.split(), **posix)
        assert outcome.code in {0, 1, 3}, (line, outcome)
        assert "Unicode" not in outcome.err, line


def test_a_dict_of_a_class_of_the_flow_is_shown_as_python_writes_it(cli: Cli, folder: Path) -> None:
    """Keys that are no texts, and tuples, are not shown as the record has them."""
    (folder / "d.py").write_text(
        "from dataclasses import dataclass\n"
        "from handrail import step, workflow\n"
        "@dataclass(frozen=True)\n"
        "class P:\n"
        "    m: dict\n"
        "def make(): return {13: P({(1, 2): (3,)})}\n"
        "@workflow\n"
        "def d():\n"
        "    return (yield from step('a').call(make))\n"
    )
    assert cli("run", "d.py", "--run-id", "r").code == 0
    assert "value: {13: P(m={(1, 2): (3,)})}" in spawned("show", "r").out


def test_resume_all_names_what_does_not_go_with_it(cli: Cli) -> None:
    """The words that were typed, `--latest` among them."""
    said = cli("resume", "--all", "--latest", "--rerun", "a").err
    assert "it does not go with --latest --rerun a" in said


PRESSED = """\
import os, signal, sys


class Presses:
    def find_spec(self, name, *_):
        if name == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGINT)


sys.meta_path.insert(0, Presses())
from handrail.cli import main
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize(
    "module",
    ["handrail.cli.entry", "cyclopts", "handrail.cli.run", "handrail.engine.engine", "slow"],
)
def test_ctrl_c_while_modules_load_ends_with_130(folder: Path, module: str) -> None:
    """Without a traceback, whether the command's modules load or those of the workflow."""
    (folder / "flow.py").write_text("import slow\n")
    (folder / "slow.py").write_text("")
    (folder / "pressed.py").write_text(PRESSED)

    done = subprocess.run(
        [sys.executable, "pressed.py", module, "run", "flow.py"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (130, "handrail: interrupted\n")


@pytest.mark.parametrize(
    ("variables", "ladder"),
    [
        ({"CAP_WAIT_S": "60", "AUTH": "probe"}, Ladder(cap_wait_s=60, auth="probe")),
        ({"BACKOFF": '{"initial_s": 1}'}, Ladder(backoff=Backoff(initial_s=1))),
        ({"CAP_PROBE_S": "null", "MAX_LAUNCHES": "7"}, Ladder(cap_probe_s=None, max_launches=7)),
    ],
)
def test_variables_set_the_ladder(
    monkeypatch: pytest.MonkeyPatch, folder: Path, variables: dict[str, str], ladder: Ladder
) -> None:
    """In code and on the command line; a ladder that is given in code comes before them."""
    from handrail.cli.settings import project_executor

    for name, text in variables.items():
        monkeypatch.setenv(f"HANDRAIL_LADDER_{name}", text)
    (folder / "pyproject.toml").write_text("[tool.handrail.ladder]\nbackoff = {max_s = 3}\n")

    assert Executor().parts.agent_defaults().ladder == ladder
    told = project_executor(None, None).parts.agent_defaults().ladder
    assert told is not None
    assert told.backoff == (ladder.backoff if "BACKOFF" in variables else Backoff(max_s=3))
    assert told.cap_probe_s == ladder.cap_probe_s
    given = Ladder(crash_retries=9)
    assert Executor(ladder=given).parts.agent_defaults().ladder == given


@pytest.mark.parametrize(("name", "text"), [("CAP_WAIT", "1"), ("BACKOFF", '{"initial": 1}')])
def test_a_field_that_no_ladder_has_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    """By name, of the ladder and of its backoff."""
    monkeypatch.setenv(f"HANDRAIL_LADDER_{name}", text)
    with pytest.raises(DefinitionError, match=r"has no key '(cap_wait|initial)'"):
        Executor().parts.agent_defaults()


@pytest.mark.parametrize("field", ["tools", "cwd", "comand"])
def test_a_field_of_an_mcp_server_that_is_not_listed_is_refused(field: str) -> None:
    """By name, and without its value, which may be secret."""
    with pytest.raises(DefinitionError, match=rf"'s' in mcp_servers .* has '{field}'") as caught:
        AgentOptions(mcp_servers={"s": {"command": "x", field: "hunter2"}})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("typed", ['{"who": "a//b", "times": 3}', ' {"who": "a//b", "times": 3}'])
def test_inputs_are_typed_as_json(cli: Cli, flows: Path, typed: str) -> None:
    """`--inputs` takes an object as well as a file."""
    outcome = cli("run", "flows.py:greet", "--inputs", typed, "--json")
    assert outcome.data["value"] == {"text": "hello a//b", "times": 3}
    assert "is not JSON" in cli("run", "flows.py:greet", "--inputs", "{who").err


@pytest.mark.parametrize(
    ("model", "variable", "said"),
    [
        ("night@gpt-6", None, ("night", "gpt-6")),
        ("night", None, ("night", None)),
        ("night@", "day", ("night", None)),
        ("gpt-6", None, (None, "gpt-6")),
        ("gpt-6", "night", ("night", "gpt-6")),
        (None, "night", ("night", None)),
        (None, None, (None, None)),
    ],
)
def test_a_codex_profile_is_named_by_the_model_or_a_variable(
    tmp_path: Path, model: str | None, variable: str | None, said: tuple[str | None, str | None]
) -> None:
    """A model that is a profile's name is that profile; `CODEX_PROFILE` counts without one."""
    from handrail.agents.codex.backend import with_profile

    (tmp_path / "night.config.toml").write_text("")
    env = {"CODEX_HOME": str(tmp_path)} | ({"CODEX_PROFILE": variable} if variable else {})

    assert with_profile("a", AgentOptions(model=model, env=env)).profile_and_model == said


def test_the_docs_teach_what_check_accepts() -> None:
    """No body or action in a page is a lambda, but where the page warns of it."""
    from handrail.static.lint import check_module

    docs = Path(__file__).parents[2] / "docs"
    for page in sorted(docs.rglob("*.md")):
        if page.name in {"lint.md", "what-moves.md"}:
            continue
        for block in re.findall(
            r"^```python\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE
        ):
            found = [one for one in check_module(block, page.name) if one.code == "HR206"]
            assert not found, (page, found)
