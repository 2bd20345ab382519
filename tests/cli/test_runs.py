"""``handrail runs`` and ``show RUN``: what the journal says, and how a run is named."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from tests.cli.conftest import Cli, killed, live, notes, spawned

pytestmark = pytest.mark.usefixtures("durable")


def test_runs_are_listed_newest_last(cli: Cli) -> None:
    """Each is a line with its id, workflow, status, times and number of events."""
    cli("run", "durable.py:asks", "--run-id", "a-1")
    cli("run", "durable.py:waits", "--run-id", "w-1")

    heading, first, second = cli("runs").out.splitlines()

    headings = ["RUN", "WORKFLOW", "STATUS", "STARTED", "UPDATED", "EVENTS", "WAITS", "FOR"]
    assert heading.split() == headings
    assert first.split()[:3] == ["a-1", "asks", "suspended"]
    assert second.split()[:3] == ["w-1", "waits", "suspended"]
    assert first.endswith("     6  an answer: Merge it?")
    assert second.endswith("     3  the signal approved")


def test_runs_are_chosen_by_status_and_workflow(cli: Cli) -> None:
    """The options are repeatable, and those of one kind are alternatives."""
    Path("go").touch()
    for name in ("dies", "asks", "waits"):
        cli("run", f"durable.py:{name}", "--run-id", name)

    def listed(*words: str) -> list[str]:
        return [run["run_id"] for run in cli("runs", "--json", *words).data]

    assert listed() == ["dies", "asks", "waits"]
    assert listed("--status", "suspended") == ["asks", "waits"]
    assert listed("--status", "suspended", "--workflow", "waits") == ["waits"]
    assert listed("--workflow", "waits", "--workflow", "dies") == ["dies", "waits"]
    assert listed("--status", "dead") == []


def test_a_run_as_json_has_all_there_is_to_know(cli: Cli) -> None:
    """Ids, times in unix seconds, where it was started from, and who drives it."""
    cli("run", "durable.py:asks", "--run-id", "a")

    (run,) = cli("runs", "--json").data

    assert run.pop("started_at") <= run.pop("updated_at")
    assert run == {
        "run_id": "a",
        "workflow": "asks",
        "status": "suspended",
        "events": 6,
        "target": "durable.py:asks",
        "labels": {"target": "durable.py:asks"},
        "holder": None,
        "damaged": None,
        "forked_from": None,
        "waits_for": [
            {
                "kind": "answer",
                "path": "merge?",
                "what": "Merge it?",
                "whom": "a person",
                "until": None,
            }
        ],
    }


def test_a_run_does_not_wait_for_what_was_sent_to_it(cli: Cli) -> None:
    """An answer or a signal is there, also before anybody resumes the run; the next one is not."""
    cli("run", "durable.py:asks", "--run-id", "a")
    cli("run", "durable.py:waits", "--run-id", "b")
    before = cli("runs", "--json").data
    assert [wait["kind"] for run in before for wait in run["waits_for"]] == ["answer", "signal"]
    cli("answer", "a", "merge?", "yes")
    cli("signal", "b", "other", "7")
    assert [len(run["waits_for"]) for run in cli("runs", "--json").data] == [0, 1]
    cli("signal", "b", "approved", "7")
    assert [len(run["waits_for"]) for run in cli("runs", "--json").data] == [0, 0]


def test_a_damaged_run_is_named_and_hides_no_other(cli: Cli) -> None:
    """Who asks for it is told that nothing in it is believed; the others go on."""
    for name in ("a", "b"):
        cli("run", "durable.py:waits", "--run-id", name)
    with sqlite3.connect(".handrail/runs.db") as journal:
        journal.execute("UPDATE events SET body = replace(body, '}', '!') WHERE run = 2")
    journal.close()

    outcome = cli("runs")
    assert [line.split()[2] for line in outcome.out.splitlines()[1:]] == ["suspended", "damaged"]
    assert "run b is damaged: event 3 is not as it was written" in outcome.err
    assert cli("runs", "--json", "--status", "damaged").data[0]["damaged"].startswith("event 3")
    assert cli("signal", "a", "approved", "7").code == 0
    assert cli("resume", "a", "--quiet").out == "7\n"
    for words in (["resume", "b"], ["show", "b"], ["run", "durable.py:waits", "--run-id", "b"]):
        outcome = cli(*words)
        assert outcome.code == 1
        assert "reading run b failed: run b: event 1 is not as it was written" in outcome.err


def test_what_precedes_the_damage_of_a_run_can_be_forked(cli: Cli) -> None:
    """The error says so, and that other runs are not affected."""
    cli("run", "durable.py:asks", "--run-id", "a")
    with sqlite3.connect(".handrail/runs.db") as journal:
        journal.execute("UPDATE events SET at = 1 WHERE seq = 5")
    journal.close()

    assert "other runs are not affected" in cli("resume", "a").err
    assert "`handrail fork RUN --at STEP` makes a run of what precedes" in cli("show", "a").err
    assert cli("fork", "a", "--at", "merge?", "--no-run", "--run-id", "b").out == "b\n"
    assert "before" in cli("show", "b").out


def test_no_run_is_begun_that_may_be_one_whose_entry_is_damaged(cli: Cli) -> None:
    """Not even its id is certain: what it did might be done again."""
    cli("run", "durable.py:waits", "--run-id", "a")
    with sqlite3.connect(".handrail/runs.db") as journal:
        journal.execute("UPDATE runs SET run_id = 'x'")
    journal.close()

    outcome = cli("run", "durable.py:waits", "--run-id", "a")
    assert outcome.code == 2
    assert "run 'a': was not found, but may be one whose entry is damaged: x." in outcome.err
    assert "run 'a': was not found, but may be one" in cli("resume", "a").err


@pytest.mark.parametrize("what", ["labels = '{}x'", "workflow = ''", "started_at = 0", "crc = 1"])
def test_a_damaged_entry_stops_no_run_of_another_id(cli: Cli, what: str) -> None:
    """Its first event was written under its id, so it cannot be that of another run."""
    cli("run", "durable.py:waits", "--run-id", "a")
    with sqlite3.connect(".handrail/runs.db") as journal:
        journal.execute(f"UPDATE runs SET {what}")
    journal.close()

    assert cli("run", "durable.py:waits", "--run-id", "b").code == 3
    assert cli("run", "durable.py:waits", "--run-id", "a").code == 1


def test_without_runs_there_is_an_empty_list(cli: Cli) -> None:
    """No journal is made to find that out."""
    assert cli("runs", "--json").data == []
    assert "no runs in " in cli("runs").err
    assert not Path(".handrail").exists()


@pytest.mark.parametrize("words", [("runs",), ("show", "w-1"), ("resume", "w-1")])
def test_where_there_are_no_runs_it_is_said_where_there_are_some(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """Also of a run that `show` is to show: its id could be a module's name."""
    cli("run", "durable.py:waits", "--run-id", "w-1")
    (folder / "below").mkdir()
    monkeypatch.chdir("below")

    assert f"There is one in {folder}: cd there, or name its folder" in cli(*words).err


