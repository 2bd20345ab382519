"""No command prints or writes a secret of its environment."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Cli, spawned
from tests.seeded_secrets import (
    API_KEY,
    DATABASE,
    DEPLOY_TOKEN,
    MAIL_PASSWORD,
    SECRETS,
    TOKEN,
    none_is_below,
    none_is_in,
)

VALUES = f"{API_KEY} | {DEPLOY_TOKEN} | {MAIL_PASSWORD} | {DATABASE} | {TOKEN}"

FLOW = """
import os
from handrail import step, workflow, StepFailed

KEY = os.environ["API_KEY"]
ALL = " | ".join([KEY, os.environ["DEPLOY_TOKEN"], os.environ["MAIL_PASSWORD"],
                  os.environ["DATABASE_SECRET"], os.environ["A_TOKEN"]])


def fail(why):
    raise ValueError(f"cannot log in with {why}")


@workflow
def leaks(key, rest="x"):
    yield from step("echo").command(["printf", "%s", ALL])
    try:
        yield from step("fail").call(fail, ALL)
    except StepFailed:
        pass
    answer = yield from step("ask").ask(f"Use {ALL}?", choices=[ALL, "no"])
    payload = yield from step("signal").wait_for("go")
    if rest == "fail":
        fail(ALL)
    return {"key": key, "all": ALL, "bytes": KEY.encode(), "answer": answer, "payload": payload}


@workflow
def says():
    return (yield from step("a").call(str, ALL))


@workflow
def shows(key=ALL):
    return [(yield from step("ask").ask(f"Use {ALL}?", choices=[ALL, "no"], default=ALL)), 1]
"""


@pytest.fixture
def handrail(folder: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Runs the command with the secrets in its environment, and looks for them in what it says."""
    (folder / "flow.py").write_text(FLOW, "utf-8")
    for name, value in {**SECRETS, "A_TOKEN": TOKEN, "HANDRAIL_DEBUG": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("PLAINLY")

    def run(*words: str, code: int = 0) -> str:
        outcome = cli(*words)
        said = outcome.out + outcome.err
        assert outcome.code == code, said
        none_is_in(f"handrail {words[0]}", said.encode())
        return outcome.out

    return run


def test_no_command_about_a_run_prints_a_secret(handrail: Callable[..., str], folder: Path) -> None:
    """Neither its progress, questions, results, errors and record, nor any file that it leaves."""
    handrail("run", "flow.py:leaks", "--input", f"key={VALUES}", "--run-id", "r1", code=3)
    assert "${MAIL_PASSWORD}" in handrail("show", "r1")
    handrail("show", "r1", "--json")
    handrail("answer", "r1", "ask", f"no way {API_KEY}", code=2)
    assert "answered" in handrail("answer", "r1", "ask", VALUES)
    handrail("signal", "r1", "go", json.dumps({"all": VALUES}))
    handrail("plan", "r1")
    result = json.loads(handrail("resume", "r1", "--json"))
    assert result["value"]["key"].startswith("${API_KEY} | ${DEPLOY_TOKEN} | ${MAIL_PASSWORD}")
    assert result["value"]["payload"]["all"] == result["value"]["key"]
    assert handrail("tail", "r1").count("${API_KEY}") > 1
    handrail("tail", "r1", "--json")
    handrail("show", "r1")
    handrail("runs", "--json")
    assert handrail("run", "flow.py:says", "--quiet").startswith("${API_KEY} | ${")
    assert none_is_below(folder / ".handrail") > 10_000
    printed = folder / ".handrail" / "runs" / "leaks-r1" / "echo" / "stdout"
    assert printed.read_text("utf-8").startswith("${API_KEY} | ")


def test_no_command_about_a_failure_prints_a_secret(
    handrail: Callable[..., str], folder: Path
) -> None:
    """Not with tracebacks either, nor where inputs are not those of the record."""
    start = ("run", "flow.py:leaks", "--run-id", "r1", "--input")
    handrail(*start, f"key={VALUES}", "--input", "rest=fail", code=3)
    handrail(*start, "key=other", code=2)
    handrail("answer", "r1", "ask", "no")
    handrail("signal", "r1", "go", json.dumps(VALUES))
    handrail("resume", "r1", code=1)
    handrail("show", "r1")
    none_is_below(folder / ".handrail")


def test_the_name_of_a_signal_is_printed_without_its_secrets(handrail: Callable[..., str]) -> None:
    """A name is in the journal as it is, since a step is to be found by it."""
    handrail("run", "flow.py:leaks", "--input", "key=k", "--run-id", "r1", code=3)
    handrail("signal", "r1", f"go {DEPLOY_TOKEN}")
    handrail("resume", "r1", code=3)
    assert "signal go ${DEPLOY_TOKEN}" in handrail("tail", "r1", code=3)
    handrail("tail", "r1", "--json", code=3)
    handrail("show", "r1", "--json")


@pytest.mark.usefixtures("handrail")
def test_a_question_is_asked_without_its_secrets() -> None:
    """Choices and default are shown masked; the answer is the real one."""
    outcome = spawned("run", "flow.py:shows", "--gates", "ask", "--quiet", text=f"{API_KEY}\n\n")
    assert outcome.code == 0, outcome.err
    none_is_in("handrail run", (outcome.out + outcome.err).encode())
    assert "'${API_KEY}' is not an answer to it" in outcome.err or "${API_KEY}" in outcome.err
    assert outcome.out.startswith("[")


def test_artifacts_can_be_left_out(handrail: Callable[..., str], folder: Path) -> None:
    """`--no-artifacts` writes the journal alone."""
    handrail("run", "flow.py:says", "--no-artifacts")
    assert not (folder / ".handrail" / "runs").exists()
    handrail("run", "flow.py:says", "--run-id", "r2")
    (run,) = (folder / ".handrail" / "runs").iterdir()
    assert run.name == "says-r2"
    assert json.loads((run / "run.json").read_text("utf-8"))["status"] == "succeeded"
