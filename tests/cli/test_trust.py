"""Whose code the command runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from handrail import Executor, SqliteJournal, Steps, step, workflow
from handrail.cli import trusted
from handrail.cli.journal import Place
from handrail.web.beside import page_of
from tests.cli.conftest import Cli

MARKS = 'from pathlib import Path\nPath(__file__).with_name("ran").write_text("it ran")\n'
FLOW = """\
from handrail import step, workflow


@workflow
def hello():
    return (yield from step("say").call(str, "hello"))
"""
READING: Sequence[Sequence[str]] = (
    ("runs",),
    ("show", "one"),
    ("show", "one", "say"),
    ("tail", "one"),
    ("verify",),
    ("export", "one"),
    ("report", "one"),
    ("report", "one", "-o", "one.html"),
    ("diff", "one", "two"),
    ("list", "."),
    ("graph", "flow.py"),
    ("doctor",),
)


@workflow
def hello() -> Steps[str]:
    """Say hello."""
    return (yield from step("say").call(str, "hello"))


def make_runs(folder: Path, **labels: str) -> None:
    """Two runs in the folder's journal, with these labels."""
    journal = SqliteJournal(folder / ".handrail" / "runs.db")
    for run_id in ("one", "two"):
        Executor(journal=journal).options(run_id=run_id, labels=labels).run_sync(hello)
    journal.close()


@pytest.mark.parametrize("words", READING, ids=" ".join)
@pytest.mark.parametrize("how", ["executor", "sinks", "target"])
def test_what_reads_runs_no_code(how: str, words: Sequence[str], cli: Cli, folder: Path) -> None:
    """Neither what the project names, nor what a record names."""
    (folder / "evil.py").write_text(MARKS + FLOW)
    (folder / "flow.py").write_text(FLOW)
    table = {"executor": 'executor = "evil:make"', "sinks": 'sinks = ["evil:make"]', "target": ""}
    (folder / "pyproject.toml").write_text(f"[tool.handrail]\n{table[how]}\n")
    make_runs(folder, **({"target": "evil.py:hello"} if how == "target" else {}))
    assert "Traceback" not in cli(*words).err
    assert not (folder / "ran").exists()


