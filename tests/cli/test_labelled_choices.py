"""Choices that map what people see and type to what the step returns."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from handrail import (
    Choice,
    DefinitionError,
    Executor,
    InvalidAnswer,
    SqliteJournal,
    Steps,
    step,
    workflow,
)
from handrail.testing import JumpClock
from handrail.typed.jsonsafe import json_safe
from handrail.web import create_app
from tests.cli.conftest import Cli


class Color(Enum):
    RED = "red"
    GREEN = "green"


@dataclass(frozen=True)
class Plan:
    name: str


CHOICES: dict[str, Any] = {"Ship it": Color.RED, "Hold": Plan("b"), "Swap": "Hold", "Never": None}


@workflow
def flow() -> Steps[Any]:
    """One question."""
    return (yield from step("go?").ask("Go?", choices=CHOICES))


@workflow
def late(default: Any) -> Steps[Any]:
    """One question, with a default."""
    return (yield from step("go?").ask("Go?", choices=CHOICES, default=default, timeout=5))


@pytest.mark.parametrize("stored", ["memory", "SQLite"])
@pytest.mark.parametrize(
    ("answer", "value"),
    [*CHOICES.items(), (Color.RED, Color.RED), (Plan("b"), Plan("b")), (None, None)],
)
async def test_an_answer_is_the_value_of_its_label(
    answer: Any, value: Any, stored: str, tmp_path: Path
) -> None:
    """It may be given as the label or as the value; the label is recorded, and replayed."""
    journal = SqliteJournal(tmp_path / "runs.db") if stored == "SQLite" else None
    async with Executor(journal=journal, durable=True) as executor:
        run = await executor.run(flow)
        assert run.waiting[0].choices == tuple(CHOICES)
        await executor.answer(run.run_id, "go?", answer)
        result = await executor.resume(run.run_id, flow)
        assert (result.value, type(result.value)) == (value, type(value))
        fork = await executor.fork(run.run_id)
        assert (await executor.resume(fork, flow)).value == value
        again = await executor.run(flow)
        with pytest.raises(InvalidAnswer, match="one of: Ship it, Hold, Swap, Never"):
            await executor.answer(again.run_id, "go?", "red")


@pytest.mark.parametrize(
    ("gates", "value"),
    [("approve", Color.RED), (lambda gate: gate.choices[1], Plan("b")), (lambda _: None, None)],
)
async def test_policies_and_handlers_answer_with_labels_or_values(gates: Any, value: Any) -> None:
    """The first label is that of approve; a handler is offered the labels."""
    assert (await Executor(gates=gates).run(flow)).value == value


@pytest.mark.parametrize(
    ("default", "value"), [(Color.RED, Color.RED), ("Swap", "Hold"), (None, None)]
)
async def test_a_default_is_a_value_or_a_label(default: Any, value: Any) -> None:
    """By policy, by a timeout, and by hand."""
    assert (await Executor(gates="default").run(late, default)).value == value
    async with Executor(clock=JumpClock(), linger_s=60) as executor:
        assert (await executor.run(late, default)).value == value


def test_what_cannot_be_labels_is_refused() -> None:
    """Labels are texts, and a default is one of the values."""
    with pytest.raises(DefinitionError, match="labels of choices are texts"):
        step("a").ask("?", choices={1: "one"})  # type: ignore[dict-item]
    with pytest.raises(DefinitionError, match="not among the choices"):
        step("a").ask("?", choices={"a": 1}, default=2)
    with pytest.raises(DefinitionError, match="a list of one or more"):
        step("a").ask("?", choices={})


def test_the_commands_show_and_take_labels(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that does not know the values' classes can answer."""
    monkeypatch.chdir(tmp_path)
    journal = SqliteJournal(tmp_path / ".handrail" / "runs.db")
    executor = Executor(journal=journal, workflows=[flow])
    run = executor.run_sync(flow)
    assert "Ship it" in cli("show", run.run_id).out
    assert "Color" not in cli("show", run.run_id).out
    assert cli("answer", run.run_id, "go?", "Ship it").code == 0
    assert executor.resume_sync(run.run_id).value is Color.RED
    assert json_safe(run.waiting[0].choices) == list(CHOICES)


REASON = Choice(False, prompt_for="Why not?")


@workflow
def decides() -> Steps[Choice[bool]]:
    """One question, and one of its choices asks for a text."""
    return (
        yield from step("go?").ask(
            "Go?", choices={"Go": Choice(True), "Wait: no": REASON, "No": REASON}
        )
    )


