"""``list``, ``show``, ``graph`` and ``check``: what is read and never run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Cli

HARMFUL = """\
from handrail import step, workflow
raise SystemExit("imported")

@workflow(description="Does harm")
def harmful():
    step("dropped").call(print)
    yield from step("a").call(print)
    yield from step("a").call(print)
"""


def test_list_finds_workflows_without_importing(cli: Cli, flows: Path) -> None:
    """Each is a TARGET with its description, those below folders too, and nothing is run."""
    (flows.parent / "sub").mkdir()
    (flows.parent / "sub" / "harmful.py").write_text(HARMFUL, "utf-8")

    outcome = cli("list")

    assert outcome.code == 0
    assert outcome.out.splitlines() == [
        "flows.py:greet          Greet somebody",
        "flows.py:fails",
        "flows.py:asks",
        "flows.py:gives_up",
        "sub/harmful.py:harmful  Does harm",
    ]


def test_list_gives_targets_that_run(cli: Cli, flows: Path) -> None:
    """What `list` prints for a workflow can be given to `run`."""
    listed = cli("list", str(flows), "--json").data

    assert [one["line"] for one in listed] == [14, 21, 26, 31]
    assert cli("run", listed[0]["target"], "--input", "who=Ada").code == 0


def test_list_leaves_out_what_is_not_the_users_own(cli: Cli, folder: Path) -> None:
    """Virtual environments, hidden folders and files that do not parse are passed over."""
    for name in ("env/lib", ".hidden", "node_modules"):
        (folder / name).mkdir(parents=True)
        (folder / name / "flow.py").write_text(HARMFUL, "utf-8")
    (folder / "env" / "pyvenv.cfg").touch()
    (folder / "broken.py").write_text("@workflow\ndef (", "utf-8")
    (folder / "latin.py").write_bytes(b"# workflow \xe9\n")

    outcome = cli("list")

    assert (outcome.code, outcome.out) == (0, "")
    assert "broken.py left out: " in outcome.err
    assert "latin.py left out: " in outcome.err
    assert "no workflow found in ." in outcome.err


@pytest.mark.usefixtures("flows")
def test_show_tells_inputs_steps_and_how_to_run(cli: Cli) -> None:
    """Inputs with type and default, steps with their verb, and a command that can be typed."""
    lines = cli("show", "flows.py:greet").out.splitlines()

    assert lines[0] == "greet: Greet somebody"
    assert "  who    str (required)" in lines
    assert "  times  int = 2" in lines
    assert "  text  python" in lines
    assert lines[-1] == "handrail run flows.py:greet --input who=VALUE"


def test_what_an_annotation_says_of_an_input_is_shown(cli: Cli, folder: Path) -> None:
    """Beside its type, and where it is missing."""
    text = (
        "from typing import Annotated\nfrom handrail import step, workflow\n\n\n@workflow\n"
        "def flow(n: Annotated[int, 'how many']):\n    yield from step('a').call(int, n)\n"
    )
    (folder / "said.py").write_text(text, "utf-8")
    assert "  n  int (required)  how many\n" in cli("show", "said.py").out
    assert "needs n (int: how many)" in cli("run", "said.py").err


@pytest.mark.usefixtures("flows")
def test_show_as_json_is_what_describe_gives(cli: Cli) -> None:
    """The data of `Workflow.describe()`."""
    described = cli("show", "flows.py:greet", "--json").data

    assert described["name"] == "greet"
    assert [parameter["required"] for parameter in described["parameters"]] == [True, False]


@pytest.mark.usefixtures("flows")
def test_graph_draws_both_forms(cli: Cli) -> None:
    """Mermaid unless asked for text; both name the steps."""
    mermaid = cli("graph", "flows.py:greet")
    text = cli("graph", "flows.py:greet", "--format", "text")

    assert mermaid.out.startswith("flowchart")
    assert "text" in mermaid.out
    assert text.out.startswith("greet(who: str, times: int=2)\n├─ text · call")
    assert cli("graph", "flows.py:greet", "--format", "dot").code == 2


def test_check_prints_each_finding_with_its_place(cli: Cli, folder: Path) -> None:
    """`file:line:col: CODE message`, by line, and exit code 1."""
    (folder / "harmful.py").write_text(HARMFUL, "utf-8")

    outcome = cli("check", "harmful.py")

    assert outcome.code == 1
    places = [line.split(" ")[:2] for line in outcome.out.splitlines()]
    assert ["harmful.py:6:5:", "HR101"] in places
    assert any(place == "harmful.py:8:16:" or code == "HR104" for place, code in places)


@pytest.mark.usefixtures("flows")
def test_check_is_content_with_a_clean_file(cli: Cli) -> None:
    """Exit code 0, and how many files were read."""
    outcome = cli("check", "flows.py")

    assert (outcome.code, outcome.out) == (0, "nothing found in 1 file\n")


def test_check_as_json_is_a_list(cli: Cli, folder: Path) -> None:
    """Each finding has code, file, line and column; the exit code is the same."""
    (folder / "harmful.py").write_text(HARMFUL, "utf-8")

    outcome = cli("check", "harmful.py", "--json")

    assert outcome.code == 1
    assert {"code", "message", "filename", "line", "column", "hint"} == outcome.data[0].keys()


def test_check_reports_a_file_that_cannot_be_read_as_python(cli: Cli, folder: Path) -> None:
    """It is a finding, and the other files are checked all the same."""
    (folder / "a_broken.py").write_text("def (", "utf-8")
    (folder / "b_latin.py").write_bytes(b"# \xe9\n")
    (folder / "c_harmful.py").write_text(HARMFUL, "utf-8")

    found = cli("check", ".", "--json").data

    assert [one["code"] for one in found[:2]] == ["HR100", "HR100"]
    assert {one["filename"] for one in found} == {"a_broken.py", "b_latin.py", "c_harmful.py"}


@pytest.mark.parametrize("command", ["list", "check"])
def test_a_path_that_is_not_there_is_a_usage_error(cli: Cli, command: str) -> None:
    """Exit code 2, and the path is named."""
    outcome = cli(command, "nowhere")

    assert outcome.code == 2
    assert outcome.err == "handrail: nowhere: there is no such file or folder.\n"
