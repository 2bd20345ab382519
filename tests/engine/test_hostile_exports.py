"""Files of runs that were changed: by chance, or on purpose, and with checksums that are right."""

from __future__ import annotations

import hashlib
import io
import json
import random
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from handrail import DamagedExport, Executor, HandrailError, Steps, step, workflow
from handrail.record.exports import read_export
from handrail.testing import TextJournal, replay

ODD: tuple[Any, ...] = (
    *(None, -1, 0, 1e308, 10**30, 2**63, "", "x" * 10_000, [], {}, [[]], True, 1.5),
    *("é", {"a": {"b": 1}}, "../../etc", "\x00"),
)


@workflow
def child(n: int) -> Steps[int]:
    """A step below a step."""
    return (yield from step("c").call(abs, n))


@workflow
def flow(n: int = 3) -> Steps[Any]:
    """Something of each kind, with a large value and a question."""
    yield from step("large").call(str.upper, "x" * 20_000)
    yield from step("group").parallel(step("p").call(abs, -1), step("q").run_workflow(child, 2))
    yield from step("each").for_each([1, 2], lambda one: step("s").call(float, one))
    yield from step("ask").ask("Yes?", choices=["y", "n"])
    return (yield from step("wait").wait_for("go", int))


def closed(said: Sequence[bytes], end: dict[str, Any]) -> bytes:
    """A file of these lines, which stand without their last brace, with the right checksums."""
    crc, whole, lines = 0, hashlib.sha256(), list[bytes]()
    for one in said:
        crc = crc32(one, crc)
        lines.append(one + b',"crc":' + str(crc).encode() + b"}\n")
        whole.update(lines[-1])
    last = json.dumps({**end, "sha256": whole.hexdigest()}, separators=(",", ":")).encode()[:-1]
    return b"".join([*lines, last, b',"crc":', str(crc32(last, crc)).encode(), b"}\n"])


def edited(line: bytes, draw: random.Random) -> bytes:
    """A line with something odd at some place in it, at any depth; without its last brace."""
    whole = json.loads(line)
    del whole["crc"]
    here: Any = whole
    while True:
        name = draw.choice(list(here) if isinstance(here, dict) else range(len(here)))
        if draw.random() < 0.4 or not isinstance(here[name], (dict, list)) or not here[name]:
            break
        here = here[name]
    if draw.random() < 0.2:
        del here[name]
    else:
        here[name] = draw.choice(ODD)
    return json.dumps(whole, separators=(",", ":")).encode()[:-1]


def changed(good: bytes, draw: random.Random) -> bytes:
    """A file in which something is not as it was."""
    lines, place = good.splitlines(keepends=True), draw.randrange(len(good))
    number = draw.randrange(len(lines) - 1)
    match draw.choice(["bit", "cut", "more", "order", "edit", "edit", "edit", "deep"]):
        case "bit":
            return good[:place] + bytes([good[place] ^ 1 << draw.randrange(8)]) + good[place + 1 :]
        case "cut":
            return good[:place]
        case "more":
            return good[:place] + draw.randbytes(draw.randrange(1, 9)) + good[place:]
        case "order":
            number = draw.randrange(1, len(lines) - 2)
            lines[number : number + 2] = lines[number + 1], lines[number]
            return b"".join(lines)
        case how:
            said = [one.rpartition(b',"crc":')[0] for one in lines[:-1]]
            end = json.loads(lines[-1])
            del end["crc"]
            depth = draw.choice([500, 5_000, 100_000])
            deep = said[number] + b',"value":' + b"[" * depth + b"]" * depth
            said[number] = edited(lines[number], draw) if how == "edit" else deep
            return closed(said, end)


def test_a_changed_file_is_refused_or_can_be_worked_with(tmp_path: Path) -> None:
    """Of many, none that was changed by chance is taken; whoever writes the checksums, too,
    gets his run, or is refused: nobody who reads it later falls over it.
    """
    ours = Executor(journal=TextJournal(), workflows=[flow], gates=lambda _: "y")
    ours.options(run_id="r").run_sync(flow)
    ours.signal_sync("r", "go", 5)
    file = tmp_path / "run.jsonl"
    ours.export_sync("r", file)
    good, draw, taken = file.read_bytes(), random.Random(15), 0
    for _ in range(150):
        file.write_bytes(changed(good, draw))
        journal = TextJournal()
        executor = Executor(journal=journal, workflows=[flow])
        if refuses(partial(executor.import_run_sync, file), DamagedExport):
            assert journal.runs() == []
            continue
        taken += 1
        (run_id,) = (one.run_id for one in journal.runs())
        for read in (
            partial(executor.diff_sync, run_id, run_id),
            partial(executor.plan_sync, run_id),
            partial(executor.fork_sync, run_id),
            partial(executor.export_sync, run_id, tmp_path / "again.jsonl"),
            partial(replay, journal, flow, run_id=run_id),
        ):
            refuses(read, HandrailError)
    assert 10 < taken < 75


class Endless(io.RawIOBase):
    """Nothing but zeros, as in /dev/zero, and no line ends; ``left``: more are not asked for."""

    left = 1 << 20

    def readable(self) -> bool:
        """It can be read."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Fill the buffer."""
        self.left -= len(buffer)
        assert self.left > 0
        buffer[:] = bytes(len(buffer))
        return len(buffer)


def test_a_file_without_an_end_is_refused_by_its_beginning() -> None:
    """One that is no export need not be read to its end, or to that of its line."""
    with pytest.raises(DamagedExport, match="line 1: it is no line of an export"):
        read_export("zeros", io.BufferedReader(Endless()))


def refuses(does: Callable[[], object], error: type[Exception]) -> bool:
    """True if it raises this error, which has a text; any other one fails the test."""
    try:
        does()
    except error as refused:
        return bool(str(refused))
    return False
