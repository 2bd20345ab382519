"""Where the command keeps its journal, and what it says when that fails."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from handrail.cli.doctor import check_journal
from handrail.cli.target import place_of
from tests.cli.conftest import Cli

pytestmark = pytest.mark.usefixtures("flows")


def test_a_run_leaves_one_folder_that_git_ignores(cli: Cli, folder: Path) -> None:
    """The journal is in it, and the folder ignores itself."""
    cli("run", "flows.py:asks")

    assert {path.name for path in folder.iterdir()} == {"flows.py", ".handrail"}
    assert (folder / ".handrail" / ".gitignore").read_text() == "*\n"
    assert (folder / ".handrail" / "runs.db").is_file()


@pytest.mark.parametrize("below", ["", "sub"])
def test_in_a_checkout_the_journal_outlives_git_clean(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch, below: str
) -> None:
    """Its file is in the git folder, each folder's its own; git knows nothing of it."""
    subprocess.run(["git", "init", "--quiet"], check=True, cwd=folder)
    (folder / below).mkdir(exist_ok=True)
    monkeypatch.chdir(folder / below)
    flow = os.path.relpath(folder / "flows.py")
    assert check_journal(place_of(None)).advice == ""
    cli("run", f"{flow}:asks", "--run-id", "a")
    assert check_journal(place_of(None)).advice == ""
    assert Path(".handrail/runs.db").resolve().parent == folder / ".git" / "handrail" / below

    subprocess.run(["git", "clean", "-fdxq", "-e", "flows.py"], check=True)
    assert not Path(".handrail").exists()
    assert cli("answer", "a", "merge?", "yes").code == 0
    assert cli("resume", "a", "--quiet").out == "yes\n"
    cli("run", f"{flow}:asks", "--run-id", "b")
    assert [run["run_id"] for run in cli("runs", "--json").data] == ["a", "b"]
    assert Path(".handrail/runs.db").is_symlink()


def test_an_executor_with_the_same_journal_resumes_in_the_folder_of_the_run(
    cli: Cli, folder: Path
) -> None:
    """The journal's file is below `.git` there, and the run was not started there."""
    subprocess.run(["git", "init", "--quiet"], check=True, cwd=folder)
    (folder / "own.py").write_text(
        """from handrail import Executor, SqliteJournal
from flows import asks

executor = Executor(journal=SqliteJournal(".handrail/runs.db"), workflows=[asks])
"""
    )
    cli("run", "flows.py:asks", "--run-id", "a")
    cli("answer", "a", "merge?", "yes")
    resumed = cli("resume", "a", "--quiet", "--executor", "own.py:executor")
    assert (resumed.out, Path.cwd()) == ("yes\n", folder)


