"""``handrail resume``, and ``run --run-id`` of a run that is there: what is recorded stays done."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.conftest import Cli, killed, notes

pytestmark = pytest.mark.usefixtures("durable")


@pytest.mark.parametrize("words", [["resume", "d"], ["run", "durable.py:dies", "--run-id", "d"]])
def test_a_killed_run_goes_on_after_what_it_recorded(cli: Cli, words: list[str]) -> None:
    """The step that had ended is not run again, the one that was at work is; no input is needed."""
    killed("run", "durable.py:dies", "--run-id", "d", "--input", "first=x")
    Path("go").touch()

    outcome = cli(*words)

    assert (outcome.code, outcome.out.splitlines()[-1]) == (0, "xb")
    assert "▸ run d  resumed\n" in outcome.err
    assert outcome.err.startswith("handrail: run d of durable.py:dies\n") == (words[0] == "resume")
    assert notes() == ["x", "b", "b"]


def test_a_resumed_run_gives_its_result_as_json(cli: Cli) -> None:
    """`--json` prints the whole result, and the progress goes to stderr."""
    cli("run", "durable.py:asks", "--run-id", "a")
    cli("answer", "a", "merge?", "no")

    data = cli("resume", "a", "--json").data

    assert (data["run_id"], data["status"], data["value"]) == ("a", "succeeded", "merged: no")
    assert [step["replayed"] for step in data["step_results"]] == [True, False, False]


def test_of_a_run_that_succeeded_the_recorded_result_is_printed(cli: Cli) -> None:
    """Neither `run --run-id` nor `resume` runs anything."""
    Path("go").touch()
    first = cli("run", "durable.py:dies", "--run-id", "d", "--quiet")

    for words in (["run", "durable.py:dies", "--run-id", "d"], ["resume", "--latest"]):
        again = cli(*words)
        assert (again.code, again.out) == (0, first.out)
        assert "run d has already succeeded; this is its recorded result" in again.err
    assert notes() == ["a", "b"]


def test_other_inputs_than_the_recorded_are_refused(cli: Cli) -> None:
    """The input is named with both values; the same value is no other one."""
    Path("go").touch()
    words = ["run", "durable.py:dies", "--run-id", "d", "--quiet", "--input"]
    cli(*words, "first=x")

    assert cli(*words, "first=x").code == 0
    outcome = cli(*words, "first=y")
    assert (outcome.code, outcome.out) == (2, "")
    assert "run d: it was started with first='x', not 'y'" in outcome.err


def test_an_id_of_another_workflow_is_refused(cli: Cli) -> None:
    """A run goes on only with the workflow that it began with."""
    cli("run", "durable.py:asks", "--run-id", "a")

    outcome = cli("run", "durable.py:dies", "--run-id", "a")

    assert outcome.code == 2
    assert "run a: is a run of workflow 'asks', not of 'dies'" in outcome.err


def test_a_new_run_cannot_have_the_id_of_another(cli: Cli) -> None:
    """`--new` starts a run of that id, and is refused where there is one."""
    words = ["run", "durable.py:asks", "--run-id", "a", "--new"]

    assert cli(*words).code == 3
    outcome = cli(*words)
    assert outcome.code == 2
    assert "run 'a' already exists" in outcome.err
    assert notes() == ["before"]


def test_a_cancelled_run_goes_on_only_if_one_says_so(cli: Cli) -> None:
    """`run --run-id` refuses and names the command that does it."""
    cli("run", "durable.py:asks", "--run-id", "a")
    cli("cancel", "a")

    outcome = cli("run", "durable.py:asks", "--run-id", "a")
    assert outcome.code == 2
    assert "was cancelled. To continue: handrail resume a." in outcome.err
    assert cli("resume", "a").code == 3


@pytest.mark.parametrize("run_id", ["", " a", "a\nb"])
def test_an_id_that_nobody_can_type_is_refused(cli: Cli, run_id: str) -> None:
    """Nothing is run, and no journal is made."""
    assert cli("run", "durable.py:asks", "--run-id", run_id).code == 2
    assert not Path(".handrail").exists()


def test_a_changed_step_is_told_with_what_to_type(cli: Cli, durable: Path) -> None:
    """Nothing runs; what was and what is are told, and both commands that go on."""
    cli("run", "durable.py:asks", "--run-id", "a")
    durable.write_text(durable.read_text().replace('note, "before"', 'note, "earlier"'))

    outcome = cli("resume", "a")

    assert outcome.code == 2
    assert outcome.err.splitlines() == [
        "handrail: run a of durable.py:asks",
        "handrail: run a: the code no longer matches the record; nothing was run",
        "  step 'before'",
        '    was  python durable:note ["before"]',
        '    now  python durable:note ["earlier"]',
        "keep the record:        handrail resume a --reuse before",
        "run again:              handrail resume a --rerun before",
    ]
    assert notes() == ["before"]


@pytest.mark.parametrize(("option", "done"), [("--reuse", []), ("--rerun", ["earlier"])])
def test_a_changed_step_is_kept_or_runs_again(
    cli: Cli, durable: Path, option: str, done: list[str]
) -> None:
    """`--reuse` keeps the record, `--rerun` performs what the code says now."""
    cli("run", "durable.py:asks", "--run-id", "a")
    durable.write_text(durable.read_text().replace('note, "before"', 'note, "earlier"'))
    cli("answer", "a", "merge?", "yes")

    assert cli("resume", "a", option, "before").code == 0
    assert notes() == ["before", *done, "merged: yes"]


def test_all_that_wait_are_resumed_whatever_has_changed(cli: Cli, durable: Path) -> None:
    """One after the other; without a choice nothing that changed is run, and each is told."""
    for name in ("a", "b"):
        cli("run", "durable.py:asks", "--run-id", name)
    durable.write_text(durable.read_text().replace('note, "before"', 'note, "earlier"'))

    refused = cli("resume", "--all")
    assert refused.code == 2
    assert refused.err.count("the code no longer matches the record") == 2
    assert cli("plan", "a", "--reuse-changed").out.split().count("recorded") == 1
    assert cli("resume", "--all", "--reuse-changed", "--gates", "approve").code == 0
    assert notes() == ["before", "before", "merged: yes", "merged: yes"]
    assert cli("resume", "--all").err == "handrail: no run is suspended or dead\n"
    assert cli("resume", "a", "--all").code == 2
    assert cli("resume", "a", "--reuse-changed", "--rerun-changed").code == 2


def test_a_body_that_is_not_deterministic_is_told_as_that(cli: Cli, durable: Path) -> None:
    """Its file is older than the run, and yet a step is another one: at which line is said."""
    text = durable.read_text().replace('note, "before"', "note, os.urandom(4).hex()")
    durable.write_text(text)
    os.utime(durable, (1, 1))
    assert cli("run", "durable.py:asks", "--run-id", "a").code == 3
    outcome = cli("resume", "a")
    line = next(n for n, one in enumerate(text.splitlines(), 1) if "os.urandom(4)" in one)
    assert outcome.code == 2
    assert f"durable.py:{line}: this file has not changed since the run began." in outcome.err
    assert "is not deterministic" in outcome.err


def test_what_changed_runs_again_where_that_is_chosen(cli: Cli, durable: Path) -> None:
    """No step needs to be named."""
    cli("run", "durable.py:asks", "--run-id", "a")
    durable.write_text(durable.read_text().replace('note, "before"', 'note, "earlier"'))
    assert cli("resume", "a", "--rerun-changed", "--gates", "approve").code == 0
    assert notes() == ["before", "earlier", "merged: yes"]


def test_a_run_goes_on_from_a_step(cli: Cli) -> None:
    """That step, and all that began after it, runs again; a plan says so first."""
    cli("run", "durable.py:asks", "--run-id", "a", "--gates", "approve")
    assert cli("plan", "a", "--rerun-from", "after").out.split().count("recorded") == 2
    assert cli("resume", "a", "--rerun-from", "after").code == 0
    assert notes() == ["before", "merged: yes", "merged: yes"]
    assert cli("resume", "a", "--rerun-from", "before", "--gates", "approve").code == 0
    assert notes()[3:] == ["before", "merged: yes"]
    outcome = cli("resume", "a", "--rerun-from", "aftr")
    assert (outcome.code, "Did you mean 'after'?" in outcome.err) == (2, True)


def test_a_path_that_is_not_recorded_is_refused(cli: Cli) -> None:
    """The path that was probably meant is named."""
    cli("run", "durable.py:asks", "--run-id", "a")

    outcome = cli("resume", "a", "--rerun", "beforehand")

    assert outcome.code == 2
    assert "no recorded step 'beforehand'. Did you mean 'before'?" in outcome.err


def test_a_failed_run_says_how_to_go_on(cli: Cli) -> None:
    """The step that failed runs again, and what had succeeded does not."""
    failing = Path("failing.py")
    failing.write_text(
        "from durable import note\n"
        "from handrail import step, workflow\n\n"
        "@workflow\n"
        "def fails():\n"
        '    yield from step("first").call(note, "first")\n'
        '    yield from step("look").command("test -e go")\n'
    )

    outcome = cli("run", "failing.py", "--run-id", "f")
    assert outcome.code == 1
    assert "to continue from the last recorded step: handrail resume f" in outcome.err
    Path("go").touch()
    assert cli("resume", "f").code == 0
    assert notes() == ["first"]


def test_a_run_goes_on_in_the_folder_it_was_started_in(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Resumed from elsewhere it finds its code and its files; `--dir` is in what is to be typed."""
    cli("run", "durable.py:asks", "--run-id", "a")
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)

    told = cli("show", "a", "--dir", "../.handrail").out
    cli("answer", "a", "merge?", "yes", "--dir", "../.handrail")
    outcome = cli("resume", "a", "--dir", "../.handrail")

    assert "handrail resume a --dir ../.handrail\n" in told
    assert outcome.code == 0
    assert f"handrail: in {folder}\n" in outcome.err
    assert notes() == ["before", "merged: yes"]


