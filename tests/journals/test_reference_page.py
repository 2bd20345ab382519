"""The page *The journal* describes the tables, events and values as they are written."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import fractions
import re
import sqlite3
import types
import typing
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass, fields
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest

from handrail import Codec, Skipped, TypeCodec
from handrail.codec.reading import _READERS
from handrail.journals.sqlite.open import APPLICATION_ID, FORMAT, TABLES
from handrail.journals.sqlite.rows import LARGE
from handrail.model.results import StepResult
from handrail.record import outputs as composed
from handrail.record.rows import LAYOUTS, Record, from_record, to_record
from handrail.secrets.sealing import seal_text
from handrail.secrets.spellings import SPELLINGS
from handrail.steps import groups

PAGE = (Path(__file__).parents[2] / "docs/reference/journal.md").read_text("utf-8")


def test_the_tables_have_the_columns_of_the_page() -> None:
    """Each table and view, each column, each index, and the numbers of the format."""
    database = sqlite3.connect(":memory:")
    database.executescript(TABLES)
    written: dict[str, list[str]] = {}
    for title, text in re.findall(r"^### `(\w+)`.*?\n(.*?)(?=^##)", PAGE, re.DOTALL | re.MULTILINE):
        rows = re.findall(r"^\| (`.*?`) \|", text, re.MULTILINE)
        written[title] = sorted(name for row in rows for name in re.findall(r"`(\w+)`", row))
    names = "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')"
    there = {
        name: sorted(column[1] for column in database.execute(f"PRAGMA table_info({name})"))
        for (name,) in database.execute(names).fetchall()
    }
    indexes = "SELECT name FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL"
    for (index,) in database.execute(indexes):
        assert f"`{index}`" in PAGE
    database.close()
    assert there == written
    assert f"`PRAGMA application_id` is {APPLICATION_ID} " in PAGE
    assert f"number of the format, now {FORMAT}." in PAGE
    assert f"more than {LARGE:,} characters" in PAGE


def listing() -> dict[str, list[list[str]]]:
    """The kinds of events on the page, each with its body and, if it has one, its value."""
    (text,) = re.findall(r"^```text\n(WorkflowStarted.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    return {
        kind: [line.split(None, 1) for line in lines.splitlines()]
        for kind, lines in re.findall(r"^(\w+)\n((?:  .*\n)+)", text, re.MULTILINE)
    }


def test_the_page_has_every_kind_of_event() -> None:
    """No event is written that the page does not know."""
    assert set(listing()) == {layout.kind for layout in LAYOUTS.values()}


@pytest.mark.parametrize(("event", "layout"), LAYOUTS.items(), ids=lambda one: str(one)[:40])
def test_an_event_of_the_page_is_read_and_written_again(event: Any, layout: Any) -> None:
    """It has each field of its class, and comes back as it was."""
    body, *values = listing()[layout.kind]
    assert [name for name, _ in values] == ([layout.value] if layout.value else [])
    names = {field.name for field in fields(event)}
    path = "step" if "path" in names else ""
    record = Record(layout.kind, path, body[1], values[0][1] if values else None)
    codec = Codec()
    again = to_record(from_record("r", 1, 1.0, record, codec), codec)
    assert (again.path, again.value) == (record.path, record.value)
    assert codec.load(again.body) == codec.load(record.body)
    names -= {"run_id", "seq", "at", "path", layout.value}
    if "result" in names:
        names |= {field.name for field in fields(StepResult)} | {"result_path"}
        names -= {"result", "path", "output", "at"}
    assert set(codec.load(body[1])) == names - {"composed"}  # then there is no value


def test_the_page_says_how_outputs_are_composed() -> None:
    """Each way in which an output is made of those of others has its row."""
    ways = (groups.OUTPUTS, groups.RESULTS, composed.CHILD, groups.winner("PATH"))
    for way in (*ways, composed.WORKFLOW, "arm INDEX PATH"):
        assert f"| `{way}` |" in PAGE
    assert composed.arm(0, "p") == "arm 0 p"


@dataclass
class Point:
    x: int
    y: int


class Color(enum.Enum):
    RED = 1


class Access(enum.Flag):
    READ = 1
    WRITE = 2


class Money:
    def __init__(self, cents: int) -> None:
        self.cents = cents


VALUES = re.findall(r"^\| `(.*)` \| `(\{.*\})` \|$", PAGE.split("\n## Values")[1], re.MULTILINE)
NAMES = {
    **{name: getattr(module, name) for module, names in (
        (dt, ("UTC", "date", "datetime", "time", "timedelta", "timezone")),
        (decimal, ("Decimal",)), (fractions, ("Fraction",)), (typing, ("Literal",)),
        (types, ("MappingProxyType",)),
    ) for name in names},
    **{cls.__name__: cls for cls in (
        Counter, OrderedDict, defaultdict, deque, Path, PurePosixPath, PureWindowsPath, UUID,
        ZoneInfo, Skipped, Point, Color, Access, Money,
    )},
    "msgspec": msgspec,
}  # fmt: skip


@pytest.mark.parametrize(("value", "text"), VALUES)
def test_a_value_is_written_as_the_page_shows(value: str, text: str) -> None:
    """It has this text, and comes back as an object of its class."""
    codec = Codec([TypeCodec(Money, lambda money: money.cents, Money, "shop:Money")])
    made: Any = eval(value, NAMES)
    # classes that a value of the page has belong to the page, as far as a reader is concerned
    written = codec.dump(made).replace(f'"{__name__}:', '"page:')
    assert written == text
    assert type(codec.load(codec.dump(made), type(made))) is type(made)


def test_the_page_has_every_tag() -> None:
    """Each tag that can be read, and those of types and of secrets."""
    shown = set(re.findall(r'"\$":"(\w+)"', PAGE.split("\n## Values")[1]))
    assert shown == {*_READERS, "type", "secret"}


def test_the_page_has_every_spelling_of_a_secret() -> None:
    """And the example of a sealed text is one."""
    for spelling in SPELLINGS:
        for part in re.split(" in | (?=after)", spelling):
            assert not part or f"`{part}`" in PAGE
    secret = '{"$":"secret","v":["Bearer ",{"env":"API_KEY"}]}'
    assert secret in PAGE
    assert seal_text('"Bearer abcdefgh"', {"API_KEY": "abcdefgh"})[0] == secret
