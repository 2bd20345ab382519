"""What sinks are shown has no secrets; what a workflow and its caller get, has them."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from typing import Any

import pytest
from structlog.testing import capture_logs

from handrail import (
    Agent,
    CallbackSink,
    Executor,
    FakeBackend,
    JsonlSink,
    MemorySink,
    OpenGate,
    Secrets,
    StepFailed,
    Steps,
    StructlogSink,
    current,
    step,
    workflow,
)
from handrail.engine.bus import bus_for
from handrail.model import events as ev
from handrail.model.results import StepResult
from handrail.secrets.values import secret_values
from tests.engine.support import give, just

KEY = "correct-horse-battery"
TOKEN = "ghp_" + "a1B2" * 9
PLAIN = "named-by-the-executor"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two variables, of which one is secret only if somebody says so."""
    monkeypatch.setenv("SERVICE_API_KEY", KEY)
    monkeypatch.setenv("PLAINLY", PLAIN)


class Opaque:
    """An object that says a secret when it is asked what it is."""

    def __repr__(self) -> str:
        return f"<client of {KEY}>"


@dataclass(frozen=True)
class Login:
    """A value of the user's."""

    password: str


@workflow
def leaks(password: str) -> Steps[Login]:
    """Has a secret in its input, outputs, errors, and value."""
    yield from step("login").call(Login, password)
    yield from step("opaque").call(Opaque)
    yield from step("echo").command(["printf", "%s", password])
    try:
        yield from step("fail").call(int, f"{password} {TOKEN}").retry(2, backoff=0)
    except StepFailed as failed:
        said = str(failed)
    return Login(password if password in said else "it was masked for the workflow")


async def test_sinks_see_no_secret_and_the_caller_does() -> None:
    """Events are masked, with their types; results are real objects."""
    memory, seen = MemorySink(), list[Any]()
    result = await Executor(sinks=[memory, CallbackSink(seen.append)]).run(leaks, KEY)
    assert result.value == Login(KEY)
    assert result.step("login").output == Login(KEY)
    assert KEY in str(result.step("fail").error)
    assert memory.result("login").output == Login("${SERVICE_API_KEY}")
    assert memory.of(ev.WorkflowStarted)[0].inputs == {"password": "${SERVICE_API_KEY}"}
    assert memory.of(ev.WorkflowCompleted)[0].value == Login("${SERVICE_API_KEY}")
    assert "${SERVICE_API_KEY} ghp_***a1B2" in str(memory.result("fail").error)
    assert KEY not in repr(seen).replace(repr(memory.result("opaque").output), "")
    assert TOKEN not in repr(seen)


async def test_a_stream_is_masked_too() -> None:
    """Whoever shows what a stream gives shows no secret; its result is the real one."""
    seen: list[Any] = []
    async with Executor().stream(leaks, KEY) as run:
        seen.extend([event async for event in run if not isinstance(event, ev.StepCompleted)])
    assert KEY not in repr(seen)
    assert run.result.value == Login(KEY)


@pytest.mark.parametrize("output", [1, "text", ["list"]])
async def test_a_failure_that_a_fallback_got_over_is_masked(output: Any) -> None:
    """The error of the failed attempt is masked in the end of a step that then succeeded."""

    @workflow
    def recovers() -> Steps[Any]:
        failing = step("s").call(int, KEY)
        return (yield from failing.on_error(lambda *_: step("again").call(give, output)))

    memory = MemorySink()
    await Executor(sinks=[memory]).run(recovers)
    (end,) = [one for one in memory.of(ev.StepCompleted) if one.path == "s"]
    assert end.result.output == output
    assert end.result.handled
    assert KEY not in repr(end)


async def test_what_objects_say_of_themselves_is_masked_where_it_is_written() -> None:
    """A sink that writes the text of an object that is no record masks that text."""
    out = io.StringIO()
    with capture_logs() as logs:
        await Executor(sinks=[JsonlSink(out), StructlogSink()]).run(leaks, KEY)
    assert "<client of ${SERVICE_API_KEY}>" in out.getvalue()
    assert KEY not in out.getvalue() + repr(logs)
    assert all(json.loads(line)["type"] for line in out.getvalue().splitlines())