def test_what_a_killed_process_left_is_told_and_undone(cli: Cli) -> None:
    """The run is dead, its last step was interrupted, and what to type is printed; nobody waits
    for it, and to cancel it undoes what it did, here, and begins nothing.
    """
    killed("run", "durable.py:dies", "--run-id", "d")

    assert cli("runs").out.splitlines()[1].split()[:3] == ["d", "dies", "dead"]
    lines = cli("show", "d").out.splitlines()
    assert lines[0] == "dies, run d: dead"
    assert "  inputs   first='a', second='b'" in lines
    assert any(line.startswith("  ✓ first  python  ") for line in lines)
    assert "  ⏸ second  python  interrupted" in lines
    assert lines[-1] == "to continue:            handrail resume d"

    assert "interrupted  second  python  was running" in cli("plan", "d").out
    steps = cli("plan", "d", "--json").data["steps"]
    assert [(step["path"], step["state"], step["interrupted"]) for step in steps] == [
        ("first", "recorded", False),
        ("second", "will run", True),
    ]

    followed = cli("tail", "d")
    assert (followed.code, followed.out.splitlines()[-1]) == (1, "▸ second  python")
    assert followed.err == (
        "handrail: its process ended without recording an end. To continue: handrail resume d\n"
    )

    assert cli("cancel", "d").code == 0
    assert notes() == ["a", "b", "undone"]
    assert cli("runs", "--json").data[0]["status"] == "cancelled"


def test_a_live_run_is_known_with_its_process(cli: Cli) -> None:
    """Who drives it stands in the list; its page and its plan say how to watch it, and nobody is
    told to resume it: that is refused. To cancel it waits no longer than said.
    """
    with live("run", "durable.py:holds", "--run-id", "h") as child:
        assert f"running (pid {child.pid})" in cli("runs").out
        assert cli("runs", "--json").data[0]["holder"]["pid"] == child.pid
        lines = cli("show", "h").out.splitlines()
        planned = cli("plan", "h").out
        resumed = cli("resume", "h")
        assert notes() == ["before"]
        cancelled = cli("cancel", "h", "--timeout", "0", "--json", "--quiet")

    assert lines[0] == f"holds, run h: running (pid {child.pid})"
    assert "  ▸ hold  command  running" in lines
    assert lines[-1] == "watch it:               handrail tail h"
    assert "  running      hold    command  is running\n" in planned
    assert "It is running now. To watch it: handrail tail h\n" in planned
    assert "resume" not in planned
    assert resumed.code == 1
    assert f"run h is being driven by process {child.pid} on " in resumed.err
    assert (cancelled.code, cancelled.data["status"], cancelled.err) == (1, "running", "")


