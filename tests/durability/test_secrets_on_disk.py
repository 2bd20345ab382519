"""Secrets of the environment are in no file of a journal, and are there again on a replay."""

from __future__ import annotations

import json
import os
from base64 import b64encode
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from handrail import (
    Executor,
    Secrets,
    SqliteJournal,
    Stage,
    Step,
    StepFailed,
    Steps,
    WorkflowResult,
    step,
    workflow,
)
from tests.durability.processes import Child, Log, result_of, until

RUN = "run"
SECRETS = {
    "API_KEY": "correct-horse-battery",
    "DEPLOY_TOKEN": 'quoted "and" back\\slashed',
    "MAIL_PASSWORD": "two lines\nof it, Grüße 🐎",
    "DATABASE_SECRET": "postgres://me:hunter22@db/x?y=%20z",
    "PLAINLY": "named-by-the-executor",
}
API_KEY, DEPLOY_TOKEN, MAIL_PASSWORD, DATABASE, PLAIN = SECRETS.values()
WATCHED = Secrets(names=("PLAINLY",))
folder = Path()


@dataclass(frozen=True)
class Login:
    """A value with secrets in it."""

    user: str
    password: str
    raw: bytes
    more: dict[str, list[str]]


def login(url: str, *, token: str) -> Login:
    """Gives back what it was given, and more."""
    Log(folder / "log").add("login", url == DATABASE, token == DEPLOY_TOKEN)
    return Login(url, MAIL_PASSWORD, f"raw {API_KEY}".encode(), {PLAIN: [f"<{token}>", API_KEY]})


def fail(why: str) -> None:
    """Fails, and says why."""
    raise ValueError(f"cannot log in with {why}")


def use(item: str) -> str:
    """Something that is made of an item."""
    return f"used {item}"


def hold() -> None:
    """Goes on once there is a file ``go``."""
    Log(folder / "log").add("hold")
    until((folder / "go").exists, "somebody lets it go")


def used(item: str) -> Step[str]:
    """The step of an item."""
    return step("use").call(use, item)


@workflow
def child(token: str) -> Steps[str]:
    """A child that is given a secret, and that gives it back."""
    return (yield from step("again").call(use, token))


@workflow
def leaks(key: str, *, options: dict[str, Any]) -> Steps[dict[str, Any]]:
    """Has secrets wherever there can be some."""
    logged = yield from step("login").call(login, DATABASE, token=options["token"])
    echoed = yield from step("echo").command(["printf", "%s", API_KEY, DEPLOY_TOKEN])
    shell = yield from step("shell").command(f"printf %s '{PLAIN}'; printf %s '{API_KEY}' >&2")
    items = yield from step("items").for_each([API_KEY, PLAIN, MAIL_PASSWORD], used)
    try:
        yield from step("fail").call(fail, DATABASE).retry(2, backoff=0)
    except StepFailed as failed:
        said = str(failed)
    spare = yield from step("spare").call(fail, PLAIN).default(f"default {MAIL_PASSWORD}")
    below = (yield from step("child").subworkflow(child, {"token": DEPLOY_TOKEN})).unwrap()
    checked = yield from step("check").validate(
        [Stage("say", lambda context: f"checked {API_KEY}")], retry=0
    )
    asked = yield from step("ask").ask(f"Use {API_KEY} or {MAIL_PASSWORD}?")
    signal = yield from step("signal").wait_for("go", dict[str, str])
    yield from step("hold").call(hold)
    return {
        "key": key,
        "options": options,
        "logged": logged,
        "commands": (echoed.stdout, shell.stdout, shell.stderr),
        "items": items,
        "said": said,
        "spare": spare,
        "below": below,
        "checked": checked.stages[0].output,
        "asked": asked,
        "signal": signal,
    }


