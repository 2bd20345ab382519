"""Inputs typed as options: which of a workflow's inputs and the command's options a name means."""

from __future__ import annotations

from pathlib import Path

import pytest

from handrail.cli.named_inputs import _NEVER_INPUTS
from tests.cli.conftest import Cli, spawned

NAMES = """
version help label json quiet gates backend model no_artifacts record replay max_steps timeout
budget_usd max_launches ui detach notify run_id new dir executor temporal debug
""".split()  # noqa: SIM905  # as it is typed
FLOW = f"""\
from handrail import step, workflow

print("imported")


@workflow
def flow({", ".join(f"{name}: str = ''" for name in NAMES)}):
    given = {{k: v for k, v in locals().items() if v}}
    yield from step("a").call(str)
    return str(given)


@workflow
def plain(parts: int = 1):
    yield from step("a").call(str)
    return parts
"""


@pytest.fixture(autouse=True)
def flow(folder: Path) -> None:
    """Workflows of which one has an input for each option's name."""
    (folder / "flow.py").write_text(FLOW, "utf-8")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", ["{} x=-1", "{}=x=-1"])
def test_after_target_an_input_comes_before_an_option(cli: Cli, name: str, form: str) -> None:
    """`--NAME VALUE` after TARGET is the input NAME, whatever option has this name."""
    typed = form.format(f"--{name.replace('_', '-')}").split()

    outcome = cli("run", "--quiet", "flow.py:flow", *typed)

    assert (outcome.code, f"{{'{name}': 'x=-1'}}" in outcome.out) == (0, True), outcome


def test_the_options_are_all_that_run_has() -> None:
    """A new option of `run` is tried above, too."""
    from handrail.cli.app import app_of

    known = app_of(["run"])["run"].assemble_argument_collection()
    options = {one.name for one in known if one.name.startswith("--")} - _NEVER_INPUTS

    assert options <= {f"--{name.replace('_', '-')}" for name in NAMES}


def test_before_target_a_name_is_an_option() -> None:
    """`--json` and `--label` before TARGET are the command's, with inputs of these names, too."""
    outcome = spawned("run", "--json", "--label", "a=b", "flow.py:flow", "--label", "c")

    assert outcome.code == 0
    assert outcome.data["value"] == "{'label': 'c'}"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "flow.py:flow", "--version"], "--version: is an input of workflow 'flow'"),
        (["run", "flow.py:plain", "--version"], "Unknown option: --version"),
        (["run", "flow.py:plain", "--version", "1"], "Unknown option: --version"),
        (["run", "--version", "flow.py:flow"], "Unknown option: --version"),
        (["runs", "--version"], "Unknown option: --version"),
        (["run", "flow.py:plain", "--parts", "many"], "input 'parts': got 'many', expected int"),
        (["run", "flow.py:plain", "--label"], "--label"),
    ],
)
def test_nothing_is_silently_not_run(cli: Cli, words: list[str], said: str) -> None:
    """What is neither an input with its value nor an option is refused with exit code 2."""
    outcome = cli(*words)

    assert (outcome.code, said in outcome.err) == (2, True), outcome


def test_help_and_version_stay_reachable(cli: Cli) -> None:
    """`--help` prints help where no input has this name, and `--version` alone the version."""
    assert "Usage: handrail run" in cli("run", "flow.py:plain", "--help").out
    assert "Usage: handrail run" in cli("run", "missing.py", "--help").out
    assert cli("--version").code == 0


def test_what_a_module_prints_does_not_mix_with_the_data() -> None:
    """The output of `--json` is JSON, also if the module prints while it is imported."""
    outcome = spawned("run", "flow.py:plain", "--parts", "3", "--json")

    assert outcome.data["value"] == 3
