"""One executor for code and command, and what bounds a run on the command line."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Cli

APP = """\
import time
from pathlib import Path
from handrail import Executor, Limits, SqliteJournal, current, step, workflow


def save():
    return current().services["db"].name


def undo(ctx):
    Path("undone").write_text(ctx.services["db"].name)


def refuse(ctx):
    raise OSError("it is gone")


def first():
    if not Path("go").exists():
        raise OSError("not yet")


@workflow
def keeps():
    name = yield from step("save").call(save).with_rollback(undo)
    yield from step("wait").wait_for("never")
    return name


@workflow
def stays():
    yield from step("save").call(save).with_rollback(refuse)
    yield from step("wait").wait_for("never")


@workflow
def saves():
    return (yield from step("save").call(save))


def most(seen=[], now=[0]):
    now[0] += 1
    seen.append(now[0])
    time.sleep(0.05)
    now[0] -= 1
    return max(seen)


@workflow
def crowd():
    members = yield from step("all").for_each(range(4), lambda n: step("one").call(most).uses("db"))
    return max(members)


@workflow(limits=Limits(max_steps=3))
def long():
    for number in range(10):
        yield from step(f"s-{number}").call(str)


def services():
    return {"db": Path("the-db")}


def make_executor():
    return Executor(
        journal=SqliteJournal("data/app.db"), services=services(), workflows=[keeps, stays]
    )


def one():
    return Executor(services=services(), workflows=[saves])


def waiting():
    return Executor(services=services(), workflows=[keeps])


def kept():
    return Executor(journal=SqliteJournal("own.db"), services=services(), workflows=[keeps])
"""
LOOP = """\
from handrail import Agent, FakeBackend, step, workflow

agent = Agent("reviewer", "look", backend=FakeBackend(["no"] * 1_000))


@workflow
def loop():
    number = 0
    while True:
        number += 1
        if (yield from step(f"look-{number}").agent(agent).answer()) == "yes":
            return number
"""


@pytest.fixture(autouse=True)
def app(folder: Path) -> None:
    """An application with an executor of its own."""
    (folder / "app.py").write_text(APP, "utf-8")


def project(folder: Path, *lines: str) -> None:
    """Write the project's table."""
    text = "\n".join(["[tool.handrail]", *lines])
    (folder / "pyproject.toml").write_text(text, "utf-8")


@pytest.mark.parametrize("where", ["typed", "project"])
def test_a_run_of_the_application_is_reached_with_its_executor(
    where: str, cli: Cli, folder: Path
) -> None:
    """It has its journal, its services and its workflows; the rollback that needs them runs."""
    words = ["--executor", "app.py:make_executor"] if where == "typed" else []
    if where == "project":
        project(folder, 'executor = "app:make_executor"')
    assert cli("run", "app.py:keeps", "--run-id", "k", *words).code == 3
    assert (folder / "data/app.db").exists()
    assert not (folder / ".handrail").exists()
    assert "k    " in cli("runs", *words).out
    assert "wait_for" in cli("show", "k", *words).out
    assert cli("plan", "k", *words).code == 0
    assert cli("cancel", "k", *words).code == 0
    assert (folder / "undone").read_text() == "the-db"


def test_a_run_that_was_begun_in_code_needs_no_target(cli: Cli, folder: Path) -> None:
    """Its workflow is one of the executor's."""
    project(folder, 'executor = "app:make_executor"')
    code = (
        "import app; executor = app.make_executor(); "
        "executor.options(run_id='k').run_sync(app.keeps)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=folder)
    assert cli("signal", "k", "never").code == 0
    outcome = cli("resume", "k")
    assert (outcome.code, outcome.out) == (0, "the-db\n")


def test_a_rollback_that_failed_is_no_success(cli: Cli) -> None:
    """`cancel` exits with 1, and says what was not undone."""
    words = ["--executor", "app.py:make_executor"]
    assert cli("run", "app.py:stays", "--run-id", "s", *words).code == 3
    outcome = cli("cancel", "s", *words)
    assert outcome.code == 1
    assert "save was not rolled back: OSError: it is gone" in outcome.err
    assert "rollback failed: OSError: it is gone" in cli("show", "s", *words).out


def test_a_target_may_be_what_makes_an_executor(cli: Cli) -> None:
    """With one workflow it is run; with several somebody must say which."""
    assert cli("run", "app.py:one").out == "the-db\n"
    outcome = cli("run", "app.py:make_executor")
    assert outcome.code == 2
    assert "It has: keeps, stays. Name the workflow" in outcome.err


@pytest.mark.parametrize(
    "target",
    [
        ["app.py:waiting"],
        ["app.py:kept"],
        ["app.py:keeps", "--executor", "app.py:waiting"],
        ["app.py:keeps", "--executor", "app.py:kept"],
    ],
)
def test_a_run_of_a_factory_goes_on_with_what_that_makes(target: list[str], cli: Cli) -> None:
    """The line that is printed is enough: journal, workflow and services are those of its start."""
    outcome = cli("run", *target, "--run-id", "k")
    assert outcome.code == 3
    told = shlex.split(outcome.err.rpartition("to continue: handrail resume k")[2])
    words = ["--executor", "app.py:kept"] if "app.py:kept" in target else []
    assert told == (words or target[1:])
    again = cli("show", "k", *words).out.rpartition("to continue:")[2].split()
    assert again == ["handrail", "resume", "k", *words]
    assert "wait_for" in cli("plan", "k", *words).out
    assert cli("signal", "k", "never", *words).code == 0
    assert cli("resume", "k", *words).out == "the-db\n"
    assert cli("run", *target, "--run-id", "c").code == 3
    outcome = cli("cancel", "c", *words)
    assert (outcome.code, "rolled back" in outcome.err) == (0, True)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("app.py:nothing", "app.py has no 'nothing'"),
        ("app.py:keeps", "is not an executor"),
        ("app", "is not file.py:name"),
        ("no.py:x", "no.py"),
    ],
)
def test_an_executor_that_is_none_is_one_line(name: str, said: str, cli: Cli) -> None:
    """What was named, and what it should be."""
    outcome = cli("run", "app.py:saves", "--executor", name)
    assert (outcome.code, said in outcome.err) == (2, True), outcome.err
    assert len(outcome.err.splitlines()) == 1