EXPECTED: dict[str, Any] = {
    "key": API_KEY,
    "options": {"token": DEPLOY_TOKEN, API_KEY: [MAIL_PASSWORD]},
    "logged": Login(
        DATABASE, MAIL_PASSWORD, f"raw {API_KEY}".encode(), {PLAIN: [f"<{DEPLOY_TOKEN}>", API_KEY]}
    ),
    "commands": (API_KEY + DEPLOY_TOKEN, PLAIN, API_KEY),
    "items": [f"used {API_KEY}", f"used {PLAIN}", f"used {MAIL_PASSWORD}"],
    "said": f"step 'fail' failed after 2 attempts: ValueError: cannot log in with {DATABASE}",
    "spare": f"default {MAIL_PASSWORD}",
    "below": f"used {DEPLOY_TOKEN}",
    "checked": f"checked {API_KEY}",
    "asked": f"neither {API_KEY} nor {DATABASE}",
    "signal": {"url": DATABASE, "token": f"Bearer {DEPLOY_TOKEN}"},
}


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the journal is to be; the secrets are in the environment."""
    global folder  # noqa: PLW0603  # of this process and those that it forks
    folder = tmp_path
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    return tmp_path / "runs.db"


def executor(path: Path) -> Executor:
    """One of a process that begins anew."""
    return Executor(journal=SqliteJournal(path), secrets=WATCHED)


def begin(path: Path) -> Any:
    """Run it until it asks; which gates are open."""
    begun = executor(path).options(run_id=RUN, labels={"for": f"team {PLAIN}"})
    options = {"token": DEPLOY_TOKEN, API_KEY: [MAIL_PASSWORD]}
    result = begun.run_sync(leaks, API_KEY, options=options)
    return result.status, result.error, [gate.question for gate in result.waiting]


def resume(path: Path) -> WorkflowResult[Any]:
    """Go on with it."""
    return executor(path).resume_sync(RUN, leaks)


def spellings(value: str) -> set[bytes]:
    """The value as it may be found in a file: itself, in JSON, or in base64."""
    raw = value.encode()
    in_base64 = [b64encode(b"\0" * shift + raw)[(shift * 8 + 5) // 6 : -4] for shift in range(3)]
    in_json = [json.dumps(value, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)]
    return {raw, *in_base64, *(text.encode() for text in in_json)}


def files(path: Path) -> dict[str, bytes]:
    """The bytes of all files of the journal, by the end of their names."""
    return {
        file.name.removeprefix(path.name): file.read_bytes()
        for file in path.parent.glob(f"{path.name}*")
    }


def none_is_in(path: Path, *also: str) -> None:
    """Assert that no file of the journal has a secret, and that the search finds what is there."""
    found = files(path)
    assert set(found) >= {"", *also}
    whole = b"".join(found.values())
    for name, value in SECRETS.items():
        for spelling in spellings(value):
            for end, data in found.items():
                assert spelling not in data, f"{name} is in runs.db{end} as {spelling!r}"
        assert name.encode() in whole
    assert b"cannot log in with" in whole


def test_no_file_has_a_secret_and_a_replay_has_them_all(path: Path) -> None:
    """At every stop of the run, and while it is alive, its files have the names of the variables
    only; the steps after it get the values.
    """
    question = f"Use {API_KEY} or {MAIL_PASSWORD}?"
    assert result_of(lambda: begin(path)) == ("suspended", None, [question])
    none_is_in(path)
    executor(path).answer_sync(RUN, "ask", f"neither {API_KEY} nor {DATABASE}", by=PLAIN)
    none_is_in(path)
    assert result_of(lambda: resume(path).waiting_signals) == ("go",)
    payload = {"url": DATABASE, "token": f"Bearer {DEPLOY_TOKEN}"}
    executor(path).signal_sync(RUN, "go", payload)
    none_is_in(path)
    with Child(lambda: resume(path)) as alive:
        until(lambda: ["hold"] in Log(folder / "log").lines(), "the run holds")
        none_is_in(path, "-wal", "-shm")
        alive.kill()
    none_is_in(path, "-wal")
    (folder / "go").touch()
    result = result_of(lambda: resume(path))
    none_is_in(path)
    assert result.status == "succeeded"
    for name, value in EXPECTED.items():
        assert result.value[name] == value
    assert result.value.keys() == EXPECTED.keys()
    assert result.step("fail").error == f"cannot log in with {DATABASE}"
    logins = [words for words in Log(folder / "log").lines() if words[0] == "login"]
    assert logins == [["login", "True", "True"]]


def undo_in_vain(context: Any) -> None:
    """Cannot roll back, and says why."""
    raise OSError(f"cannot log in with {context.inputs['key']}")


@workflow
def ends_badly(key: str) -> Steps[None]:
    """Cannot be undone, and is cancelled."""
    yield from step("first").call(use, key).with_rollback(undo_in_vain)
    yield from step("ask").ask("Go on?")


def test_no_file_has_a_secret_of_a_cancellation(path: Path) -> None:
    """Neither why the run was cancelled, nor the errors of its rollbacks."""
    begun = executor(path).options(run_id=RUN)
    assert begun.run_sync(ends_badly, API_KEY).status == "suspended"
    reason = f"because of {DATABASE}, {MAIL_PASSWORD}, {DEPLOY_TOKEN}, {PLAIN}"
    result = executor(path).cancel_sync(RUN, reason, ends_badly)
    assert result is not None
    assert result.status == "cancelled"
    (undone,) = result.rollback_errors
    assert undone.error == f"cannot log in with {API_KEY}"
    none_is_in(path)


@workflow
def chooses() -> Steps[str]:
    """A question whose choices are secrets."""
    return (yield from step("choose").ask("Which?", choices=(API_KEY, PLAIN), default=PLAIN))


def test_a_choice_that_is_a_secret_can_be_chosen_from_outside(path: Path) -> None:
    """Who answers has the variables, too; the file has not."""
    result = executor(path).options(run_id=RUN).run_sync(chooses)
    (gate,) = result.waiting
    assert (gate.choices, gate.default) == ((API_KEY, PLAIN), PLAIN)
    result_of(lambda: executor(path).answer_sync(RUN, "choose", API_KEY))
    assert result_of(lambda: executor(path).resume_sync(RUN, chooses).value) == API_KEY
    whole = b"".join(files(path).values())
    assert API_KEY.encode() not in whole
    assert PLAIN.encode() not in whole


@workflow
def calls() -> Steps[Any]:
    """Passes on what the environment has now."""
    key = os.environ["API_KEY"]
    echoed = yield from step("echo").command(["printf", "%s", key])
    made = yield from step("use").call(use, key)
    yield from step("ask").ask(f"Go on with {key}?")
    return echoed.stdout, made


def test_a_secret_that_was_changed_comes_back_as_it_is_now(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record names the variable: a replay has its new value, and is no mismatch for it."""
    assert executor(path).options(run_id=RUN).run_sync(calls).status == "suspended"
    executor(path).answer_sync(RUN, "ask", "yes")
    monkeypatch.setenv("API_KEY", "another value of the key")
    result = executor(path).resume_sync(RUN, calls)
    assert result.value == ("another value of the key", "used another value of the key")


@pytest.mark.parametrize("place", ["name", "key"])
def test_a_secret_in_a_name_or_key_ends_the_run_before_it_is_written(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error has the variable and what to do; no file has the value."""
    value = "correct horse battery"
    monkeypatch.setenv("SHOP_API_KEY", value)

    @workflow
    def flow() -> Steps[None]:
        if place == "name":
            yield from step(f"for {value}").call(int)
        yield from step("all").for_each([value], lambda _: step("one").call(int), key=str)

    result = Executor(journal=SqliteJournal(tmp_path / "runs.db")).run_sync(flow)
    assert result.status == "failed"
    assert "has the value of SHOP_API_KEY in it" in (result.error or "")
    assert "Take another name" in (result.error or "")
    written = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"correct horse" not in written
    assert b"correct%20horse" not in written