@pytest.mark.parametrize(
    "words", [("plan", "one"), ("resume", "one"), ("resume", "--all"), ("answer", "one", "a", "b")]
)
@pytest.mark.parametrize("label", ["target", "executor"])
def test_a_record_names_no_code_of_elsewhere(
    label: str,
    words: Sequence[str],
    cli: Cli,
    folder: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """A TARGET outside of the project counts only if a person types it."""
    evil = tmp_path_factory.mktemp("elsewhere") / "evil.py"
    evil.write_text(MARKS + FLOW)
    (folder / "flow.py").write_text(FLOW)
    labels = {"target": "flow.py:hello", label: f"{evil}:hello"}
    make_runs(folder, **labels)
    if words[0] == "answer":
        cli(*words)
    else:
        outcome = cli(*words)
        assert (f"its code is {evil}:hello" in outcome.err) == (words != ("resume", "--all"))
    assert not evil.with_name("ran").exists()
    if label == "target":
        assert cli("plan", "one", "--target", f"{evil}:hello").code == 0
        assert evil.with_name("ran").exists()


@pytest.mark.parametrize("elsewhere", [False, True])
def test_no_request_for_the_page_imports_anything(
    elsewhere: bool, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The chart is drawn from the source, if that is in the project."""
    from starlette.testclient import TestClient

    evil = (tmp_path_factory.mktemp("elsewhere") if elsewhere else folder) / "evil.py"
    evil.write_text(MARKS + FLOW)
    make_runs(folder, target=f"{evil}:hello" if elsewhere else "evil.py:hello")
    place = Place(folder / ".handrail")
    page = TestClient(page_of(place, place.find(), "t" * 24), base_url="http://127.0.0.1")
    for address in ("", "/graph", "/record"):
        got = page.get(f"/api/runs/one{address}", headers={"authorization": f"Bearer {'t' * 24}"})
        if address == "/graph":
            assert (got.json()["graph"] is None) == elsewhere
    assert not evil.with_name("ran").exists()


@pytest.mark.parametrize("label", ["target", "executor"])
def test_an_imported_run_names_no_code(label: str, cli: Cli, folder: Path) -> None:
    """It did not begin here, so what lies in the project counts only if a person types it."""
    (folder / "evil.py").write_text(MARKS + FLOW)
    (folder / "flow.py").write_text(FLOW)
    make_runs(folder, **({"target": "flow.py:hello"} | {label: "evil.py:hello"}))
    assert cli("export", "one", "-o", "one.jsonl").code == 0
    assert cli("import", "one.jsonl", "--run-id", "other").code == 0
    for words in (("plan", "other"), ("resume", "other")):
        refused = cli(*words)
        assert "was imported from one.jsonl" in refused.err
        named = "evil.py" if label == "target" else "flow.py"
        assert f"handrail resume other --target {named}:hello" in refused.err
    assert not (folder / "ran").exists()
    assert cli("plan", "other", "--target", "flow.py:hello").code == 0
    assert not (folder / "ran").exists()
    assert cli("export", "other", "-o", "again.jsonl").code == 0
    assert "imported" not in Path("again.jsonl").read_text()


@pytest.mark.parametrize("answer", ["y", "n"])
def test_who_sits_at_a_terminal_is_asked_once(
    answer: str, cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a folder of another user's, and to find the runs of a project's executor."""
    (folder / "pyproject.toml").write_text('[tool.handrail]\nexecutor = "other:make"\n')
    (folder / "other.py").write_text(
        f"{MARKS}from handrail import Executor, SqliteJournal\n\n\n"
        'def make():\n    return Executor(journal=SqliteJournal("kept.db"))\n'
    )
    (folder / "flow.py").write_text(FLOW)
    uid = os.getuid()
    monkeypatch.setattr(os, "isatty", lambda _: True)
    monkeypatch.setattr(os, "getuid", lambda: uid + 1)
    monkeypatch.setattr(trusted, "_ROOT", -1)
    says_yes = answer == "y"
    outcome = cli("runs", text=f"{answer}\n{answer}\n")
    assert "Run other:make to find the runs of this project? [y/N]" in outcome.err
    assert (f"Run code of {folder}? [y/N]" in outcome.err) == says_yes
    assert (folder / "ran").exists() == says_yes
    again = cli("runs", text=f"{answer}\n")
    assert ("[y/N]" in again.err) != says_yes


def test_the_module_of_a_record_is_the_users_own(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a file is, wherever in its package the code of another user lies."""
    package = folder / "pkg"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "mod.py").write_text(MARKS + FLOW)
    make_runs(folder, target="pkg.mod:hello")
    uid = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: uid + 1)
    monkeypatch.setattr(trusted, "_ROOT", -1)
    refused = cli("plan", "one")
    assert "belongs to another user" in refused.err
    assert not (package / "ran").exists()
    assert cli("trust", str(package)).code == 0
    assert cli("plan", "one").code == 0


def test_a_journal_of_an_executor_is_found_again_without_its_code(cli: Cli, folder: Path) -> None:
    """What drives a run notes where it is kept; `handrail trust` does so, too."""
    (folder / "pyproject.toml").write_text('[tool.handrail]\nexecutor = "app:make"\n')
    (folder / "app.py").write_text(
        "from pathlib import Path\nfrom handrail import Executor, SqliteJournal\n"
        'with open("loads", "a") as loads:\n    loads.write("x")\n'
        'def make():\n    return Executor(journal=SqliteJournal(Path("kept") / "mine.db"))\n'
    )
    (folder / "flow.py").write_text(FLOW)
    outcome = cli("runs")
    assert outcome.out == ""
    assert not Path("loads").exists()
    assert "handrail trust" in cli("show", "one").err
    assert cli("trust").code == 0
    (folder / "kept").mkdir(exist_ok=True)
    assert cli("run", "flow.py", "--run-id", "one").code == 0
    loads = Path("loads").read_text()
    assert "one " in cli("runs").out
    assert "succeeded" in cli("show", "one").out
    assert Path("loads").read_text() == loads


def test_code_of_another_user_is_run_only_in_a_folder_that_is_trusted(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where nobody can be asked; a project that names no code is no danger."""
    (folder / "pyproject.toml").write_text('[tool.handrail]\nexecutor = "other:make"\n')
    (folder / "other.py").write_text(
        f"{MARKS}from handrail import Executor\n\n\ndef make():\n    return Executor()\n"
    )
    (folder / "flow.py").write_text(FLOW)
    uid = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: uid + 1)
    monkeypatch.setattr(trusted, "_ROOT", -1)
    outcome = cli("run", "flow.py")
    assert outcome.code == 2
    assert "belongs to another user" in outcome.err
    assert f"handrail trust {folder}" in outcome.err
    assert not (folder / "ran").exists()
    assert cli("trust", str(folder)).code == 0
    assert cli("run", "flow.py").code == 0
