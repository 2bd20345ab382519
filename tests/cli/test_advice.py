"""Advised commands: they reach the run's journal, executor and workflow as they are printed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from handrail import Executor, SqliteJournal, step, workflow
from handrail.model import events as ev
from handrail.sinks.memory import MemorySink
from tests.cli.conftest import Cli, Outcome, spawned

SERVICE = """\
from handrail import Executor, SqliteJournal, step, workflow


@workflow
def asks():
    yield from step("a").call(str)
    return (yield from step("go?").ask("Go?", choices=["yes", "no"]))


@workflow
def other():
    return (yield from step("w").wait_for("s"))


def make():
    return Executor(journal=SqliteJournal("own/svc.db"), workflows=[asks])


def begin(where):
    for flow in (asks, asks):
        Executor(journal=SqliteJournal(where)).run_sync(flow)
"""


@pytest.fixture(autouse=True)
def service(folder: Path) -> None:
    """A service's code."""
    (folder / "svc.py").write_text(SERVICE, "utf-8")
    (folder / "broken.py").write_text("def (", "utf-8")


def begin(where: str) -> str:
    """Begin two runs in a journal as a service does; the id of one."""
    import runpy

    Path(where).parent.mkdir(exist_ok=True)
    runpy.run_path("svc.py")["begin"](where)
    return SqliteJournal(where).runs()[0].run_id


def advised(outcome: Outcome) -> list[list[str]]:
    """The words of each command in what was printed, without `handrail`."""
    lines = re.findall(r"handrail ((?:resume|plan|answer) .*)", outcome.out + outcome.err)
    return [shlex.split(line.split("   (")[0]) for line in lines]


@pytest.mark.parametrize(
    ("where", "typed"),
    [
        ("d/runs.db", ("--dir", "d")),
        (".handrail/runs.db", ()),
        ("own/svc.db", ("--executor", "svc.py:make")),
        ("d/runs.db", ("--dir", "d", "--executor", "svc.py:make")),
    ],
)
def test_each_advised_command_works_for_a_services_run(
    cli: Cli, where: str, typed: tuple[str, ...]
) -> None:
    """What `show`, `answer` and `resume` print can be typed as it stands."""
    run = begin(where)

    shown = advised(cli("show", run, *typed))
    assert {words[0] for words in shown} == {"answer", "plan", "resume"}
    for words in sorted(shown):
        outcome = cli(*words)
        assert outcome.code == 0, (words, outcome)
    other = SqliteJournal(where).runs()[1].run_id
    stopped = cli(*advised(cli("show", other, *typed))[-1])
    assert stopped.code == 3
    assert [cli(*words).code for words in advised(stopped)] == [0, 0]


