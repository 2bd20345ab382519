"""``examples/ship.py``: its steps with other agents than those of the quickstart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from examples.ship import Change, Report, ship
from handrail import Executor
from handrail.agents.fake_agent import FakeAgent
from handrail.testing import plugin
from handrail.testing.fake_programs import FakeCli, Says
from tests.examples.conftest import EXAMPLES, run
from tests.examples.ship_parts import PLAN, TEST, edit

fake_cli = plugin.fake_cli  # where handrail is not installed pytest does not find it


@pytest.fixture
def inside(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The repository as working folder, with a test."""
    monkeypatch.chdir(repository)
    monkeypatch.setenv("GIT_AUTHOR_NAME", "A")
    monkeypatch.setenv("GIT_AUTHOR_EMAIL", "a@example.invalid")
    monkeypatch.setenv("GIT_COMMITTER_NAME", "A")
    monkeypatch.setenv("GIT_COMMITTER_EMAIL", "a@example.invalid")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    (repository / "test_clean.py").write_text(TEST, "utf-8")
    return repository


@pytest.mark.usefixtures("inside")
def test_what_the_coder_did_is_committed() -> None:
    """With checks that pass at once there is one round, and the fixer is not asked."""
    coder = FakeAgent("coder", [edit("x =  2\n", "as planned")])
    fixer = FakeAgent("fixer")
    agents = {"planner": FakeAgent("planner", [PLAN]), "coder": coder, "fixer": fixer}

    result = Executor(agents=agents).run_sync(ship, "set x to 2")

    report = result.unwrap()
    assert report.commit.endswith(" Set x to 2")
    assert report == Report(report.commit, 1, [Change(["clean.py"], "as planned")])
    assert fixer.calls == []


@pytest.mark.usefixtures("inside")
def test_the_fixer_is_shown_what_failed() -> None:
    """It gets the failed checks with their output, and its change is in the report."""
    fixer = FakeAgent("fixer", [edit("x = 2 #\n", "the test wants 2")])
    coder = FakeAgent("coder", [edit("x = 33\n", "as planned")])
    agents = {"planner": FakeAgent("planner", [PLAN]), "coder": coder, "fixer": fixer}

    report = Executor(agents=agents).run_sync(ship, "set x to 2").unwrap()

    assert report.rounds == 2
    assert [change.why for change in report.changes] == ["as planned", "the test wants 2"]
    (failed,) = fixer.calls[0]["failed"]
    assert failed.name == "tests"
    assert "AssertionError: 2 != 33" in failed.output


@pytest.mark.usefixtures("inside")
def test_what_does_not_pass_is_not_committed() -> None:
    """With no round left the run fails at `verify`, and there is no commit."""
    coder = FakeAgent("coder", [edit("x = 33\n", "as planned")])
    agents = {"planner": FakeAgent("planner", [PLAN]), "coder": coder}

    result = Executor(agents=agents).run_sync(ship, "set x to 2", rounds=0)

    assert (result.status, result.failed_step) == ("failed", "verify")
    assert "commit" not in [step.path for step in result.step_results]


@pytest.mark.usefixtures("inside")
@pytest.mark.parametrize("backend", ["codex", "gemini"])
def test_a_flag_says_which_backend_does_the_work(
    backend: str, repository: Path, fake_cli: Callable[..., FakeCli]
) -> None:
    """All three agents are carried out by it, and the commit has what it wrote."""
    said = [PLAN, Change(["clean.py"], "not enough yet"), Change(["clean.py"], "as planned")]
    plan, first, second = [msgspec.json.encode(one).decode() for one in said]
    program = fake_cli(
        backend,
        [
            Says(plan),
            Says(first, writes={"clean.py": "x = 2 + 1\n"}),
            Says(second, writes={"clean.py": "x =  2\n"}),
        ],
    )
    words = ["run", str(EXAMPLES / "ship.py"), "--backend", backend, "--input", "task=x is 2"]
    done = run("-m", "handrail", *words, cwd=repository)
    assert done.code == 0, done.out + done.err
    assert "as planned" in done.out
    assert (repository / "clean.py").read_text("utf-8") == "x =  2\n"
    assert program.left == 0
