"""The API against its own OpenAPI document: it answers as that says, whatever it is sent."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

schemathesis = pytest.importorskip("schemathesis")

from hypothesis import HealthCheck, settings  # noqa: E402
from schemathesis.specs.openapi.checks import positive_data_acceptance  # noqa: E402

from handrail import (  # noqa: E402
    Executor,
    Found,
    MemoryJournal,
    Step,
    StepFailed,
    Steps,
    Task,
    step,
    workflow,
)
from handrail.web import create_app  # noqa: E402
from handrail.web.openapi import document  # noqa: E402

pytestmark = [pytest.mark.page]

TOKEN = "a-token-of-tests"
HEADERS = {"Authorization": f"Bearer {TOKEN}", "Host": "127.0.0.1"}
RUNS = ("r-1", "r-2")
PATHS = ("merge?", "all", "fails", "go", "how many?", "queue")


def done(task: Task) -> Step[Found[str]]:
    """A question of each task."""
    return step("done?").ask(f"{task.id}?", type=Found[str])


@workflow
def asks(task: str = "it") -> Steps[str]:
    """A step that fails, a group, a signal, questions and a queue."""
    with contextlib.suppress(StepFailed):
        yield from step("fails").call(int, task)
    yield from step("all").parallel(
        step("merge?").ask("Merge?", choices=["yes", "no"]),
        step("how many?").ask("How many?", type=int),
        step("go").wait_for("go", dict[str, int]),
        step("queue").work([Task("a"), Task("b"), Task("b")], done, max_concurrency=1),
    )
    return task


RECORDED = MemoryJournal()
"""What the first request has made. Mutable."""


async def page(scope: Any, receive: Any, send: Any) -> None:
    """The page of a journal that is as new at each request: no answer depends on one before."""
    if not RECORDED.runs():
        first = RUNS[0]
        executor = Executor(journal=RECORDED, workflows=[asks])
        await executor.options(run_id=first).run(asks)
        await executor.edit_work(first, add=[Task("c", priority=1)], priority={"b": 2.5}, by="ann")
        await executor.fork(first, fork_id=RUNS[1])
    journal = MemoryJournal()
    for run_id in RUNS:
        journal.append_run(RECORDED.events(run_id), letters=RECORDED.letters(run_id, 0))
    await create_app(journal, token=TOKEN)(scope, receive, send)


def known() -> dict[str, Any]:
    """The document, with the ids and paths that there are, and without what is sent anyway."""
    found = document()
    del found["security"], found["components"]["securitySchemes"]
    for one in found["paths"].values():
        for operation in one.values():
            for parameter in operation["parameters"]:
                if parameter["name"] in {"run_id", "a", "b"}:
                    parameter["schema"] = {"enum": list(RUNS)}
    for body in found["components"]["schemas"].values():
        if "path" in body.get("properties", {}) and body.get("additionalProperties") is False:
            body["properties"]["path"] = {"enum": list(PATHS)}
    return found


schema = schemathesis.openapi.from_dict(known())
schema.app = page


@schema.exclude(path_regex="events$").parametrize()
@settings(
    max_examples=settings().max_examples // 4,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    database=None,
)
def test_the_api_is_as_its_document_says(case: Any) -> None:
    """Status, type, headers and body of each answer are among those that the document has.

    What fits the document may still be refused: an answer that is no choice, say.
    """
    case.call_and_validate(headers=HEADERS, excluded_checks=[positive_data_acceptance])
