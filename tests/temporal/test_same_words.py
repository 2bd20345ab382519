"""The commands say the same of a run here and of one on a cluster, and end with the same codes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from handrail.temporal.dev import DevServer
from tests.temporal.plant import TemporalPlant

pytestmark = pytest.mark.temporal
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "temporal.md"
FLOW = """\
from handrail import Steps, step, workflow


def add(one: int, other: int) -> int:
    return one + other


@workflow
def asks() -> Steps[str]:
    found = yield from step("sum").call(add, 1, 1)
    said = yield from step("go?").ask(f"Is it {found}?", choices=["yes", "no"])
    news = yield from step("news").wait_for("news")
    return f"{said} {news}"
"""
SAID: Sequence[str] = (
    "run flow.py --run-id talk",
    "run flow.py --run-id talk --new",
    "runs",
    "show talk",
    "show nothing",
    "plan talk",
    "answer talk go? perhaps",
    "answer talk nothing yes",
    "pause talk",
    "show talk (paused)",
    "unpause talk",
    "answer talk go? yes",
    "answer talk go? no",
    "resume talk",
    'signal talk news "good"',
    "resume talk (again)",
    "runs (later)",
    "show talk (later)",
    "tail talk",
    "resume talk (later)",
    "cancel talk",
    "pause talk (later)",
    "plan talk (later)",
    "export talk -o talk.jsonl",
    "import talk.jsonl --run-id copy",
    "diff talk copy",
    "report talk",
    "fork talk --at go? --run-id other --no-run",
    "resume other",
    "cancel other",
    "show other",
    "complete other go? yes",
)
"""What is typed, in this order; what is in parentheses tells one from another, and is not typed."""


@pytest.fixture(scope="module")
def told(
    server: DevServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, Mapping[str, tuple[int, str]]]]:
    """The exit code and the words of each command, here and on a cluster."""
    home = tmp_path_factory.mktemp("words")
    (home / "flow.py").write_text(FLOW, "utf-8")
    plant = TemporalPlant(tmp_path_factory.mktemp("plant"), "words", ["flow.py"], server=server)
    plant.start_worker(cwd=home)
    cluster = {"HANDRAIL_TEMPORAL": server.address, "HANDRAIL_TASK_QUEUE": "words"}
    try:
        yield {
            where: {line: _typed(home, line, variables) for line in SAID}
            for where, variables in (("here", {}), ("cluster", cluster))
        }
    finally:
        plant.close()


def _typed(home: Path, line: str, variables: Mapping[str, str]) -> tuple[int, str]:
    words = line.partition(" (")[0].split()
    done = subprocess.run(
        [sys.executable, "-m", "handrail", *words],
        cwd=home,
        env={**os.environ, **variables, "NO_COLOR": "1", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, _comparable(done.stdout + done.stderr)


_OF_EACH_RUN = (
    (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d+)?)?( UTC|Z|\+00:00)?", "TIME"),
    (r"\b\d\d:\d\d:\d\d\b", "TIME"),
    (r"\b\d+(\.\d+)? (ms|s)\b", "LONG"),
    (r"\d+(\.\d+)?", "N"),
    (r"[ ─━]+", " "),
)
"""What differs between any two runs."""


def _comparable(text: str) -> str:
    for pattern, instead in _OF_EACH_RUN:
        text = re.sub(pattern, instead, text)
    return "\n".join(sorted(line.strip() for line in text.splitlines()))


def _documented() -> dict[str, str]:
    """The commands that differ, by the page's table."""
    table = PAGE.read_text("utf-8").partition("| command | here | on a cluster |")[2]
    rows = table.partition("\n\n")[0].splitlines()[2:]
    return {row.split("|")[1].strip(" `"): row for row in rows}


@pytest.mark.parametrize("line", SAID)
def test_a_command_says_the_same_here_and_on_a_cluster(
    told: Mapping[str, Mapping[str, tuple[int, str]]], line: str
) -> None:
    """It has the code and the words; where it cannot, the page says how they differ."""
    here, there = told["here"][line], told["cluster"][line]
    command = line.partition(" ")[0]
    if command not in _documented():
        assert there == here
    assert there[0] == here[0], (here, there)
    states = [
        re.findall(r"^asks, run \w+: (\w+)$", said, re.MULTILINE) for _, said in (here, there)
    ]
    assert states[0] == states[1] or states == [["suspended"], ["running"]], states


def test_the_page_names_no_difference_that_is_none(
    told: Mapping[str, Mapping[str, tuple[int, str]]],
) -> None:
    """Each command of its table differs somewhere."""
    different = {line.split()[0] for line in SAID if told["here"][line] != told["cluster"][line]}
    assert different == set(_documented()), json.dumps(
        {
            line: (told["here"][line], told["cluster"][line])
            for line in SAID
            if told["here"][line] != told["cluster"][line]
        },
        indent=1,
    )
