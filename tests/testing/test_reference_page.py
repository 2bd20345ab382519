"""The page *The test kit* names what the kit has, with its parameters and their defaults."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import attrs
import pytest

from handrail import testing
from handrail.testing import contracts, fake_programs, plugin
from handrail.testing.fake_programs.acts import FAILURES, MOMENTS, Faults
from handrail.testing.fake_programs.cli import LACKING, PROGRAMS

PAGE = (Path(__file__).parents[2] / "docs/reference/testing.md").read_text("utf-8")
FAULTS = {field.name for field in attrs.fields(Faults)}
INSIDE = {
    "Script": {"begin", "options", "context_of", "is_in_flight", "end_attempt", "run_id"},
    "FakeAgent": {"ended_uncalled"},
    "TextJournal": {
        *set(dir(testing.MemorySink())),
        *("durable", "append", "append_run", "acquire", "give_back", "post", "letters", "close"),
        "runs",
    },
}
"""What is public for the kit's own parts, or is of the port."""


def rows(title: str) -> list[str]:
    """The first cells of the tables under the heading."""
    found = re.search(rf"^## `?{title}`?\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert found is not None, title
    return re.findall(r"^\| (.*?) \|", found[1], re.MULTILINE)


def named(cells: Iterable[str]) -> set[str]:
    """The names in code in these cells."""
    return {name for cell in cells for name in re.findall(r"`\.?(\w+)[^`]*`", cell)}


def signatures() -> list[tuple[str, str]]:
    """Each call that a table shows, with its heading."""
    found: list[tuple[str, str]] = []
    for title in re.findall(r"^## `?(\w+)`?$", PAGE, re.MULTILINE):
        for cell in rows(title):
            calls = re.findall(r"`((?:await )?\.?[\w.]+\([^`]*\))`", cell)
            found += [(title, call) for call in calls if "(...)" not in call]
    return found


def test_the_page_lists_the_public_names() -> None:
    """Each name of the kit is in the first table, and no other."""
    listed = re.findall(r"^\| `(\w+)` \|", PAGE.partition("\n## ")[0], re.MULTILINE)
    assert sorted(listed) == sorted([*testing.__all__, "contracts", "strategies"])


def test_the_page_shows_many_calls() -> None:
    """The table test below has something to look at."""
    assert len(signatures()) > 50


@pytest.mark.parametrize(("title", "call"), signatures())
def test_a_call_has_the_parameters_of_the_page(title: str, call: str) -> None:
    """Their names in order, which have a default, and plain defaults."""
    name, _, rest = call.partition("(")
    is_of_module = title == "Acts" or bool(re.match(r"[A-Za-z]\w*$", name))
    owner: Any = testing if is_of_module else getattr(testing, title)
    thing = getattr(owner, name.removeprefix("await ").rpartition(".")[2])
    (function,) = ast.parse(f"def f({rest}: pass").body
    assert isinstance(function, ast.FunctionDef)
    shown = function.args
    missing: list[ast.expr | None] = [None] * (len(shown.args) - len(shown.defaults))
    page_has = dict(zip([one.arg for one in shown.args], missing + shown.defaults, strict=True))
    if shown.vararg:
        page_has[shown.vararg.arg] = None
    page_has |= dict(zip([one.arg for one in shown.kwonlyargs], shown.kw_defaults, strict=True))
    if shown.kwarg:
        page_has[shown.kwarg.arg] = None
    left_out = FAULTS if inspect.isclass(thing) and issubclass(thing, Faults) else set()
    real = {
        one.name: one.default
        for one in inspect.signature(thing).parameters.values()
        if one.name not in {"self", *left_out}
    }
    assert list(page_has) == list(real)
    for one, default in page_has.items():
        assert (default is None) == (real[one] is inspect.Parameter.empty), one
        if isinstance(default, ast.Constant) and default.value is not ...:
            assert real[one] == default.value, one


@pytest.mark.parametrize(
    "title",
    ["Script", "Pending", "FakeAgent", "MemorySink", "FakeCli", "FakeCall", "TextJournal"],
)
def test_the_page_has_every_public_part(title: str) -> None:
    """No method or property of a class is left out."""
    parts = {name for name in vars(getattr(testing, title)) if not name.startswith("_")}
    assert parts - {"emit", "run"} - INSIDE.get(title, set()) <= named(rows(title))


def test_the_page_has_every_option() -> None:
    """Of a script, of crashes, of what a fake program does, and of what crashes tell."""
    assert named(rows("Script")) >= set(inspect.signature(testing.Script.options).parameters)
    options = inspect.signature(testing.crash_everywhere).parameters.values()
    by_keyword = {one.name for one in options if one.kind is one.KEYWORD_ONLY}
    assert named(rows("crash_everywhere")) >= by_keyword
    told = PAGE.partition("\n`Crashes` has ")[2].partition("An `AssertionError`")[0]
    assert set(re.findall(r"`(\w+)`", told)) >= set(testing.Crashes.__slots__)
    assert named(rows("Acts")) >= FAULTS


def test_the_page_has_every_failure_and_moment() -> None:
    """And of each failure, the programs that have no words for it."""
    assert set(re.findall(r'`"(\w+)"`', " ".join(rows("Acts")))) == {*FAILURES, *MOMENTS}
    for cell, who in re.findall(r'^\| (`"\w+".*?) \|([^|]*)\|$', PAGE, re.MULTILINE):
        for kind in set(re.findall(r'`"(\w+)"`', cell)) & set(FAILURES):
            every = set(PROGRAMS) - {"claude"} if "all but" in who else None
            without = set(re.findall(r"\w+", who)) if every is None else every
            assert without == {name for name in PROGRAMS if kind in LACKING[name]}, kind


def test_the_page_has_every_fixture_and_contract() -> None:
    """Those of the pytest plugin, those of the contracts, and the types for annotations."""
    fixtures = {name for name, one in vars(plugin).items() if "Fixture" in type(one).__name__}
    assert set(re.findall(r"`(\w+)`", " ".join(rows("Pytest fixtures")))) == fixtures
    listed = re.findall(r"^\| `(\w+Contract)`", PAGE, re.MULTILINE)
    assert set(listed) == set(contracts.__all__)
    assert {"Act", "Failure", "Moment", "Program"} <= set(fake_programs.__all__)