async def test_variables_that_the_executor_names_are_secret() -> None:
    """`Secrets` says which variables count."""

    @workflow
    def plain() -> Steps[str]:
        return (yield from step("a").call(give, f"{PLAIN} {KEY}"))

    for secrets, shown in [
        (None, PLAIN + " ${SERVICE_API_KEY}"),
        (Secrets(names=("PLAINLY",)), "${PLAINLY} ${SERVICE_API_KEY}"),
        (Secrets(words=("PLAIN",)), "${PLAINLY} " + KEY),
    ]:
        memory = MemorySink()
        result = await Executor(sinks=[memory], secrets=secrets).run(plain)
        assert memory.result("a").output == shown
        assert result.value == f"{PLAIN} {KEY}"
        assert result.to_dict(secrets=secrets)["value"] == shown


async def test_a_report_has_no_secret() -> None:
    """`to_dict` is masked: values, outputs, errors, tracebacks, and what objects say."""
    result = await Executor().run(leaks, KEY)
    report = result.to_dict()
    assert KEY not in json.dumps(report)
    assert TOKEN not in json.dumps(report)
    assert report["value"] == {"password": "${SERVICE_API_KEY}"}
    assert report["success"] is True
    assert {entry["status"] for entry in report["step_results"]} == {"succeeded", "failed"}


async def test_a_dropped_sink_does_not_say_the_secret_that_it_raised() -> None:
    """Neither the notice nor the log line has it."""

    def fail(_: Any) -> None:
        raise OSError(f"cannot send to {KEY}")

    memory = MemorySink()
    with capture_logs() as logs:
        await Executor(sinks=[CallbackSink(fail), memory]).run(leaks, KEY)
    (dropped,) = memory.of(ev.SinkDropped)
    assert dropped.error == "OSError: cannot send to ${SERVICE_API_KEY}"
    assert KEY not in repr(logs)


async def test_a_gate_is_shown_masked_and_answered_with_the_real_choice() -> None:
    """The handler, which is the application's, is given the real question."""
    asked: list[OpenGate] = []

    def answer(gate: OpenGate) -> Any:
        asked.append(gate)
        return gate.choices[0]

    @workflow
    def chooses() -> Steps[str]:
        return (yield from step("use?").ask(f"Use {KEY}?", choices=[KEY, "no"]))

    memory = MemorySink()
    result = await Executor(sinks=[memory], gates=answer).run(chooses)
    assert (result.value, asked[0].choices) == (KEY, (KEY, "no"))
    gate = memory.of(ev.GateOpened)[0].gate
    assert (gate.question, gate.choices) == (
        "Use ${SERVICE_API_KEY}?", ("${SERVICE_API_KEY}", "no"),
    )  # fmt: skip
    assert memory.of(ev.GateAnswered)[0].answer == "${SERVICE_API_KEY}"


@pytest.mark.extra("jinja2")
async def test_a_prompt_and_its_answer_are_masked() -> None:
    """What an agent is asked and says is shown without secrets; it is given them."""
    backend = FakeBackend([f"It is {KEY}."])
    agent = Agent("a", "Use {{ key }}.", backend=backend)

    @workflow
    def asks() -> Steps[str]:
        return (yield from step("ask").agent(agent, {"key": KEY})).output

    memory = MemorySink()
    result = await Executor(sinks=[memory]).run(asks)
    assert result.value == f"It is {KEY}."
    assert "Use ${SERVICE_API_KEY}." in memory.of(ev.AgentTurnStarted)[0].prompt
    assert "".join(one.text for one in memory.of(ev.AgentMessage)) == "It is ${SERVICE_API_KEY}."
    assert KEY not in repr(memory.events)


# -- texts that come in pieces ---------------------------------------------------------------------


class Feed:
    """A bus that is told a story, and what its sink saw."""

    def __init__(self) -> None:
        self.memory = MemorySink()
        secrets = secret_values(Secrets(), {"A_KEY": KEY})
        self.bus = bus_for("r1", [self.memory], secrets)

    def tell(self, *events: Any) -> None:
        """Show these."""
        for event in events:
            self.bus.emit(ev.stamp(event, "r1", 1, 1.0))

    def shown(self) -> list[tuple[str, str]]:
        """Class and text of what was seen."""
        return [(type(e).__name__, getattr(e, "text", "")) for e in self.memory.events]


