"""What the commands say of a run that nobody but a person can help on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from handrail.testing.fake_programs import Fails, fake_cli
from tests.cli.conftest import Outcome

Cli = Callable[..., Outcome]

FLOW = """
from handrail import Agent, Steps, step, workflow

coder = Agent("coder", "Do it.")

@workflow
def flow() -> Steps[str]:
    return (yield from step("code").agent(coder)).output
"""


def test_a_run_that_needs_a_login_says_so_and_goes_on_after_it(cli: Cli, tmp_path: Path) -> None:
    """The backend of the command line, what to do, in `run`, in `show` and in its JSON; then the
    resume that ends it.
    """
    Path("flow.py").write_text(FLOW, "utf-8")
    with fake_cli("claude", ["seen", Fails("auth"), "done."], path=tmp_path / "fake"):
        assert cli("run", "flow.py", "--backend", "claude", "--quiet").out.strip() == "seen"
        told = cli("run", "flow.py", "--backend", "claude", "--run-id", "r", "--quiet")
        assert told.code == 3
        assert "it needs a person: claude: " in told.err
        assert "go on with: " in told.err
        shown = cli("show", "r")
        assert "needs a person: claude: " in shown.out
        assert "failures of agents that it lived through: 1" in shown.out
        data = json.loads(cli("show", "r", "--json").out)
        assert len(data["needs"]) == 1
        assert [one["kind"] for one in data["incidents"]] == ["auth"]
        done = cli("resume", "r", "--quiet")  # with the backend that the run was started with
        assert (done.code, done.out.strip()) == (0, "done.")
        assert "needs a person" not in cli("show", "r").out
