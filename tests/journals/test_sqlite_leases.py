"""SqliteJournal: one driver a run, whatever became of the others, and letters from anybody."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from handrail.errors import LeaseLost, RunLocked
from handrail.journals.sqlite.journal import SqliteJournal
from handrail.model import events as ev
from handrail.system import owners
from handrail.system.marker import stat_of
from handrail.system.owners import Owner, boot, host, is_alive
from tests.journals.sqlite_support import answer, change_file, child, output_of, started, step

HOLDING = """
journal = SqliteJournal(path)
journal.acquire("r")
journal.append(started())
print("held", flush=True)
sys.stdin.readline()
journal.append(step(2))
"""


def test_a_live_holder_in_another_process_is_named(path: Path) -> None:
    """Who comes second is told the process, the host and the age of the lease."""
    holder = child(HOLDING, path)
    assert holder.stdout is not None
    holder.stdout.readline()
    journal = SqliteJournal(path)
    with pytest.raises(RunLocked) as caught:
        journal.acquire("r")
    (listed,) = journal.runs()
    output_of(holder)
    journal.acquire("r").release()
    journal.close()
    assert (caught.value.pid, caught.value.host) == (holder.pid, host())
    assert 0 <= caught.value.age_s < 60
    assert listed.holder is not None
    assert listed.holder.pid == holder.pid


def test_a_stopped_holder_still_holds(path: Path) -> None:
    """A process that was stopped is alive, however old the last renewal of its lease is."""
    holder = child(HOLDING, path)
    assert holder.stdout is not None
    holder.stdout.readline()
    holder.send_signal(signal.SIGSTOP)
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE leases SET expires_at = 1")
    journal = SqliteJournal(path)
    with pytest.raises(RunLocked):
        journal.acquire("r")
    holder.send_signal(signal.SIGCONT)
    output_of(holder)
    journal.close()


def test_a_dead_holder_is_followed_at_once(path: Path) -> None:
    """After SIGKILL the run can be driven without waiting for the lease to end."""
    holder = child(HOLDING, path)
    assert holder.stdout is not None
    holder.stdout.readline()
    holder.kill()
    holder.communicate(timeout=60)
    journal = SqliteJournal(path)
    lease = journal.acquire("r")
    journal.append(step(2))
    journal.close()
    assert lease.epoch == 2


def taken_over(path: Path, run_id: str = "r") -> None:
    """Let a process of another machine take the lease over."""
    change_file(
        path,
        "UPDATE leases SET epoch = epoch + 1, pid = 7, host = 'elsewhere', token = 't',"
        " boot = 'b' WHERE run_id = ?",
        run_id,
    )


def test_a_driver_that_lost_its_lease_writes_nothing_more(path: Path) -> None:
    """Once another process has the run, every kind of event is refused, and nothing is stored."""
    journal = SqliteJournal(path)
    lease = journal.acquire("r")
    journal.append(started())
    taken_over(path)
    for event in (step(2), step(2, text="x" * 100_000)):
        with pytest.raises(LeaseLost) as caught:
            journal.append(event)
        assert (caught.value.pid, caught.value.host) == (7, "elsewhere")
    lease.release()
    (listed,) = journal.runs()
    found = journal.events("r")
    journal.close()
    with sqlite3.connect(path) as connection:
        row = connection.execute("SELECT epoch, pid FROM leases").fetchone()
    connection.close()
    assert found == [started()]
    assert listed.events == 1
    assert row == (2, 7)


def test_a_driver_that_lost_its_lease_cannot_begin_the_run(
    path: Path, journal: SqliteJournal
) -> None:
    """The first event of a run is fenced as well."""
    journal.acquire("r")
    taken_over(path)
    with pytest.raises(LeaseLost):
        journal.append(started())
    found = (journal.events("r"), journal.runs())
    assert found == ([], [])


def test_epochs_only_grow(path: Path) -> None:
    """Each lease of a run has a higher epoch than all before it, also across journals."""
    epochs = []
    for _ in range(3):
        journal = SqliteJournal(path)
        for _ in range(2):
            lease = journal.acquire("r")
            epochs.append(lease.epoch)
            lease.release()
        journal.close()
    assert epochs == [1, 2, 3, 4, 5, 6]


def test_a_journal_that_nobody_has_any_more_holds_nothing(path: Path) -> None:
    """A journal that was dropped without being closed gives its leases back."""
    journal = SqliteJournal(path)
    journal.acquire("r")
    del journal
    other = SqliteJournal(path)
    other.acquire("r").release()
    other.close()


def test_a_writer_without_a_lease_goes_on_from_the_end(path: Path) -> None:
    """Without a lease the run's end is looked up, so two journals can take turns; under a lease
    what somebody else wrote meanwhile is noticed.
    """
    one, other = SqliteJournal(path), SqliteJournal(path)
    one.append(started())
    other.append(step(2))
    one.append(step(3))
    one.acquire("r")
    one.append(step(4))
    other.append(step(5))
    with pytest.raises(Exception, match="number 5 where 6 is next"):
        one.append(step(5))
    one.append(step(6))
    found = [event.seq for event in other.events("r")]
    one.close()
    other.close()
    assert found == [1, 2, 3, 4, 5, 6]


def test_leases_are_renewed(path: Path) -> None:
    """While a lease is held, its end moves on."""
    journal = SqliteJournal(path, lease_s=0.15)
    journal.acquire("r")
    other = sqlite3.connect(path)
    query = "SELECT renewed_at > since AND expires_at > renewed_at FROM leases"
    waiting = threading.Event()
    for _ in range(2_000):
        (renewed,) = other.execute(query).fetchone()
        if renewed or waiting.wait(0.01):
            break
    other.close()
    journal.close()
    assert renewed


HERE = Owner("t", os.getpid(), stat_of(os.getpid()).start_ticks, host(), boot(), 10.0, 20.0)

PARENT = replace(HERE, pid=os.getppid(), start_ticks=stat_of(os.getppid()).start_ticks)


@pytest.mark.parametrize(
    ("claim", "now", "alive"),
    [
        (replace(PARENT, start_ticks=1), 15.0, False),  # its number is another process's now
        (PARENT, 99.0, True),
        (HERE, 15.0, False),  # this process, but no lease that it knows of
        (replace(HERE, boot="another"), 19.9, True),
        (replace(HERE, boot="another"), 20.0, False),
        (replace(HERE, boot="", host="another"), 19.9, True),
        (replace(HERE, boot="", host="another"), 20.0, False),
    ],
)
def test_who_lives(claim: Owner, now: float, alive: bool) -> None:
    """A holder in sight lives while its process does, any other until its lease ends."""
    assert is_alive(claim, now) is alive


@pytest.mark.parametrize(
    ("pid", "now", "alive"),
    [(os.getppid(), 15.0, True), (os.getppid(), 25.0, False), (2**22 + 1, 15.0, False)],
)
def test_who_lives_where_nothing_says_when_a_process_started(
    monkeypatch: pytest.MonkeyPatch, pid: int, now: float, alive: bool
) -> None:
    """Without /proc a holder lives while its process number is in use and its lease renewed."""
    monkeypatch.setattr(owners, "HAS_PROC", False)
    monkeypatch.setattr(owners, "boot", str)
    assert is_alive(replace(HERE, boot="", pid=pid), now) is alive


@pytest.mark.parametrize("set_by_s", [0.0, 3_600.0, -3_600.0])
@pytest.mark.parametrize("in_sight", [False, True])
def test_a_clock_that_is_set_ends_no_lease_of_this_machine(
    path: Path, monkeypatch: pytest.MonkeyPatch, set_by_s: float, *, in_sight: bool
) -> None:
    """In another container, or where no start of a process is known, the machine's running time
    counts: a holder that renews is left alone, one that does not is followed when its time is over.
    """
    holder = child(HOLDING, path)
    assert holder.stdout is not None
    holder.stdout.readline()
    if in_sight:
        monkeypatch.setattr(owners, "HAS_PROC", False)
    else:
        elsewhere = f"{boot()}1"
        monkeypatch.setattr(owners, "boot", lambda: elsewhere)
    real, running = time.time, time.monotonic
    monkeypatch.setattr(time, "time", lambda: real() + set_by_s)
    journal = SqliteJournal(path)
    with pytest.raises(RunLocked):
        journal.acquire("r")
    monkeypatch.setattr(time, "monotonic", lambda: running() + 31.0)
    holder.send_signal(signal.SIGSTOP)
    journal.acquire("r").release()
    monkeypatch.undo()
    holder.send_signal(signal.SIGCONT)
    holder.communicate(timeout=60)
    journal.close()


def test_of_fifty_processes_that_answer_at_once_one_wins(path: Path) -> None:
    """All are told of the same answer, and there is one letter."""
    out = output_of(
        child(
            """
            reader, writer = os.pipe()
            children = []
            for n in range(50):
                child = os.fork()
                if not child:
                    os.close(writer)
                    os.read(reader, 1)
                    journal = SqliteJournal(path)
                    kept = journal.post(answer(f"from {n}", "gate"))
                    os.write(1, f"{kept.event.answer} {kept.number}\\n".encode())
                    journal.close()
                    os._exit(0)
                children.append(child)
            os.close(reader), os.close(writer)
            assert all(os.waitpid(child, 0)[1] == 0 for child in children)
            """,
            path,
        )
    )
    journal = SqliteJournal(path)
    (letter,) = journal.letters("r", 0)
    journal.close()
    assert isinstance(letter.event, ev.GateAnswered)
    assert out.splitlines() == [f"{letter.event.answer} 1"] * 50


@pytest.mark.parametrize(
    "read",
    [lambda journal: journal.letters("r", 0), lambda journal: journal.post(answer("b", "k"))],
    ids=["letters", "post"],
)
def test_a_letter_that_was_changed_is_not_believed(
    path: Path, read: Callable[[SqliteJournal], object]
) -> None:
    """A letter must be as it was written, also where it only decides who came first."""
    journal = SqliteJournal(path)
    journal.post(answer("yes", "k"))
    journal.close()
    change_file(path, "UPDATE letters SET value = '\"no\"'")
    with pytest.raises(Exception, match="message 1 to run r is not as it was written"):
        read(journal)
    journal.close()


def test_secrets_of_the_lease_are_put_back(path: Path) -> None:
    """A secret is in the file as a reference, and in the events that come back as itself."""
    journal = SqliteJournal(path)
    journal.acquire("r", secrets={"API_KEY": "correct horse battery"})
    events = [started(), step(2, text="key: correct horse battery.")]
    for event in events:
        journal.append(event)
    found = journal.events("r")
    journal.close()
    assert found == events
    assert b"correct horse" not in path.read_bytes()
    assert b"API_KEY" in path.read_bytes()
