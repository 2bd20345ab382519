"""``examples/fastest.py``: a search that grows, levels off, and is reported."""

from __future__ import annotations

import re
from pathlib import Path

from tests.cli.conftest import Cli
from tests.examples.conftest import EXAMPLES, run

EXAMPLE = str(EXAMPLES / "fastest.py")


def test_the_trials_are_ranked_and_each_was_found_beside_another(tmp_path: Path) -> None:
    """All but the first trial have one that brought them, and the search says why it ended."""
    outcome = run(EXAMPLE, "200", cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    rows = re.findall(r"^\| (\d+x\d+) \| ([\d.]+) \| (\S*) ", outcome.out, re.MULTILINE)
    times = [float(took) for _, took, _ in rows]
    ids = [one for one, _, _ in rows]
    assert times == sorted(times)
    assert len(set(ids)) == len(ids) >= 7, "the first one, and six that were no better"
    assert {parent for _, _, parent in rows} - {""} <= set(ids)
    assert [one for one, _, parent in rows if not parent] == ["4096x16"]
    last = outcome.out.splitlines()[-1]
    assert re.fullmatch(
        rf"{len(ids)} trials; (plateau: 6 tasks in a row found .*|nothing is left .*|at_most.*)\.",
        last,
    ), last


def test_a_search_that_failed_goes_on_with_what_it_has_measured(cli: Cli) -> None:
    """What was measured is not measured again: the report has the times of before."""
    words = ("--run-id", "r", "--quiet")
    first = cli("run", EXAMPLE, "--input", "rows=50", "--input", "patience=2", *words)
    again = cli("run", EXAMPLE, *words)
    assert (first.code, again.code) == (0, 0), (first.err, again.err)
    assert first.out == again.out
    [queue] = cli("work", "r", "--json").data
    assert (queue["path"], queue["over"], queue["failed"]) == ("search", True, 0)
    assert (
        f"{queue['done']} trials; {queue['why_stopped'] or 'nothing is left to try'}." in first.out
    )