def test_a_workflow_that_moved_can_be_named(cli: Cli, durable: Path) -> None:
    """Without `--target` the missing file is named; with it the run goes on."""
    cli("run", "durable.py:waits", "--run-id", "w")
    cli("signal", "w", "approved", "7")
    durable.rename("moved.py")

    outcome = cli("resume", "w")
    assert outcome.code == 2
    assert "durable.py: there is no such file" in outcome.err
    assert "If it is elsewhere now: --target file.py:name." in outcome.err
    assert cli("resume", "w", "--target", "moved.py:waits", "--quiet").out == "7\n"


@pytest.mark.parametrize("words", [[], ["d", "--latest"]])
def test_which_run_is_said_in_one_way(cli: Cli, words: list[str]) -> None:
    """An id, or `--latest`: neither and both are refused."""
    cli("run", "durable.py:asks")

    outcome = cli("resume", *words)

    assert outcome.code == 2
    assert "needs either a run's id or --latest" in outcome.err


def test_recorded_steps_that_the_code_no_longer_has_are_named(cli: Cli, durable: Path) -> None:
    """At the end of the resume, and whenever the finished run is looked at again."""
    cli("run", "durable.py:asks", "--run-id", "a")
    cli("answer", "a", "merge?", "yes")
    durable.write_text(durable.read_text().replace('step("before")', 'step("earlier")'))
    line = "recorded steps that are no longer in the code: before"

    assert f"handrail: {line}\n" in cli("resume", "a").err
    assert f"handrail: {line}\n" in cli("resume", "a", "--quiet").err
    assert f"\n{line}\n" in cli("show", "a").out
    assert cli("show", "a", "--json").data["orphaned"] == ["before"]
    assert cli("resume", "a", "--json").data["orphaned"] == ["before"]


