"""Secrets of the environment are in no file of a journal, and are there again on a replay."""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from handrail import (
    CommandResult,
    Executor,
    Secrets,
    SqliteJournal,
    Stage,
    Step,
    StepFailed,
    Steps,
    UnreadableRecord,
    WorkflowError,
    WorkflowResult,
    current,
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
    chosen = yield from step("choose").ask("Which?", choices=(API_KEY, PLAIN), default=PLAIN)
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
        "chosen": chosen,
        "signal": signal,
    }
