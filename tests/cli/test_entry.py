"""The command itself: its version, its errors, and what it does without its libraries."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest
from cyclopts import App

import handrail
from handrail.cli.app import COMMANDS, import_command, summary_of
from tests.cli.conftest import Cli, Outcome


def test_the_version_is_the_packages(cli: Cli) -> None:
    """`--version` prints it and nothing else."""
    assert cli("--version") == Outcome(0, f"{handrail.__version__}\n", "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["rnu", "x.py"], 'Unknown command "rnu". Did you mean "run"?'),
        (["run"], " requires an argument. See handrail run --help."),
        (["run", "x.py", "--jsn"], "--jsn"),
        (["run", "x.py", "--gates", "yes"], 'Invalid value "yes" for '),
        (
            ["run", "x.py", "more"],
            "'more': not expected here. Inputs are given by name: --input NAME",
        ),
        (
            ["run", "x.py", "x=1", "y=a b"],
            "given by name: --input x=1 --input 'y=a b'. See handrail",
        ),
        (["runs", "x=1"], "'x=1': not expected here. See handrail runs --help."),
    ],
)
def test_wrong_usage_is_one_line(cli: Cli, words: list[str], said: str) -> None:
    """Exit code 2, nothing on stdout, and one line on stderr that says where to look."""
    outcome = cli(*words)

    assert (outcome.code, outcome.out) == (2, "")
    assert said in outcome.err
    assert outcome.err.count("\n") == 1


@pytest.mark.usefixtures("flows")
def test_debug_shows_the_traceback_of_an_error(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--debug` may stand anywhere; without it there is only the line."""
    assert "Traceback" not in cli("run", "flows.py:greet").err
    monkeypatch.setenv("HANDRAIL_DEBUG", "")  # what --debug sets is put back after the test
    assert "Traceback" in cli("run", "flows.py:greet", "--debug").err


WITHOUT = """\
import sys
sys.modules[{library!r}] = None
from handrail.cli import main
sys.exit(main({words!r}))
"""


@pytest.mark.parametrize("library", ["cyclopts", "rich"])
def test_without_its_libraries_it_names_the_extra(library: str) -> None:
    """Exit code 2 and the command that installs it, rather than an ImportError."""
    code = WITHOUT.format(library=library, words=["list"])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=False
    )

    needs = f'handrail: The command handrail needs {library}: pip install "handrail[cli]"\n'
    assert (done.returncode, done.stdout, done.stderr) == (2, "", needs)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_listed_by_how_its_docstring_begins(name: str) -> None:
    """What is read without an import is the first paragraph of what is imported."""
    command = import_command(name)
    said = command.help if isinstance(command, App) else inspect.getdoc(command) or ""
    assert said.partition("\n\n")[0] == summary_of(name)


HEAVY = ("asyncio", "cyclopts.core", "rich", "structlog", "sqlite3", "jinja2", "handrail.engine")


@pytest.mark.parametrize(
    ("words", "heavy"),
    [
        (["--version"], []),
        (["list", "."], ["cyclopts.core"]),
        (["check", "."], ["cyclopts.core"]),
    ],
)
def test_a_command_imports_what_it_needs(
    tmp_path: object, words: list[str], heavy: list[str]
) -> None:
    """Reading commands start without rich, an event loop or the engine."""
    code = (
        "import sys; from handrail.cli import main; main(sys.argv[1:]); "
        f"print(*[name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True,
        encoding="utf-8",
        cwd=str(tmp_path),
        check=True,
    )

    assert done.stdout.splitlines()[-1].split() == heavy


ALONE = """\
from handrail import step, workflow

@workflow
def alone():
    yield from step("sh").command("echo said; echo complained >&2; cat")
"""


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_a_run_needs_no_stdin_stdout_or_stderr(tmp_path: Path, closed: str) -> None:
    """As a service manager may start it: what is closed leads nowhere, for programs as well."""
    (tmp_path / "flow.py").write_text(ALONE)
    command = f"{sys.executable} -m handrail run flow.py {closed}"
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, check=False)
    found = handrail.SqliteJournal(tmp_path / ".handrail" / "runs.db").runs()

    assert (done.returncode, [run.status for run in found]) == (0, ["succeeded"])


def test_in_a_folder_that_is_gone_it_says_so(tmp_path: Path) -> None:
    """Exit code 2, and where the mistake is, rather than the system's words alone."""
    command = f"mkdir x && cd x && rmdir ../x && {sys.executable} -m handrail runs"
    done = subprocess.run(
        ["sh", "-c", command], cwd=tmp_path, capture_output=True, encoding="utf-8", check=False
    )

    said = "handrail: the current folder is gone. cd to one that is there.\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has it")
@pytest.mark.parametrize("words", ["list .", "list . --json", "--help"])
def test_an_output_that_cannot_be_written_is_no_wrong_usage(tmp_path: Path, words: str) -> None:
    """Exit code 1, and one line on stderr that says that something is missing."""
    (tmp_path / "flow.py").write_text(ALONE)
    command = f"{sys.executable} -m handrail {words} >/dev/full"
    done = subprocess.run(
        ["sh", "-c", command], cwd=tmp_path, capture_output=True, encoding="utf-8", check=False
    )

    said = "handrail: the output is incomplete, it could not be written: No space left on device.\n"
    assert (done.returncode, done.stderr) == (1, said)