SECRET = """\
from handrail import step, workflow


@workflow
def login(token):
    yield from step("go?").ask("Go?", choices=["yes", "no"])
    return (yield from step("use").call(len, token))
"""


def test_a_secret_that_is_not_set_is_named_before_anything_runs(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what stands in its place and what to do; nothing is said where it is set."""
    Path("login.py").write_text(SECRET)
    for name in ("s", "t"):
        monkeypatch.setenv("SHOP_TOKEN", "hunter-two-three")
        cli("run", "login.py", "--input", "token=hunter-two-three", "--run-id", name, "--quiet")
        cli("answer", name, "go?", "yes")
    there = cli("resume", "s", "--quiet")
    monkeypatch.delenv("SHOP_TOKEN")
    gone = cli("resume", "t", "--quiet")

    assert (there.code, there.out) == (0, f"{len('hunter-two-three')}\n")
    assert "SHOP_TOKEN" not in there.err
    assert (gone.code, gone.out) == (0, f"{len('${SHOP_TOKEN}')}\n")
    assert gone.err.splitlines()[1] == (
        "handrail: SHOP_TOKEN is not set here (or shorter than 6 characters), so steps and agents "
        "of run t get the text ${SHOP_TOKEN} in place of the recorded value. If they need the "
        "value: stop this with Ctrl-C, set SHOP_TOKEN, and resume again"
    )
