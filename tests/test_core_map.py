"""The map of the core, docs/explanation/core.md, names what is there."""

from __future__ import annotations

import ast
import inspect
import re
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

import handrail

PAGE = (Path(__file__).parent.parent / "docs/explanation/core.md").read_text("utf-8")
PACKAGE = Path(handrail.__file__).parent
ROOMS = ("core", "engine", "record")
PACKAGES = ("cli", "journals", "record")
CALLS = sorted(set(re.findall(r"`([a-z_]+)\.([A-Za-z_.]+)`", PAGE)))
MODULES = sorted(set(re.findall(r"`(handrail\.[a-z_.]+)`", PAGE)))
FILES = sorted(set(re.findall(r"`([a-z_]+(?:/[a-z_]+)+\.(?:py|tsx))`", PAGE)))
NODES = sorted(set(re.findall(r"`([A-Z][A-Za-z]+Node)`", PAGE)))
ROWS = PAGE.split("| module |")[1].split("Sometimes")[0]
TABLE = [re.findall(r"`([a-z_]+)`", cell) for cell in re.findall(r"(?m)^\| (`[^|]*) \|", ROWS)]
"""The parts of the core, by rows."""
ROADS = PAGE.split("| the road |")[1].split("\n\n")[0]
ROAD = [re.findall(r"`([a-z_]+\.[A-Za-z_.]+)`", line)[:2] for line in ROADS.splitlines()[2:]]
"""The fast roads, each with the long one that it is kept equal to."""


def module_of(name: str) -> Any:
    """The module of the engine, the core or the record that has this name."""
    rooms = [room for room in ROOMS if (PACKAGE / room / f"{name}.py").exists()]
    return import_module(f"handrail.{rooms[0]}.{name}")


def function_named(name: str) -> Any:
    """What the page calls by this name: in a module of a room, or by its path in the package."""
    module, _, function = name.partition(".")
    if module not in PACKAGES:
        return attrgetter(function)(module_of(module))
    parts = name.split(".")
    count = max(
        n for n in range(len(parts)) if (PACKAGE.joinpath(*parts[:n])).with_suffix(".py").is_file()
    )
    return attrgetter(".".join(parts[count:]))(import_module(f"handrail.{'.'.join(parts[:count])}"))


def imported_by(path: Path) -> set[str]:
    """The modules of the core that one of them imports, in annotations too."""
    tree = ast.parse(path.read_text("utf-8"))
    found = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    names = {node.module.removeprefix("handrail.core.") for node in found if node.module}
    names |= {one.name for node in found if node.module == "handrail.core" for one in node.names}
    return {name for name in names if (path.parent / f"{name}.py").exists()}


@pytest.mark.parametrize(
    "name", [".".join(call) for call in CALLS if call[0] not in {"handrail", "pyproject"}]
)
def test_what_a_walk_goes_through_is_there(name: str) -> None:
    """Each function that the page names is in the module that it names."""
    assert function_named(name) is not None


@pytest.mark.parametrize(("fast", "long"), ROAD)
def test_a_fast_road_is_marked_at_both_ends(fast: str, long: str) -> None:
    """Whoever changes one of the two reads there which the other is."""
    assert f"# fast road of {long}\n" in inspect.getsource(function_named(fast))
    assert f"# long road of {fast}\n" in inspect.getsource(function_named(long))


def test_each_mark_of_a_fast_road_is_in_the_table() -> None:
    """None is kept of which the page does not say what it buys."""
    texts = [path.read_text("utf-8") for path in PACKAGE.rglob("*.py")]
    marks = {end for text in texts for end in re.findall(r"# (?:fast|long) road of (\S+)", text)}
    assert marks == {end for road in ROAD for end in road}


@pytest.mark.parametrize("room", [*ROOMS, "journals.sqlite"])
def test_what_a_room_says_of_itself_is_there(room: str) -> None:
    """Each module, and each function in one, that the text of a package names is in it."""
    folder = PACKAGE / room.replace(".", "/")
    text = import_module(f"handrail.{room}").__doc__ or ""
    names = re.findall(r"``([a-z_]+)(?:\.([A-Za-z_.]+))?``", text)
    assert names
    for module, function in names:
        assert (folder / f"{module}.py").exists()
        if function:
            assert attrgetter(function)(import_module(f"handrail.{room}.{module}")) is not None


@pytest.mark.parametrize("name", MODULES)
def test_each_module_is_there(name: str) -> None:
    """Each module that is named whole can be imported."""
    assert import_module(name).__name__ == name


@pytest.mark.parametrize("name", FILES)
def test_each_file_is_there(name: str) -> None:
    """Each file that the page sends its reader to is there."""
    assert (PACKAGE / name).is_file() or (Path(__file__).parents[1] / name).is_file()


def test_the_table_has_every_part_of_the_core_once() -> None:
    """The table of the core's parts names each module of the core, and nothing else."""
    core = {path.stem for path in (PACKAGE / "core").glob("*.py")} - {"__init__"}
    assert sorted(name for row in TABLE for name in row) == sorted(core)


def test_a_part_of_the_core_imports_those_below_it() -> None:
    """The rows of the table stand in the order of the imports."""
    row_of = {name: number for number, row in enumerate(TABLE) for name in row}
    upward = [
        (name, below)
        for name in row_of
        for below in imported_by(PACKAGE / "core" / f"{name}.py")
        if row_of[below] < row_of[name]
    ]
    assert upward == []


def test_contributing_points_to_each_list_of_what_to_add() -> None:
    """CONTRIBUTING links each list of the page by its heading, and has no list of its own."""
    _, _, lists = PAGE.partition("## To add something")
    titles = re.findall(r"(?m)^### (.*)$", lists.partition("\n## ")[0])
    text = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text("utf-8")
    linked = re.findall(r"\(docs/explanation/core\.md#([a-z-]+)\)", text)
    assert linked == [title.lower().replace(" ", "-") for title in titles]


def test_the_kinds_of_nodes_are_all_named() -> None:
    """The page names each class of node that a verb has."""
    from handrail.core.machine import NODE_TYPES
    from handrail.steps.table import VERBS

    assert {NODE_TYPES[verb].__name__ for verb in VERBS.values()} == set(NODES)


def test_there_are_twelve_actions() -> None:
    """The page counts the internal actions of the core right."""
    from typing import get_args

    from handrail.core.run_state import Action

    assert "There are twelve actions" in PAGE
    assert len(get_args(Action)) == 12