TEXTS: dict[str, tuple[Any, Choice[bool]]] = {
    "a label that asks for none": ("Go", Choice(True)),
    "label and text": ({"No": "too long"}, Choice(False, "Why not?", "too long")),
    "as a text": ("No:  too long: by far ", Choice(False, "Why not?", "too long: by far")),
    "a label with a colon": ("Wait: no: late", Choice(False, "Why not?", "late")),
    "the choice": (Choice(True), Choice(True)),
    "the choice with its text": (
        Choice(False, "Why not?", "too long"),
        Choice(False, "Why not?", "too long"),
    ),
}


PROGRAMS, PEOPLE = ["by a program", "by a handler"], ["by a command", "on the page"]


@pytest.mark.parametrize(
    ("case", "answered"),
    [
        (case, by)
        for case, (answer, _) in TEXTS.items()
        for by in (PROGRAMS if isinstance(answer, Choice) else [*PROGRAMS, *PEOPLE])
    ],
)
def test_a_choice_that_asks_for_a_text_is_answered_with_it(
    case: str, answered: str, cli: Cli, tmp_path: Path
) -> None:
    """The output is the choice with its text, whoever gives it, and again when it is replayed."""
    answer, value = TEXTS[case]
    journal = SqliteJournal(tmp_path / ".handrail" / "runs.db")
    executor = Executor(journal=journal, workflows=[decides])
    if answered == "by a handler":
        handled = Executor(journal=journal, gates=lambda _: answer).options(run_id="r")
        assert handled.run_sync(decides).value == value
    else:
        executor.options(run_id="r").run_sync(decides)
    if answered == "by a program":
        executor.answer_sync("r", "go?", answer)
    elif answered == "by a command":
        typed = answer if isinstance(answer, str) else ": ".join(*answer.items())
        assert cli("answer", "r", "go?", typed).code == 0
    elif answered == "on the page":
        client = TestClient(
            create_app(journal, token="t" * 16, executor=executor),
            base_url="http://127.0.0.1:8484",
            headers={"authorization": f"Bearer {'t' * 16}"},
        )
        (gate,) = client.get("/api/runs/r").json()["gates"]
        assert gate["prompts"] == {"Wait: no": "Why not?", "No": "Why not?"}
        said = {"path": "go?", "answer": answer}
        assert client.post("/api/runs/r/answer", json=said).json()["ok"]
    assert executor.resume_sync("r").value == value
    fork = executor.fork_sync("r")
    assert executor.resume_sync(fork).value == value


def test_the_advised_answers_are_typed_as_they_are_shown(cli: Cli, tmp_path: Path) -> None:
    """A choice that asks for a text is advised with one, as a word of the shell."""
    executor = Executor(journal=SqliteJournal(tmp_path / ".handrail" / "runs.db"))
    executor.options(run_id="r").run_sync(decides)
    line = "handrail answer r 'go?' Go   (or 'Wait: no: YOUR TEXT', 'No: YOUR TEXT')"
    assert line in cli("show", "r").out
    assert cli("answer", "r", "go?", "No: YOUR TEXT").code == 0


@pytest.mark.parametrize(
    "answer", ["No", "No: ", {"No": 1, "Go": 2}, {"Go": "text"}, REASON, Choice(True, text="x"), {}]
)
def test_a_choice_without_its_text_is_refused(answer: Any) -> None:
    """Or a text for one that asks for none; the error says how it is typed."""
    executor = Executor(workflows=[decides])
    executor.options(run_id="r").run_sync(decides)
    with pytest.raises(InvalidAnswer, match="one of: Go, Wait: no: YOUR TEXT, No: YOUR TEXT"):
        executor.answer_sync("r", "go?", answer)


def test_what_nobody_chose_has_no_text() -> None:
    """A default and a policy have an empty one, which is no mistake."""

    @workflow
    def defaults() -> Steps[Choice[bool]]:
        return (yield from step("go?").ask("?", choices={"No": REASON}, default="No", timeout=5))

    for executor in (
        Executor(gates="approve", durable=True),
        Executor(gates="default"),
        Executor(clock=JumpClock(), linger_s=60),
    ):
        assert executor.run_sync(defaults).value == REASON


def test_choices_that_ask_for_texts_have_labels() -> None:
    """Without one there is nothing to type."""
    with pytest.raises(DefinitionError, match="by label"):
        step("a").ask("?", choices=["yes", REASON])
