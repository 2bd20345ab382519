"""Who adds a verb, a command, an event or a modifier is told of each place that must know it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import handrail

PACKAGE = Path(handrail.__file__).parent
TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs/explanation/core.md").read_text("utf-8")

VERB = '''

@dataclass(frozen=True, slots=True)
class Sing(Leaf):
    """Sing a song."""

    kind: ClassVar[str] = "sing"
    song: str
'''
COMMAND = '''class Whistle(msgspec.Struct, frozen=True):
    """Whistle."""

    path: str


Command: TypeAlias = (
    Whistle
    | '''
EVENT = '''@dataclass(frozen=True, slots=True)
class Sung(Stamped):
    """A song was sung."""

    path: str


Event: TypeAlias = (
    Sung
    | '''
ADDED: Mapping[str, tuple[tuple[str, str], ...]] = {
    "steps/leaves.py": (("\nclass NotParsed", f"{VERB}\n\nclass NotParsed"),),
    "core/commands.py": (("Command: TypeAlias = (\n    ", COMMAND),),
    "model/events.py": (("Event: TypeAlias = (\n    ", EVENT),),
    "steps/verbs.py": (
        (
            "    checkpoint: bool = False\n",
            "    checkpoint: bool = False\n    loudly: bool = False\n",
        ),
    ),
}
"""What is added to which file: before a text, or in its place."""
LISTED: Mapping[str, tuple[tuple[str, str], ...]] = {
    "steps/table.py": (("    leaves.PythonCall,\n", "    leaves.PythonCall,\n    leaves.Sing,\n"),)
}
"""The verb's row."""
FIELD: Mapping[str, tuple[tuple[str, str], ...]] = {
    "model/events.py": (
        (
            "    path: str\n    index: int\n\n",
            "    path: str\n    index: int\n    loudness: int = 0\n\n",
        ),
    )
}
"""A field of ``StepMoved``."""
CHECKED = "steps.table core.conductor core.machine record.rows sinks.event_words"
BY_THE_TYPE_CHECKER = {
    'steps/table.py: Only concrete class can be given where "type[Verb]" is expected',
    (
        'core/conductor.py: Argument 1 to "assert_never" has incompatible type "Whistle"; '
        'expected "Never"'
    ),
}
BY_TESTS = {
    "test_a_table_has_a_row_for_each_event[the texts for people: FORMS]",
    "test_a_table_has_a_row_for_each_event[the live view: LiveRun]",
    "test_a_table_has_a_row_for_each_event[the record of a run: Recorded]",
    "test_a_table_has_a_row_for_each_event[what follows: REACTIONS]",
    "test_each_modifier_has_a_word",
    "test_each_verb_has_a_row",
}


def changed(folder: Path, changes: Mapping[str, tuple[tuple[str, str], ...]]) -> None:
    """Change files of a copy of the package."""
    for name, pairs in changes.items():
        text = (folder / name).read_text("utf-8")
        for before, after in pairs:
            assert before in text, name
            text = text.replace(before, after)
        (folder / name).write_text(text, "utf-8")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the package to which one of each is added."""
    folder = tmp_path / "handrail"
    shutil.copytree(PACKAGE, folder, ignore=shutil.ignore_patterns("__pycache__", "*.js", "*.css"))
    changed(folder, ADDED)
    return folder


def outcome_of(copy: Path, *what: str) -> str:
    """What pytest prints of tests that import the copy."""
    pytest_ = (sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider")
    environment = {**os.environ, "PYTHONPATH": str(copy.parent)}
    done = subprocess.run(
        [*pytest_, *what], cwd=TESTS, env=environment, capture_output=True, text=True, check=False
    )
    return done.stdout


@pytest.mark.extra("mypy")
def test_the_type_checker_names_what_is_missing(copy: Path) -> None:
    """It names the row of a verb that lacks a method, and the host that drops a command."""
    changed(copy, LISTED)
    modules = [word for name in CHECKED.split() for word in ("-m", f"handrail.{name}")]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--ignore-missing-imports", *modules],
        cwd=copy.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.findall(r"(?m)^handrail/(\S+?):\d+: error: (.*?)  \[", done.stdout)
    assert {f"{file}: {error}" for file, error in found} == BY_THE_TYPE_CHECKER, done.stdout


def test_the_tests_name_what_is_missing(copy: Path) -> None:
    """They name the list that lacks the verb, the tables that lack the event, and the modifier."""
    done = outcome_of(copy, "core/test_closed_sets.py")
    found = re.findall(r"(?m)^FAILED \S+?::(.*?)(?: - .*)?$", done)
    assert set(found) == BY_TESTS, done


def test_a_field_needs_a_range_of_values(copy: Path) -> None:
    """The law that an event comes back equal cannot be tried before it has one."""
    changed(copy, FIELD)
    done = outcome_of(copy, "--collect-only", "model/test_records.py")
    assert "KeyError: 'loudness'" in done


def checklist(of: str) -> set[str]:
    """What a list of the page names: files, and tables in them."""
    _, _, behind = PAGE.partition(f"### {of}\n")
    return set(re.findall(r"`([^`]+)`", re.split(r"\n##", behind)[0]))


PLACES: Mapping[str, set[str]] = {
    "A verb": {"steps/table.py"},
    "A command": {"core/commands.py", "core/conductor.py"},
    "An event": {one.partition(": ")[2].rstrip("]") for one in BY_TESTS if ": " in one},
    "A field of an event": {"tests/model/test_records.py"},
    "A modifier": {"steps/verbs.py"},
}
"""What the checkers name."""


@pytest.mark.parametrize("of", PLACES)
def test_a_checklist_names_what_the_checkers_name(of: str) -> None:
    """Whoever has done what it says is told of nothing more."""
    assert checklist(of) >= PLACES[of]


@pytest.mark.parametrize("of", PLACES)
def test_what_a_checklist_names_is_there(of: str) -> None:
    """Each file that it names exists, and each table stands in one of them."""
    names = checklist(of)
    files = [name for name in names if name.endswith(".py")]
    found = [TESTS.parent / name if name.startswith("tests/") else PACKAGE / name for name in files]
    texts = "".join(path.read_text("utf-8") for path in found)
    assert [
        name for name in names - {*files} if name.rpartition(".")[2].strip("(.)") not in texts
    ] == []
