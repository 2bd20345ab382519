"""``handrail plan``: what a resume would do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Cli, killed, notes

pytestmark = pytest.mark.usefixtures("durable")


def test_each_step_is_told_and_none_is_run(cli: Cli) -> None:
    """Recorded, the next one that will run, and what may run after it."""
    cli("run", "durable.py:asks", "--run-id", "a")

    outcome = cli("plan", "a")

    assert outcome.code == 0
    assert [line.split()[:3] for line in outcome.out.splitlines()] == [
        ["asks,", "run", "a:"],
        [],
        ["recorded", "before", "python"],
        ["will", "run", "merge?"],
        ["may", "run", "after"],
        [],
        ["waits", "for", "an"],
        [],
        ["To", "continue:", "handrail"],
    ]
    assert notes() == ["before"]


def test_a_changed_step_is_told_with_both_forms(cli: Cli, durable: Path) -> None:
    """What it was, what it is, and the commands that say what counts."""
    cli("run", "durable.py:asks", "--run-id", "a")
    durable.write_text(durable.read_text().replace('note, "before"', 'note, "earlier"'))

    lines = cli("plan", "a").out.splitlines()

    assert "  changed      before  python  succeeded" in lines
    assert '                 was  python durable:note ["before"]' in lines
    assert '                 now  python durable:note ["earlier"]' in lines
    assert "  run again:              handrail resume a --rerun before" in lines
    assert "  changed " not in cli("plan", "a", "--reuse", "before").out
    assert "will run     before" in cli("plan", "a", "--rerun", "before").out


def test_an_orphaned_step_is_told(cli: Cli, durable: Path) -> None:
    """A recorded step that the code does not come to any more is no mismatch."""
    Path("go").touch()
    cli("run", "durable.py:dies", "--run-id", "d")
    text = durable.read_text()
    durable.write_text(text.replace('step("second").call(survive', 'step("third").call(survive'))

    steps = cli("plan", "d", "--json").data["steps"]

    assert {step["path"]: step["state"] for step in steps} == {
        "first": "recorded",
        "second": "orphaned",
        "third": "will run",
    }


def test_a_plan_says_what_a_resume_would_undo_and_show_what_it_undid(
    cli: Cli, durable: Path
) -> None:
    """Of a run that was killed while it rolled back no step will run."""
    durable.write_text(
        durable.read_text()
        + """

def gone(context):
    note("undo")
    if notes_of("undo") == 1:
        os.kill(os.getpid(), 9)


def notes_of(text):
    return Path("notes").read_text().splitlines().count(text)


@workflow
def undoes():
    yield from step("a").call(note, "a").with_rollback(gone)
    yield from step("b").call(note, "b").with_rollback(gone)
    yield from step("c").call(int, "x")
"""
    )
    killed("run", "durable.py:undoes", "--run-id", "u")

    planned = cli("plan", "u")
    assert "It has failed. This rolls back b, a and ends it:" in planned.out
    assert "will run" not in planned.out
    assert cli("plan", "u", "--json").data["undoes"] == ["b", "a"]
    assert cli("resume", "u").code == 1
    rows = [line.split() for line in cli("show", "u").out.splitlines()]
    assert [row[1] for row in rows if row and row[-1] == "undone"] == ["a", "b"]
    steps = cli("show", "u", "--json").data["steps"]
    assert [step.get("undone") for step in steps] == [{"error": None}, {"error": None}, None]


def test_a_plan_says_what_is_undone_before_a_run_goes_on(cli: Cli, durable: Path) -> None:
    """Of a run that was killed while a sub-workflow of it rolled back."""
    durable.write_text(
        durable.read_text()
        + """

def gone(context):
    note("undo")
    if Path("notes").read_text().splitlines().count("undo") == 1:
        os.kill(os.getpid(), 9)


@workflow
def fails():
    yield from step("a").call(note, "a").with_rollback(gone)
    yield from step("b").call(int, "x")


@workflow
def goes_on():
    yield from step("child").run_workflow(fails).default(None)
    yield from step("end").call(note, "end")
"""
    )
    killed("run", "durable.py:goes_on", "--run-id", "g")

    planned = cli("plan", "g")

    assert "handrail resume g   (it rolls back child/a first)" in planned.out
    assert cli("resume", "g").code == 0


def test_what_is_to_be_typed_has_the_choices_that_were_made(cli: Cli, durable: Path) -> None:
    """Else it would be refused, or look for a file that is gone."""
    cli("run", "durable.py:asks", "--run-id", "a")
    durable.write_text(durable.read_text().replace('note, "before"', 'note, "earlier"'))
    durable.rename("other.py")

    planned = cli("plan", "a", "--target", "other.py:asks", "--reuse", "before").out
    assert "handrail resume a --reuse before --target other.py:asks" in planned
    refused = cli("resume", "a", "--target", "other.py:asks")
    assert "handrail resume a --reuse before --target other.py:asks" in refused.err


def test_a_step_that_must_not_begin_again_is_told_with_the_way_out(cli: Cli, durable: Path) -> None:
    """Of a run that was killed while it was at work: it fails by that, unless it is run again."""
    durable.write_text(
        durable.read_text()
        + """

def pays():
    note("pay")
    if Path("go").exists():
        return
    os.kill(os.getpid(), 9)


@workflow
def shop():
    yield from step("a").call(note, "a").with_rollback(lambda context: note("undo"))
    yield from step("pay").call(pays).once()