def test_an_open_gate_is_shown_with_its_answer(cli: Cli) -> None:
    """The command can be typed as it stands; afterwards the answer is shown in its place."""
    cli("run", "durable.py:asks", "--run-id", "a")

    shown = cli("show", "a").out
    assert "waits for an answer: Merge it?\n  handrail answer a 'merge?' yes   (or no)\n" in shown
    cli("answer", "a", "merge?", "yes", "--by", "eve")
    shown = cli("show", "a").out
    assert "merge?: answered yes by eve\n" in shown
    assert "waits for" not in shown


def test_an_awaited_signal_is_shown_until_it_has_come(cli: Cli) -> None:
    """The command that sends it is printed; afterwards what has come."""
    cli("run", "durable.py:waits", "--run-id", "w")

    assert (
        "waits for the signal approved\n  handrail signal w approved PAYLOAD\n"
        in cli("show", "w").out
    )
    cli("signal", "w", "approved", "1", "--by", "eve")
    shown = cli("show", "w").out
    assert "signal approved 1 from eve\n" in shown
    assert "waits for" not in shown


def test_a_run_shown_as_json_has_its_steps(cli: Cli) -> None:
    """Steps in order with status, attempts, duration and output; gates, and letters not read."""
    cli("run", "durable.py:asks", "--run-id", "a")

    data = cli("show", "a", "--json").data

    assert [(step["path"], step["status"]) for step in data["steps"]] == [
        ("before", "succeeded"),
        ("merge?", "waiting"),
    ]
    assert data["steps"][0]["output"] == "before"
    assert [gate["path"] for gate in data["waiting"]] == ["merge?"]
    assert (data["status"], data["inputs"], data["unread"]) == ("suspended", {}, [])


CLASSES = """\
from dataclasses import dataclass
from enum import Enum
from handrail import step, workflow


class Color(Enum):
    RED = 1


@dataclass(frozen=True)
class Box:
    color: Color


@workflow
def packs(color: Color = Color.RED):
    box = yield from step("pack").call(Box, color)
    color = yield from step("which").ask("Which?", choices=list(Color))
    return box, color
"""


def test_values_of_classes_that_are_not_imported_are_shown(cli: Cli) -> None:
    """A run is shown without its code; to resume it, and to answer with a class, it is loaded."""
    Path("classes.py").write_text(CLASSES, "utf-8")
    cli("run", "classes.py", "--run-id", "c")

    assert "RED" in str(cli("show", "c", "--json").data["steps"][0]["output"])
    assert cli("answer", "c", "which", "Color.RED").code == 0
    outcome = cli("resume", "c", "--quiet")
    assert outcome.out == "(Box(color=<Color.RED: 1>), <Color.RED: 1>)\n"


def test_the_beginning_of_an_id_will_do(cli: Cli) -> None:
    """If it is the beginning of one id; the last part of an id has a beginning too."""
    cli("run", "durable.py:asks", "--run-id", "asks-1a2b")
    cli("run", "durable.py:asks", "--run-id", "asks-3c4d")

    assert cli("show", "asks-1").out.startswith("asks, run asks-1a2b: ")
    assert cli("show", "3c").out.startswith("asks, run asks-3c4d: ")
    ambiguous = cli("show", "asks")
    assert ambiguous.code == 2
    assert "may be any of 2: asks-1a2b, asks-3c4d." in ambiguous.err
    unknown = cli("resume", "aks-1a2b")
    assert unknown.code == 2
    assert "run 'aks-1a2b': does not exist. Did you mean asks-1a2b" in unknown.err


def test_show_still_shows_workflows(cli: Cli) -> None:
    """A TARGET is one though a run's id begins so, and a module where no run's does."""
    cli("run", "durable.py:asks", "--run-id", "durable.py-1")
    Path("module_of_one.py").write_text(CLASSES, "utf-8")

    assert cli("show", "durable.py:asks").out.startswith("asks: ")
    assert cli("show", "module_of_one").out.startswith("packs: ")
    assert cli("show", "durable.py-1").out.startswith("asks, run durable.py-1: ")


@pytest.mark.parametrize("words", [("runs",), ("show", "d"), ("report", "d")])
def test_what_is_logged_while_a_run_is_read_is_no_part_of_what_is_printed(
    words: tuple[str, ...],
) -> None:
    """That the end of a journal was cut off stands on stderr."""
    killed("run", "durable.py:dies", "--run-id", "d")
    with Path(".handrail/runs.db-wal").open("ab") as log:
        log.write(b"garbage" * 900)

    said = spawned(*words)

    assert "journal cut" not in said.out
    assert "journal cut" in said.err