@pytest.mark.parametrize(
    "piece",
    [
        lambda text: ev.StepOutput("a", "stdout", text),
        lambda text: ev.StepOutput("a", "stderr", text),
        lambda text: ev.AgentMessage("a", text),
        lambda text: ev.AgentReasoning("a", text),
    ],
)
def test_a_secret_across_pieces_is_masked_wherever_it_is_cut(piece: Any) -> None:
    """No piece shows a part of a secret that the next one completes."""
    text = f"use {KEY} and {TOKEN}!"
    end = StepResult("a", "a", "command", "succeeded")
    for cut in range(len(text) + 1):
        feed = Feed()
        feed.tell(piece(text[:cut]), piece(text[cut:]), ev.StepCompleted("a", end))
        texts = [said for _, said in feed.shown()]
        assert "".join(texts) == "use ${A_KEY} and ghp_***a1B2!"
        assert not feed.bus.kept


def test_streams_are_apart() -> None:
    """What one step or stream left unfinished is not completed by another."""
    feed = Feed()
    feed.tell(
        ev.StepOutput("a", "stdout", f"1 {KEY[:5]}"),
        ev.StepOutput("a", "stderr", KEY[5:]),
        ev.StepOutput("b", "stdout", KEY[5:]),
        ev.AgentMessage("a", KEY[5:]),
        ev.StepOutput("a", "stdout", KEY[5:]),
    )
    texts = [said for _, said in feed.shown()]
    assert texts == ["1 ", KEY[5:], KEY[5:], KEY[5:], "${A_KEY}"]


@pytest.mark.parametrize(
    "last",
    [
        ev.StepCompleted("a", StepResult("a", "a", "agent", "succeeded")),
        ev.AttemptFailed("a", 1, "no", "E"),
        ev.StepInterrupted("a", "SIGTERM"),
        ev.AgentFinished("a", "completed"),
        ev.AgentTurnCompleted("a", 1),
        ev.AgentToolStarted("a", "t", "Bash"),
        ev.WorkflowCompleted("succeeded"),
        ev.RunSuspended(),
    ],
    ids=lambda event: type(event).__name__,
)
def test_what_was_kept_back_is_shown_before_the_end(last: Any) -> None:
    """Text that looked like the beginning of a secret comes when it turns out to be none."""
    feed = Feed()
    feed.tell(ev.AgentMessage("a", f"well, {KEY[:6]}"), last)
    assert feed.shown() == [
        ("AgentMessage", "well, "), ("AgentMessage", KEY[:6]), (type(last).__name__, ""),
    ]  # fmt: skip
    assert not feed.bus.kept


def test_what_happens_meanwhile_does_not_break_a_text_off() -> None:
    """Lines of a program, usage, and other steps come between two pieces of one text."""
    feed = Feed()
    other = StepResult("b", "b", "python", "succeeded")
    feed.tell(
        ev.AgentMessage("a", KEY[:6]),
        ev.AgentTranscript("a", '{"delta":1}'),
        ev.StepCompleted("b", other),
        ev.AgentMessage("a", KEY[6:] + " x."),
    )
    assert feed.shown() == [
        ("AgentTranscript", ""),
        ("StepCompleted", ""),
        ("AgentMessage", "${A_KEY} x."),
    ]


def test_pieces_without_secrets_pass_as_they_came() -> None:
    """Not even a copy is made."""
    feed = Feed()
    pieces = [ev.StepOutput("a", "stdout", text) for text in ("line\n", "another line\n", "")]
    feed.tell(*pieces)
    assert [one is other for one, other in zip(feed.memory.events, pieces, strict=True)] == [
        True
    ] * 3


def test_an_event_without_secrets_is_the_sinks_very_event() -> None:
    """Masking costs nothing where there is nothing to mask."""
    feed = Feed()
    event = ev.StepCompleted("a", StepResult("a", "a", "python", "succeeded", {"n": [1, "x"]}))
    feed.tell(event)
    assert feed.memory.events[0] is event


async def test_an_action_still_sees_its_own_secrets() -> None:
    """Steps get their arguments as they are."""

    async def check(key: str) -> tuple[bool, str]:
        return key == KEY, current().path

    one = just(step("a").call(check, KEY))
    assert (await Executor(sinks=[MemorySink()]).run(one)).value == (True, "a")


async def test_the_log_of_an_action_has_no_secrets() -> None:
    """Neither in the text nor in what it is bound to."""

    def act() -> None:
        current().log.bind(login=Login(KEY)).info(f"logged in with {KEY}", token=TOKEN)

    with capture_logs() as logs:
        result = await Executor().run(just(step("log").call(act)))
    assert result.success, result.error
    (line,) = [one for one in logs if str(one["event"]).startswith("logged in")]
    assert KEY not in repr(line)
    assert TOKEN not in repr(line)
