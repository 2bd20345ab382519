"""JsonlSink: one JSON object a line, to a path or into an open file."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from handrail.errors import WrongUse
from handrail.model.events import GateAnswered, RunResumed, RunSuspended
from handrail.sinks.jsonl import JsonlSink
from handrail.testing.contracts import SinkContract
from handrail.testing.contracts.sample_events import sample_events, sample_progress
from tests.sinks.story import Story


class TestJsonlSink(SinkContract):
    @pytest.fixture
    def make_sink(self, tmp_path: Path) -> Any:
        """A new sink each time."""
        return lambda: JsonlSink(tmp_path / "logs" / "events.jsonl")


def lines(path: Path) -> list[dict[str, Any]]:
    """What the file holds, each line read as strict JSON."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_each_event_is_a_line_that_names_its_class(tmp_path: Path) -> None:
    """`type` comes first, then the number, the time and the fields of the event."""
    path = tmp_path / "a" / "b" / "events.jsonl"
    sink = JsonlSink(path)
    for event in [*sample_events(), *sample_progress()]:
        sink.emit(event)
    found = lines(path)
    expected = [type(event).__name__ for event in [*sample_events(), *sample_progress()]]
    assert [line["type"] for line in found] == expected
    assert list(found[1].items())[:5] == [
        ("type", "StepStarted"),
        ("run_id", "sample-1"),
        ("seq", 2),
        ("at", 2.0),
        ("path", "plan"),
    ]


def test_a_line_is_there_as_soon_as_it_is_emitted(tmp_path: Path) -> None:
    """Another program can follow the file while the run goes on."""
    story = Story(JsonlSink(tmp_path / "events.jsonl").emit)
    story.begin()
    story.start("plan")
    assert [line["type"] for line in lines(tmp_path / "events.jsonl")] == [
        "WorkflowStarted",
        "StepStarted",
    ]
    story.finish()


def test_a_second_run_is_appended(tmp_path: Path) -> None:
    """A file that is there is continued, not replaced."""
    for _ in range(2):
        story = Story(JsonlSink(str(tmp_path / "events.jsonl")).emit)
        story.begin()
        story.finish()
    assert len(lines(tmp_path / "events.jsonl")) == 4


def test_the_file_is_open_only_during_runs(tmp_path: Path) -> None:
    """It is closed with the last drive that is under way, and opened again by another."""
    sink = JsonlSink(tmp_path / "events.jsonl")
    one, other = Story(sink.emit, run_id="a"), Story(sink.emit, run_id="b")
    open_after: list[bool] = []
    for tell in (
        one.begin,
        other.begin,
        one.finish,
        lambda: other.tell(RunSuspended()),
        lambda: other.tell(GateAnswered("merge?", "yes")),
        lambda: other.tell(RunResumed()),
        other.finish,
    ):
        tell()
        open_after.append(sink._file is not None)
    assert open_after == [True, True, True, False, False, True, False]
    assert len(lines(tmp_path / "events.jsonl")) == 7


def test_an_open_file_stays_open() -> None:
    """A file that was given is written to and flushed, and left to its owner."""
    file = io.StringIO()
    sink = JsonlSink(file)
    story = Story(sink.emit)
    story.begin()
    story.finish()
    sink.close()
    assert (file.closed, len(file.getvalue().splitlines())) == (False, 2)


def test_values_that_json_lacks_become_text() -> None:
    """A path, a set or NaN in a result is written in a form that strict JSON has."""
    file = io.StringIO()
    story = Story(JsonlSink(file).emit)
    output = {"path": Path("a/b"), "nan": float("nan"), "text": "größer\n"}
    story.run("plan", output=output)
    result = json.loads(file.getvalue().splitlines()[-1])["result"]
    assert result["output"] == {"path": "a/b", "nan": "NaN", "text": "größer\n"}


def test_what_cannot_be_written_to_is_refused() -> None:
    """The mistake shows when the sink is made, not at the first event."""
    with pytest.raises(WrongUse, match="takes a path or an open text file, got 3"):
        JsonlSink(3)  # type: ignore[arg-type]
