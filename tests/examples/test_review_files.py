"""``examples/review_files.py``: many reviews at once, and a person who decides."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.examples.conftest import EXAMPLES, run

EXAMPLE = str(EXAMPLES / "review_files.py")
REPORT = """\
# Review

- clean.py: fine
- gone.py: fine
- naïve/left over.py: needs work
    - left in: print(x)  # TODO
- picture.bin: not reviewed, """


def test_the_report_is_written_if_the_person_agrees(repository: Path) -> None:
    """Each changed file is in it, one that cannot be reviewed too, and none that did not change."""
    outcome = run(EXAMPLE, cwd=repository, text="yes\n")

    assert outcome.code == 0, outcome.err
    assert (repository / "REVIEW.md").read_text("utf-8").startswith(REPORT)
    assert "a binary file says nothing to a reviewer" in outcome.out
    assert "review/naïve/left over.py/read" in outcome.err


def test_the_report_is_not_written_if_the_person_does_not(repository: Path) -> None:
    """It is printed all the same."""
    outcome = run(EXAMPLE, str(repository), "HEAD~1", cwd=repository.parent, text="no\n")

    assert outcome.code == 0, outcome.err
    assert REPORT in outcome.out
    assert not (repository / "REVIEW.md").exists()


def test_without_a_person_the_run_waits(repository: Path, cli: Cli) -> None:
    """Through `handrail run`, with nobody to ask, it is suspended with its gate open."""
    outcome = cli("run", EXAMPLE, "--json")
    result = outcome.data

    assert (outcome.code, result["status"]) == (3, "suspended")
    assert [gate["path"] for gate in result["waiting"]] == ["write?"]
    assert not (repository / "REVIEW.md").exists()


def test_a_policy_may_stand_for_the_person(repository: Path, cli: Cli) -> None:
    """`--gates approve` writes the report, under the name that was given."""
    words = ["--gates", "approve", "--input", "report=notes.md", "--quiet"]
    outcome = cli("run", EXAMPLE, *words)

    assert outcome.code == 0
    assert (repository / "notes.md").read_text("utf-8") == outcome.out.removesuffix("\n")


@pytest.mark.usefixtures("repository")
def test_nobody_is_asked_about_nothing(cli: Cli) -> None:
    """Where no file changed, there is no question."""
    words = ["--input", "base=HEAD", "--quiet"]
    outcome = cli("run", EXAMPLE, *words)

    assert (outcome.code, outcome.out.strip()) == (0, "Nothing differs from HEAD.")
