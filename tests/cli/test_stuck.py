"""A run whose code cannot go on with its record: each way to look says so, in each process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest

from handrail import Executor, ReplayMismatch, SqliteJournal, WaitsFor
from handrail.model import events as ev
from handrail.record.due import AGAIN_S, AT_MOST_S, PERSON_S, Due
from handrail.record.inbox import runs_of
from handrail.secrets.masking import Mask
from handrail.web.reading import Reader
from tests.cli.conftest import spawned

FLOW = """\
from handrail import step, workflow


@workflow
def news(who="all"):
    yield from step("draft").call(str.upper, f"dear {who}")
    yield from step("ok?").ask("Send it?", choices=["yes", "no"])
    return (yield from step("send").call(str.upper, "sent"))
"""
AFTER = {
    "a changed step": (
        FLOW.replace("dear {who}", "hello {who}"),
        """builtins:str.upper ["dear all"], is python builtins:str.upper ["hello all"]""",
        "--reuse",
    ),
    "a new input": (FLOW.replace('who="all"', 'who="all", *, by'), "begun without by", "a default"),
}
JOURNAL = ".handrail/runs.db"


class Case(NamedTuple):
    """A deployed change of the code, and what must be told of it."""

    code: str
    what: str
    advice: str


@pytest.fixture(params=AFTER)
def case(request: pytest.FixtureRequest, folder: Path) -> Case:
    """A run that was answered, and then its code is another one."""
    former = executor(FLOW)
    assert former.options(run_id="r").run_sync(former.workflows[0]).status == "suspended"
    former.answer_sync("r", "ok?", "yes")
    found = Case(*AFTER[request.param])
    Path("flow.py").write_text(found.code)
    del folder
    return found


def executor(code: str) -> Executor:
    """An executor of another process, which has this code."""
    known: dict[str, Any] = {"__name__": "flow"}
    exec(compile(code, "flow.py", "exec"), known)
    return Executor(journal=SqliteJournal(JOURNAL), workflows=[known["news"]])


async def resumed_here(case: Case) -> None:
    """Somebody resumes it in this process."""
    with pytest.raises(Exception, match=r"no longer matches|begun without"):
        await executor(case.code).resume("r")


async def served_here(case: Case) -> None:
    """This process serves the journal, and tells its hook."""
    told = list[tuple[str, WaitsFor]]()
    here, tried = executor(case.code), anyio.Event()

    def tell(run_id: str, wait: WaitsFor) -> None:
        told.append((run_id, wait))
        tried.set()
        raise OSError("the mail server is away")

    async with here, here.serve(on_stuck=tell):
        with anyio.fail_after(20):
            await tried.wait()
    assert [(run_id, wait.kind) for run_id, wait in told] == [("r", "person")]
    assert case.what in told[0][1].what


async def resumed_elsewhere(case: Case) -> None:
    """A process of its own resumes it, as a worker has it."""
    del case
    words = ("resume", "r", "--target", "flow.py:news", "--notify", "touch told")
    done = await anyio.to_thread.run_sync(lambda: spawned(*words))
    assert done.code == 2, done.err
    assert await anyio.Path("told").exists()


Drive = Callable[[Case], Awaitable[None]]


@pytest.mark.parametrize("drive", [resumed_here, served_here, resumed_elsewhere])
async def test_whoever_looks_is_told_what_keeps_it(case: Case, drive: Drive) -> None:
    """`get`, `runs`, `show`, the page and every `waits_for` name the person, the change and what to
    type; the record is as it was, and so is the answer.
    """
    journal = SqliteJournal(JOURNAL)
    before = journal.events("r")
    await drive(case)

    state = await executor(case.code).get("r")
    (info,) = runs_of(journal)
    page: Any = await Reader(journal, Mask({})).detail("r")
    shown = await anyio.to_thread.run_sync(lambda: spawned("show", "r"))
    listed = await anyio.to_thread.run_sync(lambda: spawned("runs", "--json"))
    waits = [*state.waits_for, *info.waits_for]
    texts = [one.what for one in waits]
    texts += [one["what"] for one in (*page["run"]["waits_for"], *listed.data[0]["waits_for"])]
    assert [(one.kind, one.path, one.whom) for one in waits] == [("person", "", "a person")] * 2
    assert len(texts) == 4
    assert len({*texts}) == 1
    assert case.what in texts[0]
    assert case.advice in texts[0]
    assert page["needs"] == texts[:1]
    assert shown.out.count(f"needs a person: {texts[0][:60]}") == 1
    assert (state.status, info.status, page["run"]["state"]) == ("suspended",) * 3
    assert journal.events("r") == before
    kinds = [type(one.event) for one in journal.letters("r", 0)]
    assert kinds == [ev.GateAnswered, ev.RunSuspended]


async def test_the_former_code_goes_on_and_nothing_is_left_to_do(case: Case) -> None:
    """It takes the answer that was kept, and from then on the run waits for nobody."""
    await resumed_here(case)
    former = executor(FLOW)
    async with former, former.serve():
        with anyio.fail_after(20):
            assert (await former.result("r")).value == "SENT"
    assert (await former.get("r")).waits_for == ()
    assert [one.waits_for for one in runs_of(SqliteJournal(JOURNAL))] == [()]


async def test_each_process_tries_it_once_until_something_is_sent(case: Case) -> None:
    """It is not due again, however long it waits; a new process, which may have other code, tries
    it once, and a message has it tried once more.
    """
    await resumed_here(case)
    journal, now = SqliteJournal(JOURNAL), 2e9
    here = executor(case.code)
    for _ in range(2):
        due = Due(journal)
        (info,) = due.select_due(runs_of(journal), now)
        due.note_begun(info, now)
        for later in (AGAIN_S, PERSON_S, AT_MOST_S, 30 * 86_400.0):
            assert due.select_due(runs_of(journal), now + later) == []
    await here.signal("r", "look")
    (info,) = due.select_due(runs_of(journal), now)
    due.note_begun(info, now)
    assert due.select_due(runs_of(journal), now + AT_MOST_S) == []


async def test_a_later_change_is_told_instead_of_the_first(folder: Path) -> None:
    """What is told is what the last drive found; the same twice is kept once."""
    await executor(FLOW).options(run_id="r").run(executor(FLOW).workflows[0])
    for who in ("you", "you", "us"):
        with pytest.raises(ReplayMismatch):
            await executor(FLOW.replace("dear {who}", f"dear {who}")).resume("r")
        (wait,) = (await executor(FLOW).get("r")).waits_for
        assert f'is python builtins:str.upper ["dear {who}"]' in wait.what
    assert len(SqliteJournal(JOURNAL).letters("r", 0)) == 2
    del folder


async def test_a_run_that_is_over_waits_for_nobody(folder: Path) -> None:
    """Its end stands, whatever somebody who has other code tries to run again."""
    over = FLOW.replace('    yield from step("ok?").ask("Send it?", choices=["yes", "no"])\n', "")
    assert (await executor(over).options(run_id="r").run(executor(over).workflows[0])).success
    with pytest.raises(ReplayMismatch):
        await executor(over.replace("dear", "hi")).resume("r", rerun=["send"])
    state = await executor(over).get("r")
    assert (state.status, state.waits_for) == ("succeeded", ())
    del folder


async def test_it_is_exported_and_told_where_it_is_imported(case: Case, tmp_path: Path) -> None:
    """The answer that it has not read goes with it, and so does what keeps it."""
    await resumed_here(case)
    here = executor(case.code)
    await here.export("r", tmp_path / "r.jsonl")
    there = SqliteJournal(tmp_path / "there.db")
    await Executor(journal=there).import_run(tmp_path / "r.jsonl")
    assert (await Executor(journal=there).get("r")).waits_for == (await here.get("r")).waits_for
