"""What is told of a run as it happens: nothing twice, nothing left out, wherever a line breaks."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail import Executor, MemoryJournal, Steps, step, workflow
from handrail.model.folders import run_folder, step_folder
from handrail.ports.journal import RunInfo
from handrail.secrets.masking import Mask
from handrail.secrets.values import Secrets, secret_values
from handrail.web import stream
from handrail.web.reading import Reader
from handrail.web.stream import MOST_PIECE, GrowingTexts, StreamRequest, run_events

MASK = Mask(secret_values(Secrets(), {}))
INFO = RunInfo("r", "w", None, 0.0, 1)


@workflow
def counted(number: int) -> Steps[int]:
    """So many steps, and a group."""
    for place in range(number):
        yield from step(f"s{place}").call(anyio.sleep, 0.002)
    yield from step("each").for_each(range(number), lambda n: step("do").call(abs, n))
    return number


async def told_by(lines: AsyncGenerator[bytes], enough: Callable[[str, Any], bool]) -> list[Any]:
    """The events of a line up to one that is enough: name, data, number."""
    found: list[Any] = []
    async with aclosing(lines):
        async for piece in lines:
            for text in piece.decode().strip().split("\n\n"):
                head = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
                if "event" not in head:
                    continue
                data = json.loads(head.get("data") or "null")
                found.append((head["event"], data, int(head.get("id", 0))))
                if enough(head["event"], data):
                    return found
    return found


async def test_a_line_that_breaks_anywhere_misses_and_doubles_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A reader that comes back with its last number is told the rest, each event once, in order."""
    monkeypatch.setattr(stream, "EVERY_S", 0.001)
    journal = MemoryJournal()
    executor = Executor(journal=journal).options(run_id="r")
    told: list[int] = []
    rows: dict[str, str] = {}

    async def read() -> None:
        for cut in (1, 3, 2, 7, 1, 30, 1, 1, 11, 1000):
            left = [cut]

            def enough(name: str, data: Any, left: list[int] = left) -> bool:
                left[0] -= name == "record"
                return left[0] <= 0 or (name == "record" and data["type"] == "WorkflowCompleted")

            line = run_events(
                Reader(journal, MASK), "r", StreamRequest(told[-1] if told else 0, rows=True)
            )
            for name, data, number in await told_by(line, enough):
                if name == "record":
                    told.append(number)
                    rows.update({data["path"]: data["step"]["state"]} if "step" in data else {})

    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            group.start_soon(executor.run, counted, 40)
            while not journal.events("r"):  # noqa: ASYNC110  # it begins in another task
                await anyio.sleep(0.001)
            group.start_soon(read)
    assert told == list(range(1, len(journal.events("r")) + 1))
    assert set(rows.values()) == {"succeeded"}
    assert len(rows) == 40 + 1 + 2 * 40


async def test_a_late_reader_is_told_all_from_any_place() -> None:
    """Of a run that is over each number leads to those after it, and one too high to a reset."""
    journal = MemoryJournal()
    await Executor(journal=journal).options(run_id="r").run(counted, 3)
    reader, events = Reader(journal, MASK), journal.events("r")
    for after in range(len(events) + 1):
        line = run_events(reader, "r", StreamRequest(after))
        *found, _ = await told_by(line, lambda name, _: name == "run")
        assert [number for _, _, number in found] == list(range(after + 1, len(events) + 1))
        assert [data["type"] for _, data, _ in found] == [type(e).__name__ for e in events[after:]]
    line = run_events(reader, "r", StreamRequest(len(events) + 5))
    ((name, _, _),) = await told_by(line, lambda *_: True)
    assert name == "reset"


def written(folder: Path, data: bytes) -> None:
    """Add to what the program of a step printed."""
    file = folder / run_folder("w", "r") / step_folder("a") / "stdout"
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab") as stream:
        stream.write(data)


@given(
    before=st.binary(max_size=9),
    parts=st.lists(st.text(min_size=1, max_size=9), max_size=9),
    data=st.data(),
)
def test_pieces_of_text_fit_together(
    tmp_path_factory: pytest.TempPathFactory, before: bytes, parts: list[str], data: st.DataObject
) -> None:
    """However a text comes, and in whatever bytes, its pieces make it up without gap or double."""
    folder = tmp_path_factory.mktemp("texts")
    written(folder, before)
    texts = GrowingTexts(folder, INFO, "a")
    whole = "".join(parts).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=5)))
    found = ""

    async def look() -> list[Any]:
        return await texts.pieces(["a"])

    (first,) = anyio.run(look)
    assert (first["text"], first["end"]) == ("", len(before))
    end = first["end"]
    for start, stop in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        written(folder, whole[start:stop])
        for piece in anyio.run(look):
            assert piece["start"] == end
            end = piece["end"]
            found += piece["text"]
    assert found == "".join(parts)
    assert end == len(before) + len(whole)


async def test_of_very_much_at_once_the_end_is_told(tmp_path: Path) -> None:
    """What is left out shows in where the piece starts."""
    texts = GrowingTexts(tmp_path, INFO, None)
    assert await texts.pieces(["a"]) == []
    written(tmp_path, b"x" * (3 * MOST_PIECE))
    ((piece),) = await texts.pieces(["a"])
    assert isinstance(piece, dict)
    assert (piece["start"], piece["end"]) == (2 * MOST_PIECE, 3 * MOST_PIECE)


async def test_what_is_written_behind_the_end_of_a_step_is_told(tmp_path: Path) -> None:
    """Files are written in the background: a step that has just ended is looked at once more."""
    texts = GrowingTexts(tmp_path, INFO, "a")
    written(tmp_path, b"on")
    await texts.pieces(["a"])
    written(tmp_path, b"e")
    ((piece),) = await texts.pieces([])
    assert isinstance(piece, dict)
    assert piece["text"] == "e"
