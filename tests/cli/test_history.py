"""``fork``, ``diff``, ``export``, ``import``, ``replay``, ``verify`` and ``prune``."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import pytest

from tests.cli.conftest import Cli

FLOW = """
from handrail import Steps, step, workflow

def shout(text: str) -> str:
    return text.upper()

def size(text: str) -> int:
    return len(text)

@workflow
def flow(text: str = "abc", *, times: int = 1) -> Steps[str]:
    loud = yield from step("loud").call(shout, text)
    count = yield from step("count").call(size, loud)
    return (yield from step("end").call(shout, f"{loud} {count * times}"))
"""


@pytest.fixture(autouse=True)
def _run(cli: Cli, folder: Path) -> None:
    (folder / "flow.py").write_text(FLOW)
    assert cli("run", "flow.py", "--run-id", "first", "--quiet").out == "ABC 3\n"


def test_a_fork_is_made_and_driven(cli: Cli) -> None:
    """With another output, another input, from a place; or only made. The first run stays."""
    told = cli("fork", "first", "--set", "loud=hello", "--run-id", "a", "--quiet")
    assert (told.code, told.out) == (0, "HELLO 5\n")
    assert re.search(r"loud  python .*given by a person", cli("show", "a").out)
    assert cli("fork", "first", "--input", "times=2", "--quiet").out == "ABC 6\n"
    assert cli("fork", "first", "--at", "count", "--run-id", "b", "--no-run").out == "b\n"
    assert "fork of  first at count" in cli("show", "b").out
    assert cli("runs", "--json").data[-1]["forked_from"] == ["first", "count"]
    planned = cli("plan", "b", "--json").data
    assert [one["path"] for one in planned["steps"] if one["state"] == "recorded"] == ["loud"]
    assert cli("fork", "first", "--no-run", "--run-id", "c", "--json").data == {
        "run_id": "c",
        "forked_from": ["first", None],
    }
    assert cli("resume", "first", "--quiet").out == "ABC 3\n"


def test_the_plan_of_a_fork_says_that_changed_steps_run_again(cli: Cli, folder: Path) -> None:
    """It leaves nobody to choose what the fork does by itself, and does that."""
    cli("fork", "first", "--run-id", "f", "--no-run")
    (folder / "flow.py").write_text(FLOW.replace("call(size, loud)", "call(size, loud * 2)"))
    planned = cli("plan", "f").out
    assert "In a fork they run again, with what followed them:" in planned
    assert "keep the record:        handrail resume f --reuse count\n" in planned
    assert "run again:              handrail resume f\n" in planned
    assert "Choose what to do" not in planned
    assert cli("resume", "f", "--quiet").out == "ABC 6\n"


WRONG = [
    (("--at", "lou"), "no recorded step 'lou'. Did you mean"),
    (("--set", "count=many"), "got 'many', expected int"),
    (("--set", "count"), "is not PATH=VALUE"),
    (("--input", "time=2"), "time"),
    (("--run-id", "first"), "run 'first' already exists"),
    (("--rerun", "nix"), "no recorded step 'nix'"),
]


@pytest.mark.parametrize(("words", "text"), WRONG)
def test_what_cannot_be_forked_is_refused(cli: Cli, words: tuple[str, ...], text: str) -> None:
    """With exit code 2, and nothing is made."""
    told = cli("fork", "first", *words)
    assert told.code == 2
    assert text in told.err
    assert [run["run_id"] for run in cli("runs", "--json").data] == ["first"]


def test_a_diff_is_a_table_or_json(cli: Cli) -> None:
    """Its exit code says whether anything differs."""
    cli("fork", "first", "--set", "loud=hello", "--run-id", "second", "--quiet")
    told = cli("diff", "first", "second")
    lines = told.out.splitlines()
    assert (told.code, lines[:2]) == (1, ["- first", "+ second"])
    assert [line[:7].rstrip() for line in lines if line.startswith("~")] == [
        "~ loud",
        "~ count",
        "~ end",
    ]
    assert "      -ABC" in lines
    assert "      +hello" in lines
    assert lines[-2:] == ["the runs differ in value", "3 of 3 steps differ"]
    assert cli("diff", "first", "second", "--json").data["fields"] == ["value"]
    same = cli("diff", "first", "first", "--all")
    assert (same.code, same.out.splitlines()[-1]) == (0, "0 of 3 steps differ")
    assert len(same.out.splitlines()) == 6


def test_a_run_goes_into_a_file_and_out_of_it(cli: Cli, folder: Path) -> None:
    """And today's code is checked against it; a file that was cut is refused."""
    assert cli("export", "first").code == 0
    assert cli("export", "first", "-o", "no/where.jsonl").code == 2
    assert cli("import", "first.jsonl").code == 2
    assert cli("import", "first.jsonl", "--run-id", "copy").out == "copy\n"
    assert cli("resume", "copy", "--quiet", "--target", "flow.py").out == "ABC 3\n"
    assert cli("replay", "first.jsonl", "flow.py").code == 0
    (folder / "flow.py").write_text(FLOW.replace('"end"', '"finish"'))
    told = cli("replay", "first.jsonl", "flow.py")
    assert told.code == 1
    assert "step 'finish' (" in told.out
    assert "flow.py:14): the record has no such step; the code has python" in told.out
    text = Path("first.jsonl").read_text()
    Path("first.jsonl").write_text(text[: len(text) // 2])
    told = cli("import", "first.jsonl", "--run-id", "cut")
    assert told.code == 2
    assert "first.jsonl, line " in told.err


def test_a_journal_of_several_runs_asks_for_one_of_them(cli: Cli, durable: Path) -> None:
    """By the name of the option."""
    for run_id in ("a", "b"):
        cli("run", "durable.py:asks", "--run-id", run_id)
    refused = cli("replay", ".handrail/runs.db", "durable.py:asks")
    assert refused.code == 2
    assert "--run-id on the command line: it has first, a, b" in refused.err
    assert cli("replay", ".handrail/runs.db", "durable.py:asks", "--run-id", "b").code == 0


def test_a_journal_is_verified(cli: Cli, folder: Path) -> None:
    """What is wrong with it is printed, by run and number."""
    assert cli("verify").code == 0
    with sqlite3.connect(folder / ".handrail" / "runs.db") as journal:
        journal.execute("UPDATE events SET body = '{}' WHERE seq = 3")
    journal.close()
    told = cli("verify")
    assert (told.code, told.out) == (1, "run first: event 3 is not as it was written\n")
    assert cli("verify", "first", "--json").data == [
        {"run_id": "first", "number": 3, "what": "event 3 is not as it was written"}
    ]


def test_runs_that_are_over_are_removed(cli: Cli, folder: Path) -> None:
    """With their artifacts, if that is asked for; what was won is told."""
    for name in ("b", "c"):
        cli("run", "flow.py", "--run-id", name, "--quiet")
    artifacts = folder / ".handrail" / "runs"
    assert len(list(artifacts.iterdir())) == 3
    assert "Add --older-than, --keep-last or --status" in cli("prune").err
    assert cli("prune").code == 2
    assert cli("prune", "--older-than", "soon").code == 2
    assert cli("prune", "--keep-last", "-1").code == 2
    assert "is not a duration. Write 12h, 30d or 2w" in cli("prune", "--older-than", "30").err
    assert cli("prune", "--older-than", "1d").err == "handrail: 0 runs, 0 events, 0 bytes: gone\n"
    told = cli("prune", "--keep-last", "1", "--dry-run")
    assert told.out == "first\nb\n"
    assert "2 runs, 16 events" in told.err
    assert len(cli("runs", "--json").data) == 3
    told = cli("prune", "--keep-last", "1", "--artifacts")
    assert "2 runs, 16 events" in told.err
    assert [run["run_id"] for run in cli("runs", "--json").data] == ["c"]
    assert [one.name for one in artifacts.iterdir()] == ["flow-c"]


HOSTILE = """
from handrail import StepFailed, Steps, step, workflow

def bad() -> None:
    raise ValueError("a | pipe, ```a fence``` and <b>markup</b>\\nsecond line \\ud800")

@workflow
def odd(text: str = "<script>`x`</script>") -> Steps[str]:
    yield from step("saved").call(bad).default(None)
    try:
        yield from step("lost").call(bad)
    except StepFailed:
        pass
    yield from step("sure?").ask("Well?")
    return text
"""


def test_a_report_is_markdown_in_which_nothing_is_markup(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What steps say stands in code; on stdout, in a file, or in the summary of a job."""
    (folder / "odd.py").write_text(HOSTILE)
    cli("run", "odd.py", "--run-id", "o", "--quiet")
    text = cli("report", "o").out
    assert text.startswith("## \u23f8\ufe0f `odd` suspended\n")
    assert "| input `text` | ``<script>`x`</script>`` |" in text
    assert "- `an answer to 'sure?'`" in text
    assert "| `lost` | \u274c failed |" in text
    assert "````text\na | pipe, ```a fence``` and <b>markup</b>\nsecond line \\ud800\n````" in text
    code = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL)
    assert not re.search("<(?!/?details>|/?summary>)", code.sub("", text))
    cli("answer", "o", "sure?", "yes")
    cli("resume", "o", "--quiet")
    assert cli("report", "o", "-o", "o.md").code == 0
    assert "### Value" in (folder / "o.md").read_text()
    assert cli("report", "o", "--github").code == 2
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    for _ in range(2):
        assert cli("report", "first", "--github").out == ""
    assert (folder / "summary.md").read_text().count("`flow` succeeded") == 2