# -- bounds ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--max-launches", "5"], "launches"),
        (["--max-steps", "7"], "max_steps"),
        (["--timeout", "0.3"], "timeout_s"),
    ],
)
def test_a_loop_that_never_ends_is_bounded(
    words: list[str], said: str, cli: Cli, folder: Path
) -> None:
    """By what is typed."""
    (folder / "loop.py").write_text(LOOP, "utf-8")
    outcome = cli("run", "loop.py", *words)
    assert outcome.code == 1
    assert said in outcome.err


def test_a_run_that_nothing_bounds_asks_after_200_launches(cli: Cli, folder: Path) -> None:
    """It waits for an answer, and goes on with as many again; dollars bound nothing that does not
    say what it costs.
    """
    (folder / "loop.py").write_text(LOOP, "utf-8")
    assert cli("run", "loop.py", "--run-id", "l", "--quiet").code == 3
    assert cli("show", "l", "--json").data["launches"] == 200
    assert cli("answer", "l", "look-201/budget-1", "allow").code == 0
    assert cli("resume", "l", "--quiet", "--budget-usd", "5").code == 3
    assert cli("show", "l", "--json").data["launches"] == 400


def test_a_workflow_has_limits_of_its_own(cli: Cli, folder: Path) -> None:
    """They count where nothing else was said."""
    outcome = cli("run", "app.py:long")
    assert outcome.code == 1
    assert "max_steps" in outcome.err
    assert cli("run", "app.py:long", "--max-steps", "20").code == 0
    project(folder, "max_steps = 20")
    assert cli("run", "app.py:long").code == 0


def test_the_project_says_how_much_may_go_on_at_once(cli: Cli, folder: Path) -> None:
    """By the tags that steps are said to use; else by how many steps."""
    assert int(cli("run", "app.py:crowd").out) > 1
    project(folder, "[tool.handrail.tags]", "db = 1")
    assert cli("run", "app.py:crowd").out == "1\n"
    project(folder, "max_concurrency = 1")
    assert cli("run", "app.py:crowd").out == "1\n"


# -- the project's table ---------------------------------------------------------------------------


def test_the_project_says_what_runs_have(cli: Cli, folder: Path) -> None:
    """Services, labels, sinks, the ladder and instructions, for runs of the command."""
    (folder / "more.py").write_text(
        "from pathlib import Path\nfrom handrail import CallbackSink\n"
        "def sink():\n    return CallbackSink(lambda event: Path('seen').touch())\n",
        "utf-8",
    )
    project(
        folder,
        'services = "app:services"',
        'sinks = ["more:sink"]',
        'instructions = "Be terse."',
        "[tool.handrail.labels]",
        'team = "a"',
        "[tool.handrail.ladder]",
        "max_launches = 3",
    )
    outcome = cli("run", "app.py:saves", "--run-id", "s", "--label", "why=test")
    assert (outcome.code, outcome.out) == (0, "the-db\n")
    assert (folder / "seen").exists()
    labels = cli("show", "s", "--json").data["labels"]
    assert (labels["team"], labels["why"]) == ("a", "test")
    again = ("run", "app.py:saves", "--run-id", "s"), ("resume", "s"), ("fork", "s")
    for command in again:
        refused = cli(*command, "--label", "why=other")
        assert refused.code == 2
        assert "--label: is for new runs" in refused.err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('backnd = "x"', "has no key 'backnd'. Did you mean 'backend'?"),
        ("zzz = 1", "has no key 'zzz'. It may have: backend, model"),
        ('max_steps = "many"', "max_steps must be a number, got 'many'"),
        ('sinks = "x"', "sinks must be a list of 'module:factory'"),
        (
            "ladder = {tries = 3}",
            "[tool.handrail.ladder] has no key 'tries'. It may have: transient",
        ),
        ("ladder = {auht = 3}", "[tool.handrail.ladder] has no key 'auht'. Did you mean 'auth'?"),
        ("ladder = {auth = 3}", "pyproject.toml: [tool.handrail]: auth of a Ladder must be one of"),
        ('services = "app:nothing"', "was not found"),
    ],
)
def test_a_wrong_table_is_refused(line: str, said: str, cli: Cli, folder: Path) -> None:
    """An unknown key, too: what is misspelt has no effect otherwise."""
    project(folder, line)
    outcome = cli("run", "app.py:saves")
    assert outcome.code == 2
    assert said in " ".join(outcome.err.split())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[tool.handrail]\nexecutor = "no.py:one"', "executor of {file}: no.py: there is no such"),
        ("[tool]\nhandrail = 5", "{file}: [tool.handrail] must be a table, got 5"),
    ],
)
def test_a_mistake_in_the_project_is_said_to_be_there(
    text: str, said: str, cli: Cli, folder: Path
) -> None:
    """Nobody typed it, so the error names the file that has it."""
    file = folder / "pyproject.toml"
    file.write_text(text, "utf-8")

    outcome = cli("runs")
    assert outcome.code == 2
    assert said.format(file=file) in outcome.err


def test_a_label_needs_a_name(cli: Cli) -> None:
    """It is NAME=VALUE."""
    assert "is not NAME=VALUE" in cli("run", "app.py:saves", "--label", "x").err
