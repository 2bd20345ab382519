"""What is shortened before it is masked leaves no piece of a secret in anything that is written."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest

from handrail import (
    Agent,
    CommandBackend,
    ConsoleSink,
    Executor,
    FakeBackend,
    JsonlSink,
    SqliteJournal,
    Stage,
    Steps,
    step,
    workflow,
)
from handrail.sinks.artifacts import ArtifactsSink

pytestmark = pytest.mark.extra("jinja2", "rich")

SECRET = "Zq7Wx9Kv3Rt5Np1Mb8Lc2Hd4Gf6"
PIECES = [SECRET[start : start + 6].encode() for start in range(len(SECRET) - 5)]
# From either end of a text; and twice as far where both ends are kept.
CUTS = [40, 80, 120, 160, 200, 250, 300, 500, 600, 1_000, 2_000, 2_500, 4_000, 5_000, 20_000]
LENGTH = 2 * CUTS[-1] + 200


def seeded() -> str:
    """Words with the secret across every place at which something is cut."""
    words = list("it said " * (LENGTH // 8))
    for cut in CUTS:
        for middle in (cut, LENGTH - cut):
            start = middle - len(SECRET) // 2 - 1
            words[start : start + len(SECRET) + 2] = f" {SECRET} "
    return "".join(words)


class Opaque:
    """An object of which nothing is known but its text."""

    def __repr__(self) -> str:
        return seeded()


def fail() -> None:
    """Fails, and has much to say."""
    raise ValueError(seeded())


@workflow
def shortens(file: str) -> Steps[None]:
    """Has something shortened wherever that is done."""
    say = [sys.executable, "-c", f"print(open({file!r}).read()); exit(3)"]
    complain = f"cat '{file}' >&2; exit 3"
    answers = [seeded(), f'{{"a": "{seeded()}", oops', "no number"]
    program = Agent("program", "Go.", backend=CommandBackend(complain))
    vague = Agent("vague", "Go.", output=int, backend=FakeBackend(answers), max_reasks=2)
    yield from step("said").command(say).skip_on_error()
    yield from step("complained").command(complain).skip_on_error()
    yield from step("parsed").command(["cat", file], parse=int).skip_on_error()
    yield from step("nul").command(["echo", seeded(), "\0"]).skip_on_error()
    yield from step("raised").call(fail).skip_on_error()
    yield from step("checked").validate([Stage("say", say)], retry=0).skip_on_error()
    yield from step("program").agent(program).skip_on_error()
    yield from step("vague").agent(vague).skip_on_error()
    opaque: Any = Opaque
    yield from step("context").agent(vague, lambda _: opaque()).skip_on_error()


@pytest.mark.parametrize("cut", [-9, 0, 9])
def test_nothing_that_is_written_has_a_piece_of_a_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: int
) -> None:
    """Journal, lines, console, artifacts and report, of errors that quote far too long texts."""
    from rich.console import Console

    monkeypatch.setenv("API_KEY", SECRET)
    monkeypatch.setattr(sys.modules[__name__], "LENGTH", LENGTH + cut)
    file = tmp_path / "said.txt"
    file.write_text(seeded())
    written = tmp_path / "written"
    written.mkdir()
    screen = io.StringIO()
    result: Any = Executor(
        journal=SqliteJournal(written / "runs.db"),
        sinks=[
            JsonlSink(written / "lines.jsonl"),
            ConsoleSink(Console(file=screen, width=400), live=False),
            ArtifactsSink(written / "runs"),
        ],
    ).run_sync(shortens, str(file))
    assert result.success, result.error
    data = {str(path): path.read_bytes() for path in written.rglob("*") if path.is_file()}
    data["console"] = screen.getvalue().encode()
    for name, found in data.items():
        for piece in PIECES:
            at = found.find(piece)
            assert at < 0, f"{name} has {found[max(0, at - 60) : at + 60]!r}"
    assert b"${API_KEY}" in data["console"]
    assert b"API_KEY" in data[str(written / "runs.db")]
