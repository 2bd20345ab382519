"""A run that a fork or an import makes is whole or not there, whenever its maker dies."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from handrail import Executor, SqliteJournal, Steps, step, workflow
from handrail.model import events as ev

STEPS = 400
MAKER = """
import itertools, sys
from handrail import Executor, SqliteJournal
executor = Executor(journal=SqliteJournal("runs.db"))
for number in itertools.count(int(sys.argv[1])):
    print("made so far:", number, flush=True)
    executor.fork_sync("p", fork_id=f"fork-{number}")
    executor.import_run_sync("p.jsonl", run_id=f"import-{number}")
"""


@workflow
def long() -> Steps[int]:
    """Many steps, some of them with a value that is stored apart."""
    for number in range(STEPS):
        yield from step(f"s{number}").call(str.lower, "X" * (20_000 if number % 50 == 0 else 5))
    return STEPS


def test_a_kill_leaves_no_half_of_a_run(tmp_path: Path) -> None:
    """Each that is there can be resumed to the same end, and performs nothing."""
    journal = SqliteJournal(tmp_path / "runs.db")
    executor = Executor(journal=journal, workflows=[long])
    executor.options(run_id="p").run_sync(long)
    executor.export_sync("p", tmp_path / "p.jsonl")
    whole = len(journal.events("p"))
    draw = random.Random(0)
    for kill in range(3):
        command = [sys.executable, "-c", MAKER, str(kill * 10_000)]
        with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE) as maker:
            assert maker.stdout is not None
            for _ in range(kill + 1):  # so many pairs are begun, all but the last are there
                maker.stdout.readline()
            time.sleep(draw.uniform(0.0, 0.2))  # noqa: TID251  # while another process works
            maker.send_signal(signal.SIGKILL)
    assert journal.verify() == ()
    made = [one for one in journal.runs() if one.run_id != "p"]
    assert made
    assert {one.events for one in made} == {whole}
    for one in (made[0], made[-1]):
        kinds = [type(event) for event in journal.events(one.run_id)]
        assert kinds[-1] in {ev.WorkflowCompleted, ev.RunSuspended}
        result = executor.resume_sync(one.run_id)
        assert result.value == STEPS
        assert all(done.replayed for done in result.step_results)
