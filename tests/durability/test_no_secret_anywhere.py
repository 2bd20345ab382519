"""Secrets seeded wherever a run can have one are in nothing that the library writes or prints."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
import structlog

from handrail import (
    Agent,
    ConsoleSink,
    Executor,
    JsonlSink,
    Secrets,
    SqliteJournal,
    Stage,
    StepFailed,
    Steps,
    StructlogSink,
    WorkflowContext,
    WorkflowError,
    step,
    workflow,
)
from handrail.model import events as ev
from handrail.model.results import Usage
from handrail.ports.agent import AgentReply, AgentTurn
from handrail.sinks.artifacts import ArtifactsSink
from tests.seeded_secrets import (
    ALL,
    API_KEY,
    DATABASE,
    DEPLOY_TOKEN,
    KNOWN,
    MAIL_PASSWORD,
    PLAIN,
    SECRETS,
    none_is_below,
    none_is_in,
)

pytestmark = pytest.mark.extra("jinja2", "rich")


def console(screen: io.StringIO) -> Any:
    """A wide one, that writes there."""
    from rich.console import Console

    return Console(file=screen, width=400)


@dataclass(frozen=True)
class Login:
    """A value with secrets in it."""

    user: str
    raw: bytes
    more: dict[str, list[str]]


def login() -> Login:
    """Something typed."""
    return Login(DATABASE, f"raw {API_KEY}".encode(), {DEPLOY_TOKEN: [ALL, quote_plus(ALL)]})


def fail(why: str) -> None:
    """Fails, and says why."""
    raise ValueError(f"cannot log in with {why}")


def undo_in_vain(_: WorkflowContext) -> None:
    """Cannot roll back, and says why."""
    raise OSError(f"cannot undo with {ALL}")


class Talkative:
    """A backend that repeats what it is told in every way that it can."""

    name = "talkative"

    async def complete(self, turn: AgentTurn) -> AgentReply:
        """The prompt, and everything."""
        path, emit = turn.path, turn.emit
        emit(ev.AgentTranscript(path, json.dumps({"prompt": turn.prompt}), "sent"))
        for cut in range(0, len(ALL), 7):
            emit(ev.AgentMessage(path, ALL[cut : cut + 7]))
            emit(ev.AgentReasoning(path, ALL[cut : cut + 7]))
            emit(ev.StepOutput(path, "stderr", ALL[cut : cut + 7]))
        emit(ev.AgentTranscript(path, json.dumps({"text": ALL}, ensure_ascii=False)))
        emit(ev.AgentTranscript(path, json.dumps({"arguments": json.dumps({"command": ALL})})))
        emit(ev.AgentToolStarted(path, "t", "Bash", {"command": f"curl {quote(ALL)}", ALL: [ALL]}))
        emit(ev.AgentPermission(path, "Bash", "denied", ALL))
        emit(ev.AgentToolCompleted(path, "t", "Bash", ok=False, output=ALL))
        emit(ev.AgentRetry(path, 1, 0.5, ALL))
        emit(ev.AgentLimit(path, "reached", "five_hour", 1.0))
        emit(ev.AgentFinished(path, "failed", "refusal", ALL, Usage(1)))
        if turn.prompt.startswith("Fail"):
            raise RuntimeError(ALL)
        return AgentReply(ALL, model="m", session="s")


agent = Agent("talker", "Say {{ what }}.", backend=Talkative())
failing = Agent("failing", "Fail {{ what }}.", backend=Talkative())


@workflow
def child(token: str) -> Steps[str]:
    """A child that is given a secret, and that gives it back."""
    return (yield from step("again").call(str, token))


@workflow
def leaks(key: str, *, options: dict[str, Any]) -> Steps[dict[str, Any]]:
    """Has secrets wherever there can be some."""
    logged = yield from step("login").call(login).with_rollback(undo_in_vain)
    yield from step("echo").command(["printf", "%s", ALL])
    cut = len(ALL) // 2
    yield from (
        step("halves")
        .command(
            'printf %s "$A"; sleep 0.05; printf %s "$B"; printf %s "$A$B" >&2; exit 3',
            env={"A": ALL[:cut], "B": ALL[cut:]},
        )
        .default(f"default {ALL}")
    )
    yield from step("each").for_each([API_KEY, ALL], lambda item: step("use").call(str, item))
    try:
        yield from step("fail").call(fail, ALL).retry(2, backoff=0)
    except StepFailed as failed:
        said = str(failed)
    yield from step("missing").command([f"./{API_KEY}", ALL], env={"X": ALL}).skip_on_error()
    yield from step("child").subworkflow(child, {"token": ALL})
    yield from step("check").validate([Stage("say", lambda context: ALL)], retry=0)
    answer = yield from step("plan").agent(agent, {"what": ALL})
    yield from step("badly").agent(failing, {"what": ALL}).skip_on_error()
    asked = yield from step("ask").ask(f"Use {ALL}?", choices=(KNOWN, "no"), default=KNOWN)
    signal = yield from step("signal").wait_for("go", dict[str, str])
    if options.get("fail"):
        raise WorkflowError(f"cannot go on with {ALL}")
    return {"key": key, "logged": logged, "said": said, "plan": answer, "at": (asked, signal)}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The secrets are in the environment."""
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("fails", [False, True])
def test_no_file_and_no_report_has_a_secret(tmp_path: Path, fails: bool) -> None:
    """Journal, lines, log, console, artifacts and reports have the names of the variables only;
    the workflow and its caller get the values.
    """
    log, screen = io.StringIO(), io.StringIO()
    logger = structlog.wrap_logger(
        structlog.WriteLogger(log), processors=[structlog.processors.KeyValueRenderer()]
    )
    secrets = Secrets(names=("PLAINLY",))

    def executor() -> Executor:
        return Executor(
            journal=SqliteJournal(tmp_path / "runs.db"),
            sinks=[
                JsonlSink(tmp_path / "lines.jsonl"),
                StructlogSink(logger),
                ConsoleSink(console(screen), live=False),
                ArtifactsSink(tmp_path / "runs"),
            ],
            secrets=secrets,
        )

    reports: list[Any] = []
    options = {"token": ALL, API_KEY: [MAIL_PASSWORD], "fail": fails}
    begun = executor().options(run_id="r1", labels={"for": f"team {ALL}"})
    result = begun.run_sync(leaks, ALL, options=options)
    assert result.status == "suspended", result.error
    reports.append(result.to_dict(secrets=secrets))
    executor().answer_sync("r1", "ask", KNOWN, by=PLAIN)
    reports.append(executor().resume_sync("r1", leaks).to_dict(secrets=secrets))
    payload = {"url": DATABASE, "all": ALL}
    executor().signal_sync("r1", "go", payload, by=PLAIN)
    result = executor().resume_sync("r1", leaks)
    reports.append(result.to_dict(secrets=secrets))
    if fails:
        assert f"cannot go on with {API_KEY}" in str(result.error)
        assert API_KEY in result.rollback_errors[0].error
    else:
        assert result.value["key"].startswith(API_KEY)
        assert result.value["at"][1]["url"] == DATABASE
    written = none_is_below(tmp_path)
    assert written > 20_000
    for name, text in [("log", log.getvalue()), ("console", screen.getvalue())]:
        none_is_in(name, text.encode())
        assert len(text) > 1_000
    none_is_in("reports", json.dumps(reports, ensure_ascii=False).encode())
    none_is_in("reports", json.dumps(reports).encode())
    whole = (tmp_path / "lines.jsonl").read_text("utf-8") + json.dumps(reports)
    for name in SECRETS:
        assert f"${{{name}}}" in whole


def test_names_are_masked_where_they_are_shown(tmp_path: Path) -> None:
    """A long secret in the name of a step or the key of a member is no folder, and in no line."""

    @workflow
    def named() -> Steps[None]:
        yield from step(f"use {API_KEY}").command("echo 1")
        yield from step("each").for_each({API_KEY: 1}, lambda item: step("a").call(str, item))

    screen = io.StringIO()
    sinks = [
        JsonlSink(tmp_path / "lines.jsonl"),
        ConsoleSink(console(screen), live=False),
        ArtifactsSink(tmp_path / "runs"),
    ]
    assert Executor(sinks=sinks).run_sync(named).success
    none_is_below(tmp_path)
    none_is_in("console", screen.getvalue().encode())
    assert (tmp_path / "lines.jsonl").read_text("utf-8").count("use ${API_KEY}") >= 2
