"""``examples/research.py``: a fan-out, a race in each part, and a join."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Cli
from tests.examples.conftest import EXAMPLES, run

EXAMPLE = str(EXAMPLES / "research.py")


def test_the_findings_are_joined_in_order(tmp_path: Path) -> None:
    """Whichever backend was first, the sentences stand in the order of the topics."""
    outcome = run(EXAMPLE, "dusk", "light", cwd=tmp_path)

    assert outcome.code == 0, outcome.err
    assert outcome.out == (
        "In the evening light comes a long way, and little blue is left of it. "
        "Sunlight is a mixture of all colours.\n"
    )


def test_the_first_success_wins_its_race(cli: Cli) -> None:
    """Memory is faster where it knows something, and the library is cancelled."""
    words = ["--input", 'topics=["light", "eye"]', "--json", "--quiet"]
    outcome = cli("run", EXAMPLE, *words)
    status = {step["path"]: step["status"] for step in outcome.data["step_results"]}

    assert outcome.code == 0, outcome.err
    assert status["topics/light/ask/memory"] == "succeeded"
    assert status["topics/light/ask/library"] == "cancelled"
    assert status["topics/eye/ask/memory"] == "failed"
    assert status["topics/eye/ask/library"] == "succeeded"


def test_a_topic_that_nobody_knows_is_left_out(cli: Cli) -> None:
    """The others are joined; with none left the run fails."""
    words = ("run", EXAMPLE, "--quiet", "--input")

    assert cli(*words, 'topics=["mars", "light"]').out == "Sunlight is a mixture of all colours.\n"
    assert cli(*words, 'topics=["mars"]').code == 1