def test_a_folder_of_the_environment_is_in_the_advice(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command works in a shell that has not the variable."""
    monkeypatch.setenv("HANDRAIL_DIR", "elsewhere")
    stopped = cli("run", "svc.py:asks")
    monkeypatch.delenv("HANDRAIL_DIR")

    assert [cli(*words).code for words in advised(stopped)] == [0, 0]


@pytest.mark.parametrize("target", ["svc.py:asks", "svc.py", "svc.py:make"])
def test_resume_all_takes_the_typed_target(cli: Cli, target: str) -> None:
    """`--target` counts for each run, and the command asks for it no more."""
    begin("d/runs.db")

    outcome = cli("resume", "--all", "--dir", "d", "--target", target)

    assert outcome.code == 3
    assert "its workflow is not known" not in outcome.err
    assert outcome.err.count("resumed") == 2


def test_resume_all_leaves_runs_of_other_workflows_their_target(cli: Cli) -> None:
    """A run that this command began is resumed with its own workflow."""
    assert cli("run", "svc.py:other").code == 3

    outcome = cli("resume", "--all", "--target", "svc.py:asks")

    assert (outcome.code, "other suspended" in outcome.err) == (3, True)


def test_an_executors_journal_comes_before_the_environment(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a typed --dir replaces the journal of the executor of --executor, project or TARGET."""
    run = begin("own/svc.db")
    monkeypatch.setenv("HANDRAIL_DIR", str(folder / "elsewhere"))

    assert cli("show", run, "--executor", "svc.py:make").code == 0
    assert cli("run", "svc.py:make", "--run-id", "by-target").code == 3
    (folder / "pyproject.toml").write_text('[tool.handrail]\nexecutor = "svc.py:make"\n')
    assert cli("show", "by-target", "--executor", "svc.py:make").code == 0
    assert not (folder / "elsewhere").exists()
    assert cli("show", run, "--dir", "typed").code == 2


def test_a_run_that_another_process_began_meanwhile_continues(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loser of a race for an id continues the run, or says that it is being driven."""
    from handrail.cli import run as module

    assert cli("run", "svc.py:asks", "--run-id", "r").code == 3
    monkeypatch.setattr(module, "_find_run", lambda *_: None)  # as before the other's record

    assert cli("run", "svc.py:asks", "--run-id", "r", "--gates", "approve").code == 0
    assert cli("run", "svc.py:asks", "--run-id", "r").out == "yes\n"
    assert cli("run", "svc.py:asks", "--run-id", "r", "--new").code == 2


def member(number: int) -> object:
    """Two steps of a member."""
    yield from step("one").call(str, number)
    return (yield from step("two").call(str, number))


@workflow
def inner() -> object:
    """A child of one step."""
    return (yield from step("deep").call(str))


@workflow
def many() -> object:
    """Composites that end before a question."""
    yield from step("all").for_each([1, 2, 3], member, key=str)
    yield from step("kid").run_workflow(inner)
    return (yield from step("go?").ask("Go?", choices=["yes", "no"]))


def test_a_resume_counts_the_steps_below_composites_that_had_ended(tmp_path: Path) -> None:
    """The record's steps are as many as the first drive performed."""
    from handrail.record.live_view import LiveRun

    journal, told = SqliteJournal(tmp_path / "j.db"), MemorySink()
    executor = Executor(journal=journal, sinks=[told])
    first = executor.run_sync(many)
    performed = sum(isinstance(one, ev.StepCompleted) for one in told.events)
    seen: list[ev.Event | ev.Progress] = []

    class Sink:
        def emit(self, event: ev.Event | ev.Progress, /) -> None:
            seen.append(event)

    Executor(journal=journal, sinks=[Sink()], gates="approve").resume_sync(first.run_id, many)

    run = LiveRun(first.run_id)
    for event in seen:
        run.apply(event)
    assert run.replayed == performed == 9


def test_four_at_once_begin_one_run(folder: Path) -> None:
    """Each begins it, continues it, or says that it is being driven; none asks for another id."""
    from concurrent.futures import ThreadPoolExecutor

    def one(_: int) -> Outcome:
        return spawned("run", "svc.py:asks", "--run-id", "same", "--gates", "approve")

    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(one, range(4)))

    assert {one.code for one in outcomes} <= {0, 1}
    assert all("being driven" in one.err for one in outcomes if one.code == 1)


TWO = """

@workflow
def two():
    names = ["a", "b"]
    yield from step("each").for_each(names, lambda n: step("go?").ask("Go?", choices=["yes", "no"]))
"""


def test_code_of_elsewhere_is_reached_by_each_advised_command(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`run`, `show`, `answer` and a refusal name code outside of the project; of two questions
    the open one is named before the resume.
    """
    (folder / "elsewhere.py").write_text(f"{SERVICE}{TWO}", "utf-8")
    (folder / "repo").mkdir()
    monkeypatch.chdir(folder / "repo")
    target = "../elsewhere.py:two"
    resume = ["resume", "r", "--target", target]

    begun = cli("run", target, "--run-id", "r")
    first = advised(begun)
    assert (begun.code, first[-1]) == (3, resume)
    assert resume in advised(cli("show", "r"))
    refused = cli("resume", "r")
    assert (refused.code, advised(refused)) == (2, [resume])
    answered = cli(*first[0])
    assert advised(answered) == [first[1], resume]
    assert advised(cli(*first[1])) == [resume]
    assert cli(*resume).code == 0
