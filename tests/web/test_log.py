"""The log: what is said of each event, and how its lines are found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from handrail import (
    CommandResult,
    Executor,
    MemoryJournal,
    SqliteJournal,
    StepResult,
    Steps,
    step,
    workflow,
)
from handrail.model import events as ev
from handrail.sinks.event_words import event_text
from handrail.testing.contracts.sample_events import sample_events
from handrail.testing.shapes import Body, workflow_of
from handrail.testing.strategies import bodies
from handrail.web import create_app
from handrail.web.log import ONLY, Log, LogFilter, LogQuery, level_of, line_data
from handrail.web.reading import Reader
from tests.engine.support import Jumping
from tests.web.test_stream import MASK

TOKEN = "a-token-of-tests"
SECRET = "hunter2-is-secret"
SAMPLES = sample_events()


def no_mask(event: ev.Event) -> ev.Event:
    """The event as it is."""
    return event


@pytest.mark.parametrize("event", SAMPLES, ids=lambda one: f"{one.seq} {type(one).__name__}")
def test_every_kind_of_event_is_said_in_one_line(event: ev.Event) -> None:
    """Each has words of its own, without line breaks, and a level."""
    line: Any = line_data(event)
    text, level = line["text"], line["level"]
    assert text
    assert len(text.splitlines()) == 1
    assert level in {"error", "warning", "person", "info"}


def completed(status: Any = "succeeded", **more: Any) -> ev.StepCompleted:
    """The end of a step."""
    result: StepResult[Any] = StepResult("a", "a", "command", status, duration_ms=1500, **more)
    return ev.StepCompleted("a", result)


LINES: list[tuple[ev.Event, str, str]] = [
    (completed(), "info", "succeeded in 1.5 s"),
    (
        completed(output=CommandResult(1, "", "", "make")),
        "warning",
        "succeeded in 1.5 s, exit code 1",
    ),
    (
        completed("failed", error="no", error_type="builtins.ValueError", attempts=3),
        "error",
        "failed in 1.5 s, 3 attempts, ValueError: no",
    ),
    (completed(given_by="ann"), "person", "succeeded in 1.5 s, given by ann"),
    (
        ev.GateOpened("a", ev.OpenGate("a", "Merge?", ("yes", "no"))),
        "person",
        "asks: Merge? [yes, no]",
    ),
    (
        ev.StepStarted("a", "call", verdict=False),
        "info",
        "call is skipped: its condition is false",
    ),
    (ev.TimerSet("a", 0.5, "retry"), "info", "waits, retry in 500 ms"),
    (
        ev.ClaimWaiting("a", "git", "step 'b' of run r"),
        "warning",
        "waits for git, behind step 'b' of run r",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("event", "level", "text"), LINES, ids=[text for *_, text in LINES])
def test_a_line_says_what_happened(event: ev.Event, level: str, text: str) -> None:
    """Status, time, attempts, error and exit code; who is asked, and who did it."""
    assert (level, text) == (level_of(event), event_text(event))


def seqs(part: dict[str, Any]) -> list[int]:
    """The numbers of the lines of a part."""
    return [line["seq"] for line in part["lines"]]


words = st.lists(
    st.sampled_from(["step", "plan", "completed", "code", "a", "none of it"]), max_size=2
)
sought = st.builds(
    lambda words, only: LogQuery(tuple(words), only), words, st.sampled_from(sorted(ONLY))
)


@settings(deadline=None)
@given(
    asked=st.lists(st.tuples(sought, st.integers(0, len(SAMPLES))), max_size=6),
    limit=st.integers(1, 9),
)
def test_a_log_that_grows_finds_what_a_new_one_finds(
    asked: list[tuple[LogQuery, int]], limit: int
) -> None:
    """Whatever was looked for before, and however much has come since, in parts of any size."""
    log, known = Log(no_mask), 0
    for wanted, length in asked:
        known = max(known, length)
        history = SAMPLES[:known]
        fits = [
            one.seq
            for one in history
            if (not wanted.only or level_of(one) in ONLY[wanted.only])
            and all(
                word in f"{type(one).__name__} {getattr(one, 'path', '')} {event_text(one)}".lower()
                for word in wanted.words
            )
        ]
        found: list[int] = []
        while len(found) < len(fits):
            part: Any = log.part(history, wanted, start=len(found), limit=limit)
            assert part["total"] == len(fits)
            found += seqs(part)
        assert found == fits
        if fits:
            last: Any = log.part(history, wanted, limit=limit)
            assert seqs(last) == fits[-limit:]


@pytest.mark.parametrize("only", sorted(ONLY))
@pytest.mark.parametrize("line", [1, 7, len(SAMPLES), len(SAMPLES) + 9])
def test_the_part_around_a_line_has_it_or_the_next_one(only: LogFilter, line: int) -> None:
    """``at`` is the place of the first line that fits from it on; after the last one, of that."""
    log, wanted = Log(no_mask), LogQuery((), only)
    whole: Any = log.part(SAMPLES, wanted, start=0, limit=1000)
    part: Any = log.part(SAMPLES, wanted, line=line, limit=5)
    fits = seqs(whole)
    first = next((seq for seq in fits if seq >= line), fits[-1])
    assert fits[part["at"]] == first
    assert first in seqs(part)
    assert part["start"] <= part["at"] < part["start"] + 5
    if only:
        assert whole["counts"][only] == whole["total"]


@workflow
def leaks(key: str) -> Steps[str]:
    """A step that fails with a secret in its error."""

    def fail() -> None:
        raise ValueError(f"{'x ' * 190}the key is {key}")

    yield from step("call").call(fail).default(None)
    return key


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> TestClient:
    """Somebody who has the token, with a run that held a secret."""
    journal = MemoryJournal()
    Executor(journal=journal).options(run_id="r").run_sync(leaks, SECRET)
    monkeypatch.setenv("SERVICE_API_KEY", SECRET)
    headers = {"authorization": f"Bearer {TOKEN}"}
    return TestClient(
        create_app(journal, token=TOKEN), base_url="http://127.0.0.1", headers=headers
    )


def test_no_secret_is_told_or_found(client: TestClient) -> None:
    """Neither whole nor cut, in a line, an event, the record; no search says that it is there."""
    events = client.get("/api/runs/r/record").text.splitlines()
    answers = [
        client.get(f"/api/runs/r/event?number={number + 1}") for number in range(len(events))
    ]
    texts = [client.get("/api/runs/r/log").text, *(one.text for one in answers), *events]
    assert [text for text in texts if "hunter2" in text] == []
    assert client.get("/api/runs/r/log?q=hunter2").json()["total"] == 0
    assert client.get("/api/runs/r/log?q=ValueError").json()["total"] > 0


def test_an_event_is_told_as_it_is_in_the_record(client: TestClient) -> None:
    """Each line of the record is the event of that number; there is none behind the last."""
    events = [json.loads(line) for line in client.get("/api/runs/r/record").text.splitlines()]
    for number, event in enumerate(events, 1):
        assert event == client.get(f"/api/runs/r/event?number={number}").json()
    beyond = client.get(f"/api/runs/r/event?number={len(events) + 1}")
    assert beyond.status_code == 404


@pytest.mark.parametrize(
    "query",
    ["log?only=most", "log?start=1&line=1", "log?limit=0", "log?line=0", "event", "record?all=1"],
)
def test_what_the_log_does_not_take_is_refused(client: TestClient, query: str) -> None:
    """It says what is wanted."""
    answer = client.get(f"/api/runs/r/{query}")
    assert answer.status_code == 400
    assert answer.json()["type"] == "BadRequest"


@settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))
@given(body=bodies(), cuts=st.lists(st.integers(1, 60), max_size=6))
async def test_a_run_that_is_read_as_it_grows_is_the_one_that_is_read_whole(
    body: Body, cuts: list[int]
) -> None:
    """Rows of steps, and the row of the run, are those of a reader that never saw it before."""
    drawn = MemoryJournal()
    await (
        Executor(journal=drawn, clock=Jumping(), gates="approve")
        .options(run_id="r")
        .run(workflow_of(body))
    )
    history = drawn.events("r")
    journal, known = MemoryJournal(), 0
    reader = Reader(journal, MASK)
    for cut in (*sorted(cuts), len(history)):
        if known < min(cut, len(history)):
            for event in history[known:cut]:
                journal.append(event)
            known = min(cut, len(history))
            grown = await reader.snapshot("r", now=True)
            whole = await Reader(journal, MASK).snapshot("r", now=True)
            assert grown.rows == whole.rows
            assert list(grown.rows) == list(whole.rows)
            assert grown.row == whole.row
            assert list(grown.history) == list(history[:known])


async def test_of_a_run_that_was_removed_nothing_is_left(tmp_path: Path) -> None:
    """When another run with its id began, that one alone is read and found."""
    journal = SqliteJournal(tmp_path / "runs.db")
    executor = Executor(journal=journal)
    reader = Reader(journal, MASK)
    found: dict[str, Any] = {}
    for key in ("first", "second"):
        await executor.options(run_id="r").run(leaks, key)
        snapshot = await reader.snapshot("r", now=True)
        assert snapshot.history == journal.events("r")
        for words in ("key=first", "key=second"):
            part: Any = await reader.log("r", LogQuery((words,)), start=0, line=None, limit=9)
            found[f"{words} in the {key}"] = part["total"]
        journal.prune(older_than=0)
    assert found == {
        "key=first in the first": 1,
        "key=second in the first": 0,
        "key=first in the second": 0,
        "key=second in the second": 1,
    }