"""
    )
    killed("run", "durable.py:shop", "--run-id", "s")

    planned = cli("plan", "s").out
    assert (
        "  interrupted  pay  python  was running when its process ended; it must not run twice, "
        "so it fails\n\nThat fails the run. This rolls back a and ends it:\n  handrail resume s\n"
        "This runs the step once more:\n  handrail resume s --rerun pay\n"
    ) in planned
    assert cli("plan", "s", "--json").data["steps"][1]["status"] == "failed"
    Path("go").touch()
    assert "nothing is left" not in cli("plan", "s", "--rerun", "pay").out
    failed = cli("resume", "s")
    assert "to continue from the last recorded step: handrail resume s --rerun pay" in failed.err
    assert cli("resume", "s", "--rerun", "pay").code == 0
    assert notes() == ["a", "pay", "undo", "a", "pay"]


def test_what_is_recorded_behind_a_new_step_is_told_as_not_looked_at(
    cli: Cli, durable: Path
) -> None:
    """Whether it has changed shows when the run comes to it; then `show` says why it stopped."""
    cli("run", "durable.py:asks", "--run-id", "a")
    cli("answer", "a", "merge?", "yes")
    text = durable.read_text()
    front = 'yield from step("new").call(note, "new")\n    yield from step("before")'
    changed = text.replace('yield from step("before")', front, 1)
    durable.write_text(changed.replace('note, "before"', 'note, "earlier"'))

    planned = cli("plan", "a")
    assert "  will run     new     python\n" in planned.out
    assert "  recorded     before  python  succeeded; not yet compared with the code" in planned.out
    steps = {one["path"]: one for one in cli("plan", "a", "--json").data["steps"]}
    assert (steps["before"]["state"], steps["before"]["reached"]) == ("recorded", False)
    assert cli("resume", "a").code == 2
    shown = cli("show", "a").out
    assert "needs a person: the code no longer matches the record: step 'before' was" in shown
    assert "changed      before  python" in cli("plan", "a").out


def test_the_plan_of_a_run_that_succeeded_says_that_its_result_counts(
    cli: Cli, durable: Path
) -> None:
    """Whatever has changed since."""
    Path("go").touch()
    assert cli("run", "durable.py:dies", "--run-id", "d").code == 0
    durable.write_text(durable.read_text().replace("call(note, first)", "call(note, first * 2)"))
    planned = cli("plan", "d").out
    assert "  changed      first " in planned
    assert "It has succeeded. A resume returns its recorded result. Changed steps" in planned


def test_what_failed_and_what_a_pattern_names_runs_again_by_each_command(cli: Cli) -> None:
    """Plan says so, resume and fork do it; the name of a group is optional."""
    Path("failed.py").write_text(
        "from pathlib import Path\n"
        "from handrail import Steps, step, workflow\n"
        "def act(item: str) -> str:\n"
        "    with Path('did').open('a') as did:\n"
        "        did.write(item)\n"
        "    if item == 'b' and not Path('mended').exists():\n"
        "        raise ValueError(item)\n"
        "    return item\n"
        "def one(item: str):\n"
        "    return step('s').call(act, item)\n"
        "@workflow\n"
        "def flow() -> Steps[int]:\n"
        "    got = yield from step('g').for_each(['a', 'b'], one, key=str, on_error='continue')\n"
        "    return sum(member.success for member in got)\n"
    )

    def did() -> str:
        text = "".join(sorted(Path("did").read_text()))
        Path("did").write_text("")
        return text

    for run_id in ("r", "r2"):
        assert cli("run", "failed.py", "--run-id", run_id).out == "1\n"
    assert did() == "aabb"
    Path("mended").touch()
    planned = cli("plan", "r", "--rerun-failed").out
    assert "To continue: handrail resume r --rerun-failed" in planned
    assert cli("resume", "r", "--rerun-failed=g").out == "2\n"
    assert cli("resume", "r", "--rerun-failed").out == "2\n"
    assert did() == "b"
    assert cli("resume", "r", "--rerun", "g/*").out == "2\n"
    assert did() == "ab"
    assert cli("fork", "r2", "--rerun-failed").out == "2\n"
    assert did() == "b"
    assert cli("resume", "r", "--rerun-failed", "x").code == 2


MANY = """
from handrail import Steps, step, workflow

def act(item: int) -> int:
    raise ValueError(item)

def load(item: int) -> int:
    return item

def one(item: int) -> Steps[int]:
    loaded = yield from step("load").call(load, item)
    return (yield from step("s").call(act, loaded))

def total(results: list[str]) -> int:
    return len(results)

@workflow
def flow() -> Steps[int]:
    done = yield from step("g").for_each(range(30), one, on_error="continue", max_concurrency=4)
    return (yield from step("total").call(total, [member.status for member in done]))
"""


@pytest.mark.parametrize(
    ("words", "late"),
    [
        ((), "kept if it is the same when the run reaches it, else the resume asks"),
        (
            ("--rerun-changed",),
            "kept if it is the same when the run reaches it, else it runs again",
        ),
        (("--reuse-changed",), "kept when the run reaches it"),
    ],
)
def test_a_plan_says_of_each_member_and_of_what_follows_what_a_resume_would_do(
    cli: Cli, words: tuple[str, ...], late: str
) -> None:
    """Also of members that have to wait until others have ended."""
    Path("many.py").write_text(MANY)
    cli("run", "many.py", "--run-id", "r")

    rows = cli("plan", "r", "--rerun-failed", *words).out.splitlines()
    listed = cli("plan", "r", "--rerun-failed", *words, "--json").data["steps"]

    members = [one["path"] for one in listed if one["state"] == "will run"]
    assert members == ["g", *(f"g/{number}/load" for number in range(30))]
    later = [one["path"] for one in listed if one["state"] == "may run"]
    assert later == [f"g/{number}/s" for number in range(30)]
    assert sum("g/" in row and " s " not in row for row in rows) == 60
    (row,) = [row for row in rows if " total " in row]
    assert row.endswith(f"succeeded; not yet compared with the code: {late}")