def test_in_a_linked_worktree_the_journal_is_kept_with_the_repository(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each worktree has its own, which outlives `git clean`, a move, and the worktree."""
    me = ["-c", "user.name=me", "-c", "user.email=me@localhost"]
    subprocess.run(["git", "init", "--quiet"], check=True, cwd=folder)
    subprocess.run(["git", *me, "commit", "-q", "--allow-empty", "-m", "x"], check=True, cwd=folder)
    cli("run", "flows.py:asks", "--run-id", "main")
    subprocess.run(["git", "worktree", "add", "-q", "wt"], check=True, cwd=folder)
    monkeypatch.chdir(folder / "wt")
    flow = Path("flows.py")
    flow.write_text((folder / "flows.py").read_text())
    cli("run", "flows.py:asks", "--run-id", "a")
    kept = folder / ".git/handrail/@wt/runs.db"
    assert check_journal(place_of(None)).advice == ""
    assert Path(".handrail/runs.db").resolve() == kept

    subprocess.run(["git", "clean", "-fdxq", "-e", "flows.py"], check=True)
    assert [run["run_id"] for run in cli("runs", "--json").data] == ["a"]
    cli("run", "flows.py:asks", "--run-id", "b")
    (folder / "deep").mkdir()
    subprocess.run(["git", "worktree", "move", "wt", "deep/er"], check=True, cwd=folder)
    monkeypatch.chdir(folder / "deep/er")
    assert [run["run_id"] for run in cli("runs", "--json").data] == ["a", "b"]
    cli("run", "flows.py:asks", "--run-id", "c")
    assert [run["run_id"] for run in cli("runs", "--json").data] == ["a", "b", "c"]
    monkeypatch.chdir(folder)
    subprocess.run(["git", "worktree", "remove", "--force", "deep/er"], check=True)
    assert kept.is_file()
    assert [run["run_id"] for run in cli("runs", "--json").data] == ["main"]


def test_a_journal_stays_where_it_is(cli: Cli, folder: Path) -> None:
    """Also where the folder became a checkout since, or one whose git folder is closed."""
    cli("run", "flows.py:asks", "--run-id", "a")
    subprocess.run(["git", "init", "--quiet"], check=True, cwd=folder)
    cli("run", "flows.py:asks", "--run-id", "b")
    assert [run["run_id"] for run in cli("runs", "--json").data] == ["a", "b"]
    assert not Path(".handrail/runs.db").is_symlink()
    assert "`git clean -fdx` removes it" in check_journal(place_of(None)).advice

    Path(".handrail/runs.db").rename("old.db")
    Path(".git/handrail").write_text("in the way")
    cli("run", "flows.py:asks", "--run-id", "c")
    assert [run["run_id"] for run in cli("runs", "--json").data] == ["c"]


def test_another_folder_can_be_named(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By `--dir`, which wins, and by HANDRAIL_DIR; each knows its own runs."""
    monkeypatch.setenv("HANDRAIL_DIR", str(folder / "one"))
    cli("run", "flows.py:asks", "--run-id", "a")
    cli("run", "flows.py:asks", "--run-id", "b", "--dir", "two/three")

    assert [run["run_id"] for run in cli("runs", "--json").data] == ["a"]
    (other,) = cli("runs", "--json", "--dir", "two/three").data
    assert other["run_id"] == "b"
    assert not (folder / ".handrail").exists()


def test_what_is_recorded_leads_back_from_any_journal(cli: Cli, folder: Path) -> None:
    """A file is named from the journal's own surroundings, or with its whole path."""
    cli("run", "flows.py:asks", "--run-id", "a", "--dir", "far/.handrail")
    cli("answer", "a", "merge?", "yes", "--dir", "far/.handrail")

    (run,) = cli("runs", "--json", "--dir", "far/.handrail").data
    assert run["labels"] == {"target": f"{folder}/flows.py:asks", "folder": str(folder)}
    assert cli("resume", "a", "--quiet", "--dir", "far/.handrail").out == "yes\n"


def test_a_module_is_recorded_by_its_name(cli: Cli) -> None:
    """And found again where the run was started; a file without a name gets its workflow's."""
    Path("single.py").write_text(
        "from handrail import step, workflow\n\n@workflow('Ask them')\ndef asking():\n"
        "    return (yield from step('ask').ask('Well?'))\n"
    )
    cli("run", "single", "--run-id", "m")
    cli("run", "single.py", "--run-id", "f")
    cli("answer", "m", "ask", "fine")

    targets = [run["target"] for run in cli("runs", "--json").data]
    assert targets == ["single:asking", "single.py:asking"]
    assert cli("resume", "m", "--quiet").out == "fine\n"


def test_wrong_usage_leaves_no_journal(cli: Cli) -> None:
    """Neither a missing input nor a wrong TARGET makes the folder."""
    assert cli("run", "flows.py:greet").code == 2
    assert cli("run", "flow.py").code == 2
    assert not Path(".handrail").exists()


@pytest.mark.parametrize("named", [".handrail", "other"])
@pytest.mark.parametrize(
    "words",
    [
        *(
            ["resume", "a"],
            ["plan", "a"],
            ["tail", "a"],
            ["cancel", "a"],
            ["answer", "a", "g", "yes"],
        ),
        *(["runs"], ["show", "a"], ["report", "a"], ["fork", "a"], ["verify"], ["work", "a"]),
    ],
)
def test_without_a_journal_the_folder_is_named(
    cli: Cli, folder: Path, words: list[str], named: str
) -> None:
    """One line says where it was looked for, and how to name another."""
    if named == ".handrail" and words == ["runs"]:
        assert cli(*words).code == 0  # a project without runs yet
        return
    outcome = cli(*words, *([] if named == ".handrail" else ["--dir", named]))

    assert (outcome.code, outcome.out) == (2, "")
    assert f"journal {folder}/{named}/runs.db: does not exist" in outcome.err
    assert "--dir or HANDRAIL_DIR" in outcome.err
    assert outcome.err.count("\n") == 1


def test_a_journal_further_up_is_pointed_out(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever stands in a folder below is told where it is."""
    cli("run", "flows.py:asks")
    below = folder / "below"
    below.mkdir()
    monkeypatch.chdir(below)

    assert (
        f"There is one in {folder}: cd there"
        in cli("show", "asks:1", "--json").err + cli("resume", "a").err
    )


def test_a_damaged_journal_is_one_line(cli: Cli, folder: Path) -> None:
    """Exit code 1; nothing in it is believed, and nothing is run."""
    cli("run", "flows.py:asks", "--run-id", "a")
    file = folder / ".handrail" / "runs.db"
    file.write_bytes(file.read_bytes()[:4096] + b"\xff" * 4096 + file.read_bytes()[8192:])

    for words in (["runs"], ["resume", "a"], ["run", "flows.py:asks"]):
        outcome = cli(*words)
        assert (outcome.code, outcome.out) == (1, "")
        assert outcome.err.startswith(f"handrail: journal {file}: ")
        assert outcome.err.count("\n") == 1


def test_a_folder_that_cannot_be_made_is_one_line(cli: Cli, folder: Path) -> None:
    """A file in its place is named, with the way out."""
    (folder / "file").touch()

    outcome = cli("run", "flows.py:asks", "--dir", "file/journal")

    assert (outcome.code, outcome.out) == (1, "")
    assert "making its folder failed: Not a directory." in outcome.err
    assert outcome.err.count("\n") == 1


@pytest.mark.parametrize("name", ["file", "runs.db"])
@pytest.mark.parametrize(
    "words",
    [
        *(["run", "flows.py:asks"], ["runs"], ["show", "a"], ["resume", "a"], ["plan", "a"]),
        *(["tail", "a"], ["report", "a"], ["verify"], ["pause", "a"], ["ui"], ["mcp"]),
    ],
)
def test_a_file_in_the_place_of_the_folder_is_one_line(
    cli: Cli, folder: Path, words: list[str], name: str
) -> None:
    """It is said that it must be a folder, and which; not to resume what never began."""
    file = folder / name
    file.touch()

    outcome = cli(*words, "--dir", name)

    assert (outcome.code, outcome.out) == (2, "")
    said = f"{file}: is a file, and a journal is kept in a folder. Name a folder with --dir"
    assert said in outcome.err
    assert (f" This one is in {folder}." in outcome.err) == (name == "runs.db")
    assert "resume the run" not in outcome.err
    assert outcome.err.count("\n") == 1


@pytest.mark.parametrize("words", [["run", "flows.py:asks"], ["runs"], ["show", "a"]])
def test_a_folder_in_the_place_of_the_journal_is_one_line(
    cli: Cli, folder: Path, words: list[str]
) -> None:
    """Nobody is told that there are no runs, or that a database cannot be opened."""
    (folder / ".handrail" / "runs.db").mkdir(parents=True)

    outcome = cli(*words)

    assert (outcome.code, outcome.out) == (2, "")
    assert "runs.db: is a folder, and a journal is a file. Move it away, or name" in outcome.err
    assert outcome.err.count("\n") == 1


def test_a_first_run_that_cannot_be_recorded_is_not_to_be_resumed(cli: Cli, folder: Path) -> None:
    """There is no run yet; it is to be tried again."""
    (folder / ".handrail" / "runs.db-shm").mkdir(parents=True)

    outcome = cli("run", "flows.py:asks")

    assert outcome.code == 1
    assert outcome.err.endswith("or put the journal elsewhere; then try again.\n")
