"""``handrail answer`` and ``signal``: to runs that are alive, suspended and dead."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from handrail.cli.answer import payload_of
from handrail.cli.who import current_user
from tests.cli.conftest import Cli, live, notes

pytestmark = pytest.mark.usefixtures("durable")


def test_a_live_run_is_answered_from_another_process(cli: Cli) -> None:
    """It goes on with the answer, and nobody is told to resume it."""
    words = ["run", "durable.py:asks_while_it_works", "--run-id", "w"]
    with live(*words, "--quiet") as child:
        outcome = cli("answer", "w", "both/merge?", "no")
        Path("go").touch()
        out, err = child.communicate(timeout=30)

    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == f"answered 'both/merge?' with 'no', by {current_user()}\n"
    assert (child.returncode, out, err) == (0, "no\n", "")


def test_a_suspended_run_goes_on_from_its_answer(cli: Cli) -> None:
    """Nobody drives it, so the command that resumes it is printed."""
    cli("run", "durable.py:asks", "--run-id", "a")

    outcome = cli("answer", "a", "merge?", "yes", "--by", "eve", "--json")

    assert outcome.code == 0
    assert outcome.data == {
        "run_id": "a",
        "gate": "merge?",
        "accepted": True,
        "answer": "yes",
        "by": "eve",
    }
    assert outcome.err == "handrail: no process is running it; to continue: handrail resume a\n"
    assert cli("resume", "a", "--quiet").out == "merged: yes\n"
    assert notes() == ["before", "merged: yes"]


def test_a_second_answer_is_told_who_was_first(cli: Cli) -> None:
    """Exit code 1 with the answer that counts and whose it is, before a resume and after it."""
    cli("run", "durable.py:asks", "--run-id", "a")
    cli("answer", "a", "merge?", "yes", "--by", "eve")

    late = cli("answer", "a", "merge?", "no", "--by", "bob")
    assert (late.code, late.out) == (1, "")
    assert late.err == ("handrail: gate 'merge?' is closed: it was answered by eve with 'yes'\n")
    cli("resume", "a")
    data = cli("answer", "a", "merge?", "no", "--json").data
    assert (data["accepted"], data["answer"], data["by"]) == (False, "yes", "eve")


def test_of_many_who_answer_at_once_one_wins(cli: Cli) -> None:
    """The others are all told the same answer, and that is the one the run goes on with."""
    cli("run", "durable.py:asks", "--run-id", "a")
    command = [sys.executable, "-m", "handrail.cli", "answer", "a", "merge?"]
    people = [
        subprocess.Popen(
            [*command, "yes" if number % 2 else "no", "--by", f"p{number}", "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="utf-8",
        )
        for number in range(3)
    ]
    said = [json.loads(person.communicate(timeout=60)[0]) for person in people]

    assert sorted(person.returncode for person in people) == [0, 1, 1]
    assert len({(one["answer"], one["by"]) for one in said}) == 1
    assert cli("resume", "a", "--quiet").out == f"merged: {said[0]['answer']}\n"


@pytest.mark.parametrize(
    ("gate", "text", "said"),
    [
        ("merge?", "maybe", "'maybe' is not a valid answer, expected one of: yes, no"),
        ("merge", "yes", "run a has no gate 'merge'. Open: merge?."),
    ],
)
def test_what_is_no_answer_leaves_the_gate_open(cli: Cli, gate: str, text: str, said: str) -> None:
    """Exit code 2 and what would do; a right answer is taken afterwards."""
    cli("run", "durable.py:asks", "--run-id", "a")

    outcome = cli("answer", "a", gate, text)

    assert outcome.code == 2
    assert said in outcome.err
    assert cli("answer", "a", "merge?", "no").code == 0


def test_a_signal_is_kept_until_a_step_takes_it(cli: Cli) -> None:
    """Sent to a suspended run, it is taken when that goes on."""
    cli("run", "durable.py:waits", "--run-id", "w")

    outcome = cli("signal", "w", "approved", "-3", "--by", "eve", "--json")

    assert outcome.code == 0
    assert outcome.data == {"run_id": "w", "signal": "approved", "payload": -3, "by": "eve"}
    assert "to continue: handrail resume w" in outcome.err
    assert cli("resume", "w", "--quiet").out == "-3\n"


def test_a_signal_that_no_step_waits_for_is_kept_and_said(cli: Cli) -> None:
    """It may be early or misspelt: exit code 0, and on stderr what the run waits for now."""
    cli("run", "durable.py:waits", "--run-id", "w")
    cli("run", "durable.py:asks", "--run-id", "a")
    for run_id, said in (
        ("w", " Did you mean 'approved'? It waits for: 'approved'."),
        ("a", ""),
    ):
        outcome = cli("signal", run_id, "approve", "--by", "eve")
        assert (outcome.code, outcome.out) == (0, "sent the signal 'approve', by eve\n")
        first = outcome.err.splitlines()[0]
        assert first == f"handrail: no step waits for 'approve' now; it is kept for one.{said}"
    assert "no step waits" not in cli("signal", "w", "approved").err


def test_a_fork_may_yet_wait_for_a_signal(cli: Cli) -> None:
    """Before its first drive, a fork whose step is to run again has no wait on record."""
    cli("run", "durable.py:waits", "--run-id", "w")
    cli("signal", "w", "approved", "1")
    assert cli("resume", "w").code == 0
    assert cli("fork", "w", "--rerun", "wait", "--run-id", "f", "--no-run").code == 0
    outcome = cli("signal", "f", "approved", "2", "--by", "eve")
    assert outcome.out == "sent the signal 'approved', by eve\n"
    assert "no step waits" not in outcome.err


def test_a_step_is_skipped_with_an_output(cli: Cli) -> None:
    """`skip --value` ends a step that allows no skipping, as `complete` does."""
    cli("run", "durable.py:asks", "--run-id", "a")
    assert "`handrail complete` ends it" in cli("skip", "a", "merge?").err
    done = cli("skip", "a", "merge?", "--value", "yes", "--by", "eve")
    assert (done.code, done.out) == (0, "'merge?' is completed, by eve\n")
    assert cli("resume", "a").out == "merged: yes\n"


def test_what_no_process_drives_is_not_stopped(cli: Cli) -> None:
    """It is told how the run stands; and what a run that is over can be given instead."""
    cli("run", "durable.py:asks", "--run-id", "a")
    assert cli("stop", "a").out.startswith(
        "run a is suspended; no process is running it. To continue:"
    )
    assert cli("stop", "a", "--json").data["stopped"] == []
    cli("cancel", "a")
    for words in (("complete", "a", "after", "x"), ("skip", "a", "after"), ("pause", "a")):
        refused = cli(*words)
        assert refused.code == 2
        assert "was cancelled" in refused.err
        assert "`handrail resume` continues it" in refused.err


def test_an_output_for_a_step_that_has_not_begun_is_not_said_to_be_taken(cli: Cli) -> None:
    """What does not fit is found out only when the step begins: then it counts for nothing."""
    cli("run", "durable.py:asks", "--run-id", "a")

    early, due = cli("complete", "a", "after", "x"), cli("complete", "a", "merge?", "yes")

    assert early.out.startswith("'after' is completed when it begins, by ")
    assert "what its code does not accept then counts for nothing, and it runs" in early.err
    assert due.out.startswith("'merge?' is completed, by ")
    assert "accept" not in due.err


def test_a_run_that_has_succeeded_takes_no_signal(cli: Cli) -> None:
    """It is refused, rather than kept for nobody."""
    Path("go").touch()
    cli("run", "durable.py:dies", "--run-id", "d")

    outcome = cli("signal", "d", "approved")

    assert outcome.code == 2
    assert "run d: has succeeded and takes no more signals" in outcome.err


@pytest.mark.parametrize(
    ("text", "payload"),
    [(None, None), ("5", 5), ('{"a": [true]}', {"a": [True]}), ("yes", "yes"), ('"5"', "5")],
)
def test_a_payload_is_json_or_else_text(text: str | None, payload: object) -> None:
    """What does not parse as JSON is taken as it was typed."""
    assert payload_of(text) == payload


def test_a_payload_that_does_not_fit_is_refused_and_the_run_waits_on(cli: Cli) -> None:
    """Exit code 2 and what would do; nothing is stored, and a right payload is taken afterwards."""
    cli("run", "durable.py:waits", "--run-id", "w")

    outcome = cli("signal", "w", "approved", '{"a": "x"}')

    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == (
        "handrail: signal 'approved': {'a': 'x'} is not what the run waits for, expected int. "
        "It was not sent.\n"
    )
    assert "unread" not in cli("show", "w").out
    assert cli("signal", "w", "approved", "7").code == 0
    assert cli("resume", "w", "--quiet").out == "7\n"


ORDERS = """\
from dataclasses import dataclass

from handrail import step, workflow


@dataclass
class Paid:
    amount: int


@workflow
def order():
    paid = yield from step("w").wait_for("paid", Paid)
    return paid.amount
"""


def test_a_payload_for_a_class_of_the_workflow_is_refused_if_the_code_is_there(cli: Cli) -> None:
    """Its code is loaded to know what it waits for; where that has gone, any payload is sent."""
    file = Path("orders.py")
    file.write_text(ORDERS)
    for name in ("o", "p"):
        cli("run", "orders.py", "--run-id", name)

    refused = cli("signal", "o", "paid", '{"amount": "much"}')
    assert (refused.code, refused.out) == (2, "")
    assert "expected Paid" in refused.err
    file.rename("moved.py")
    assert cli("signal", "o", "paid", "much").code == 0
    Path("moved.py").rename(file)

    assert cli("resume", "o", "--quiet").code == 1
    assert cli("signal", "o", "paid", '{"amount": 5}').code == 0
    assert cli("resume", "o", "--quiet").out == "5\n"
    assert cli("signal", "p", "paid", '{"amount": 6}').code == 0
    assert cli("resume", "p", "--quiet").out == "6\n"
