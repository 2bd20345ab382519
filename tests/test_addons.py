"""The house knows no add-on: each may be left out, and registers itself as a stranger's does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import handrail
from handrail import addons

HOUSE = Path(handrail.__file__).parent
FOLDERS = {
    "temporal": (["temporal"], ["runs", "--temporal", "localhost:7233"]),
    "coordination": (["hub"], []),
    "mcp": (["mcp"], []),
    "web": (["ui"], []),
    "testing": ([], []),
    "yaml": (["convert"], []),
}
"""Each add-on's folder, its commands, and what else cannot be typed without it."""
FLOW = """\
from handrail import Executor, MemoryJournal, step, workflow


def add(one: int, other: int) -> int:
    return one + other


@workflow
def sums():
    total = yield from step("sum").call(add, 1, 2)
    sure = yield from step("sure?").ask("Sure?", type=bool, default=True)
    return total if sure else 0


if __name__ == "__main__":
    result = Executor(journal=MemoryJournal(), gates="default").run_sync(sums)
    print(result.status, result.value)
"""


def _without(folder: Path, *left_out: str) -> Path:
    """A place to import handrail from that lacks these folders."""
    package = folder / "place" / "handrail"
    package.mkdir(parents=True)
    for one in HOUSE.iterdir():
        if one.name not in left_out:
            (package / one.name).symlink_to(one)
    return package.parent


def _python(place: Path, home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    variables = {"PYTHONPATH": str(place), "NO_COLOR": "1", "COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, *words],
        cwd=home,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("left_out", [*[[one] for one in FOLDERS], list(FOLDERS)])
def test_the_house_stands_without_an_add_on(left_out: Sequence[str], tmp_path: Path) -> None:
    """Workflows run in memory and in SQLite, runs are read, and what is not there is not listed."""
    place = _without(tmp_path, *left_out)
    home = tmp_path / "home"
    home.mkdir()
    (home / "flow.py").write_text(FLOW, "utf-8")
    whose = _python(place, home, "-c", "import handrail; print(handrail.__file__)")
    assert Path(whose.stdout.strip()).is_relative_to(place), whose.stderr
    in_memory = _python(place, home, "flow.py")
    assert (in_memory.stdout, in_memory.stderr) == ("succeeded 3\n", "")
    command = ("-m", "handrail")
    words = ("run", "flow.py", "--run-id", "one", "--gates", "default")
    run = _python(place, home, *command, *words)
    assert (run.returncode, run.stdout) == (0, "3\n"), run.stderr
    (listed,) = json.loads(_python(place, home, *command, "runs", "--json").stdout)
    assert (listed["run_id"], listed["status"]) == ("one", "succeeded")
    shown = _python(place, home, *command, "show", "one")
    assert (shown.returncode, "sum" in shown.stdout) == (0, True), shown.stderr
    helps = _python(place, home, *command, "--help").stdout
    for folder, (commands, more) in FOLDERS.items():
        for name in commands:
            assert (f"│ {name} " in helps) == (folder not in left_out), (name, helps)
        for words in [[name] for name in commands if folder in left_out] + [more] * bool(more):
            if folder in left_out:
                refused = _python(place, home, *command, *words)
                assert refused.returncode == 2, refused.stdout
                assert "Unknown" in refused.stderr


def _registered_by(folder: Path, name: str, text: str) -> None:
    (folder / f"{name}-1.0.dist-info").mkdir()
    (folder / f"{name}-1.0.dist-info" / "entry_points.txt").write_text(text, "utf-8")
    (folder / f"{name}-1.0.dist-info" / "METADATA").write_text(f"Name: {name}\n", "utf-8")


GROUPS = [
    addons.COMMANDS,
    addons.JOURNALS,
    addons.BACKENDS,
    addons.SINKS,
    addons.PAGES,
    addons.FILES,
]


def test_what_is_registered_is_read_as_the_standard_library_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The house's own and strangers', with comments, blanks and other groups between."""
    from importlib.metadata import entry_points

    text = "[console_scripts]\nx = y:z\n\n[handrail.sinks]\n# theirs\nbell=acme:Bell\n\n"
    _registered_by(tmp_path, "acme", f"{text}[handrail.commands]\nlongest = acme.cli:longest\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for group in GROUPS:
        found = {one.name: one.value for one in entry_points(group=group)}
        assert dict(addons.registered(group)) == found, group
    assert addons.registered(addons.SINKS)["bell"] == "acme:Bell"


def test_a_checkout_that_was_not_installed_since_registers_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without any metadata on the path the project's file is read."""
    if not (HOUSE.parents[1] / "pyproject.toml").is_file():
        pytest.skip("handrail is not run from a checkout")
    known = {group: dict(addons.registered(group)) for group in GROUPS}
    monkeypatch.setattr(sys, "path", [])
    assert {group: dict(addons.registered(group)) for group in GROUPS} == known


def test_what_cannot_be_imported_is_named(tmp_path: Path) -> None:
    """The list of commands shows it, with why; the command ends with one line."""
    _registered_by(tmp_path, "acme", "[handrail.commands]\nlongest = acme_is_gone:longest\n")
    place = f"{tmp_path}{os.pathsep}{HOUSE.parent}"
    helps = _python(Path(place), tmp_path, "-m", "handrail", "--help")
    assert (helps.returncode, "acme_is_gone:longest" in helps.stdout) == (0, True), helps.stderr
    done = _python(Path(place), tmp_path, "-m", "handrail", "longest")
    assert done.returncode == 2
    assert "'longest' of 'handrail.commands' is registered as acme_is_gone:longest" in done.stderr


def test_a_command_whose_library_is_missing_is_listed_with_its_help(tmp_path: Path) -> None:
    """With the extra that brings it; when it is typed, one line says how to install that."""
    (tmp_path / "yaml.py").write_text("raise ImportError\n", "utf-8")  # as if it were not there
    place = Path(f"{tmp_path}{os.pathsep}{HOUSE.parent}")
    helps = _python(place, tmp_path, "-m", "handrail", "--help")
    said = " ".join(helps.stdout.replace("│", " ").split())
    assert "Write a workflow file as Python. (needs handrail[yaml])" in said, helps.stderr
    done = _python(place, tmp_path, "-m", "handrail", "convert", "flow.yaml")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.endswith('needs PyYAML: pip install "handrail[yaml]"\n')
