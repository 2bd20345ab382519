"""What the API tells of runs, besides what its document's contract holds it to."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from handrail import Executor, Found, MemoryJournal, Steps, Task, Work, step, workflow
from handrail.model.folders import numbered, run_folder, step_folder
from handrail.web import create_app
from handrail.web.texts import texts_of

TOKEN = "a-token-of-tests"


@workflow
def asks(task: str = "it") -> Steps[str]:
    """A step, then two questions."""
    yield from step("first").call(str.upper, task)
    yield from step("all").parallel(
        step("sure?").ask("Sure?", choices=["yes", "no"]), step("go").wait_for("go", int)
    )
    return task


@pytest.fixture
def executor() -> Executor:
    """One with a run that waits."""
    found = Executor(journal=MemoryJournal(), workflows=[asks])
    found.options(run_id="r-1").run_sync(asks)
    return found


@pytest.fixture
def client(executor: Executor) -> TestClient:
    """Somebody who has the token."""
    app = create_app(executor.journal, token=TOKEN, executor=executor)
    headers = {"authorization": f"Bearer {TOKEN}"}
    return TestClient(app, base_url="http://127.0.0.1:8484", headers=headers)


def test_a_run_can_be_had_without_its_steps(client: TestClient) -> None:
    """Who has the rows of its steps asks for the rest alone."""
    whole = client.get("/api/runs/r-1").json()
    rest = client.get("/api/runs/r-1?steps=false").json()
    assert [row["path"] for row in whole["steps"]] == ["first", "all", "all/sure?", "all/go"]
    assert rest == {**whole, "steps": []}


@pytest.mark.parametrize("verb", ["pause", "unpause", "stop", "cancel", "fork", "resume", "plan"])
def test_a_verb_that_requires_nothing_needs_no_body(client: TestClient, verb: str) -> None:
    """`curl -X POST` is enough, and the document says so."""
    response = client.post(f"/api/runs/r-1/{verb}")
    assert (response.status_code, response.json()["ok"]) == (200, True)
    paths = client.get("/api/openapi.json").json()["paths"]
    needed = {
        path: one["post"]["requestBody"]["required"] for path, one in paths.items() if "post" in one
    }
    assert needed["/api/runs/{run_id}/answer"] is True
    assert needed[f"/api/runs/{{run_id}}/{verb}"] is False


@pytest.mark.parametrize(
    ("body", "states"),
    [
        ({}, {"first": "recorded", "all/sure?": "will run"}),
        ({"rerun": ["f*"]}, {"first": "will run", "all/sure?": "may run"}),
    ],
)
def test_a_plan_says_what_the_resume_of_the_same_body_would_do(
    client: TestClient, executor: Executor, body: dict[str, Any], states: dict[str, str]
) -> None:
    """It knows patterns, and nothing is recorded for it."""
    before = executor.journal.events("r-1")
    plan = client.post("/api/runs/r-1/plan", json=body).json()["plan"]
    assert states.items() <= {step["path"]: step["state"] for step in plan["steps"]}.items()
    assert executor.journal.events("r-1") == before


def test_the_api_is_described_on_a_page_that_needs_no_other_host(client: TestClient) -> None:
    """Each request and schema of the document is there, its links lead somewhere, and no script."""
    document = client.get("/api/openapi.json").json()
    response = client.get("/api/docs")
    text = response.text
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    for path, operations in document["paths"].items():
        for method in operations:
            assert f"<code>{method.upper()} {path}</code>" in text
    names = set(re.findall(r'<h2 id="(\w+)">', text))
    assert names == document["components"]["schemas"].keys()
    assert set(re.findall(r'href="([^"]+)"', text)) - {f"#{name}" for name in names} == {
        "openapi.json"
    }
    assert not re.search(r"<script|style=|//\w", text)
    assert TestClient(client.app, base_url="http://127.0.0.1").get("/api/docs").status_code == 401


def test_what_people_did_is_told_before_a_process_has_read_it(
    client: TestClient, executor: Executor
) -> None:
    """An answer, a signal and a pause are there with who it was, in order."""
    executor.answer_sync("r-1", "all/sure?", "yes", by="ana")
    executor.signal_sync("r-1", "go", 3, by="ben")
    executor.pause_sync("r-1", by="cem")
    acts = client.get("/api/runs/r-1").json()["acts"]
    assert [(act["action"], act["path"], act["value"], act["by"]) for act in acts] == [
        ("answer", "all/sure?", "yes", "ana"),
        ("signal", "go", "3", "ben"),
        ("pause", "", "", "cem"),
    ]
    (row,) = client.get("/api/runs").json()["runs"]
    assert (row["state"], row["waits_for"][0]["kind"]) == ("paused", "unpause")


def test_the_graph_is_that_of_the_workflow_if_it_is_known(
    client: TestClient, executor: Executor
) -> None:
    """With an executor that knows the workflow there is one, else null."""
    nodes = client.get("/api/runs/r-1/graph").json()["graph"]["nodes"]
    assert {"first", "all", "sure?", "go"} <= {node["label"] for node in nodes}
    other = create_app(executor.journal, token=TOKEN)
    stranger = TestClient(other, base_url="http://127.0.0.1", headers=client.headers)
    assert stranger.get("/api/runs/r-1/graph").json() == {"graph": None}


@pytest.mark.parametrize(
    "query", ["steps=maybe", "steps=", "steps=true&steps=false", "after=1"], ids=str
)
def test_a_question_that_is_not_understood_is_refused(client: TestClient, query: str) -> None:
    """What is misspelled, empty or there twice is said to be so."""
    response = client.get(f"/api/runs/r-1?{query}")
    assert response.status_code == 400
    assert response.json()["type"] == "BadRequest"


def test_the_last_of_many_prompts_are_told(tmp_path: Path) -> None:
    """Of an agent that was asked often there are the last prompts, and how many came before."""
    folder = tmp_path / run_folder("w", "r") / step_folder("plan")
    folder.mkdir(parents=True)
    for number in range(1, 61):
        (folder / numbered("prompt.md", number)).write_text(f"p{number}")
        (folder / numbered("answer.md", number)).write_text(f"a{number}")
    found: Any = texts_of(tmp_path, "w", "r", "plan")
    assert found.turns_before == 10
    assert (found.turns[0], found.turns[-1]) == (("p11", "a11"), ("p60", "a60"))
    assert found.ends == {"message": 3}


@workflow
def grows() -> Steps[Work[str]]:
    """A queue of 150 tasks, the first of which waits; one id is there 120 times more."""

    def done(task: Task) -> Steps[Found[str]]:
        yield from step("sure?").ask(f"{task.id}?", choices=["yes"])
        return Found(task.id)

    tasks = [Task(str(number)) for number in range(150)] + [Task("7")] * 120
    return (yield from step("queue").work(tasks, done, max_concurrency=1))


def test_of_a_long_queue_the_next_tasks_are_told_and_how_many_there_are() -> None:
    """No list is longer than 100, an id is refused once, and what was not read is there as well."""
    executor = Executor(journal=MemoryJournal(), workflows=[grows])
    executor.options(run_id="r").run_sync(grows)
    executor.edit_work_sync("r", add=[Task("new", priority=-1)], drop=["8"], by="ann")
    headers = {"authorization": f"Bearer {TOKEN}"}
    app = create_app(executor.journal, token=TOKEN, executor=executor)
    client = TestClient(app, base_url="http://127.0.0.1", headers=headers)
    (queue,) = client.get("/api/runs/r").json()["work"]
    assert [one["id"] for one in queue.pop("queued")] == [str(one) for one in range(1, 101)]
    assert queue == {
        "path": "queue", "queued_count": 149, "running": ["0"], "running_count": 1, "done": 0,
        "failed": 0, "refused": ["7"], "refused_count": 120, "why_stopped": None, "over": False,
        "unread": [{
            "add": [{"id": "new", "priority": -1.0}], "drop": ["8"], "priority": {}, "by": "ann",
        }],
    }  # fmt: skip
    (act,) = client.get("/api/runs/r").json()["acts"]
    assert (act["action"], act["path"], act["by"]) == ("edit", "queue", "ann")
    assert act["value"] == '{"add": ["new"], "drop": ["8"]}'
