"""``handrail mcp``, driven by the stock client of the protocol's library, over stdio."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any, Literal

import anyio
import jsonschema
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters

from handrail import Executor, SqliteJournal

FLOW = '''
from dataclasses import dataclass
from pathlib import Path

from handrail import Agent, step, workflow


@dataclass(frozen=True)
class Size:
    grams: int


@dataclass(frozen=True)
class Order:
    item: str
    number: int = 1
    sizes: tuple[Size, ...] = ()


def pack(order):
    print("packing", order.item)
    return f"{order.number} {order.item}"


@workflow
def ship(order: Order, note: str = ""):
    """Pack an order, and send it if a person says so."""
    packed = yield step("pack").call(pack, order)
    sure = yield step("sure?").ask("Send it?", choices=["yes", "no"])
    return f"{packed}: {sure} {note}".strip()


@workflow
def waits():
    """Wait for good."""
    yield step("go").wait_for("go")
'''
BROKEN = """
import nothing_of_that_name
from handrail import workflow


@workflow
def odd():
    yield
"""
READING = ["workflows", "status", "result", "plan"]
ACTING = ["run", "answer", "guide", "stop"]
Mode = Literal["legacy", "auto"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with two workflows, and one file that cannot be imported."""
    (tmp_path / "flows.py").write_text(FLOW, "utf-8")
    (tmp_path / "odd.py").write_text(BROKEN, "utf-8")
    return tmp_path


@contextlib.asynccontextmanager
async def client_of(
    project: Path, *options: str, mode: Mode = "auto", answers: str = "", **more: str
) -> AsyncGenerator[Client]:
    """A client of a server in this folder; one that ``answers`` can ask its user."""

    async def ask(_: Any, params: Any) -> types.ElicitResult:
        assert params.message == "Send it?"
        return types.ElicitResult(action="accept", content={"answer": answers})

    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "handrail", "mcp", *options],
        cwd=project,
        env={**os.environ, **more},
    )
    asks: dict[str, Any] = {"elicitation_callback": ask} if answers else {}
    async with Client(server, mode=mode, **asks) as client:
        yield client


async def called(client: Client, name: str, **given: Any) -> Mapping[str, Any]:
    """What a tool gave."""
    result = await client.call_tool(name, given)
    assert not result.is_error, result.content
    assert result.structured_content is not None
    return result.structured_content


async def refused(client: Client, name: str, **given: Any) -> str:
    """Why a tool refused."""
    result = await client.call_tool(name, given)
    assert result.is_error
    (text,) = result.content
    assert isinstance(text, types.TextContent)
    return text.text


async def until(client: Client, run_id: str, state: str) -> Mapping[str, Any]:
    """The run's status once it is in this state."""
    with anyio.fail_after(30):
        while True:
            found = await called(client, "status", run_id=run_id)
            if found["state"] == state:
                return found


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_workflow_is_found_begun_answered_and_gives_its_result(
    project: Path, mode: Mode
) -> None:
    """By the tool that it has itself, whose schema is that of its inputs, in both protocols."""
    async with client_of(project, mode=mode) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert list(tools) == [*READING, *ACTING, "run_ship", "run_waits", "run_odd"]
        schema = tools["run_ship"].input_schema
        assert schema["required"] == ["order"]
        assert jsonschema.Draft202012Validator(schema).is_valid(
            {"order": {"item": "tea", "sizes": [{"grams": 1}]}}
        )
        assert not jsonschema.Draft202012Validator(schema).is_valid(
            {"order": {"item": "tea", "sizes": [{"grams": "1"}]}}
        )
        assert "nothing_of_that_name" in (tools["run_odd"].description or "")
        listed = (await called(client, "workflows"))["workflows"]
        assert [entry["target"] for entry in listed] == [
            "flows.py:ship",
            "flows.py:waits",
            "odd.py:odd",
        ]
        assert listed[0]["steps"] == ["pack", "sure?"]

        begun = await called(client, "run_ship", order={"item": "tea"}, note="fragile")
        waiting = await until(client, begun["run_id"], "input_required")
        (question,) = waiting["questions"]
        assert (question["path"], question["choices"]) == ("sure?", ["yes", "no"])
        early = await called(client, "result", run_id=begun["run_id"], wait_s=20)
        assert (early["state"], early["value"]) == ("input_required", None)
        assert "yes, no" in await refused(
            client, "answer", run_id=begun["run_id"], path="sure?", answer="perhaps"
        )
        done = await called(client, "answer", run_id=begun["run_id"], path="sure?", answer="yes")
        assert done["by"].endswith(" with mcp")
        ended = await called(client, "result", run_id=begun["run_id"], wait_s=20)
        assert (ended["state"], ended["value"]) == ("completed", "1 tea: yes fragile")
        assert "succeeded" in await refused(client, "guide", run_id=begun["run_id"], text="Hurry")
        plan = await called(client, "plan", run_id=begun["run_id"])
        assert [one["state"] for one in plan["steps"]] == ["recorded", "recorded"]


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_client_that_can_asks_its_user(project: Path, mode: Mode) -> None:
    """``result`` hands the question over, and the run goes on with what the user chose."""
    async with client_of(project, mode=mode, answers="no") as client:
        begun = await called(client, "run_ship", order={"item": "tea", "number": 2})
        ended = await called(client, "result", run_id=begun["run_id"], wait_s=30)
        assert (ended["state"], ended["value"]) == ("completed", "2 tea: no")


async def test_a_run_outlives_its_client(project: Path) -> None:
    """Another client finds it at work, stops it, and goes on with it."""
    async with client_of(project) as client:
        begun = await called(client, "run", workflow="flows.py:waits", run_id="w1")
    async with client_of(project) as client:
        assert [run["run_id"] for run in (await called(client, "status"))["runs"]] == ["w1"]
        assert (await called(client, "status", run_id="w1"))["state"] == "working"
        assert os.kill(begun["pid"], 0) is None
        assert (await called(client, "stop", run_id="w1"))["stopped"] == ["w1"]
        assert (await called(client, "status", run_id="w1"))["state"] == "stopped"
        again = await called(client, "run", run_id="w1")
        await until(client, "w1", "working")
        journal = SqliteJournal(project / ".handrail" / "runs.db")
        await Executor(journal=journal).signal("w1", "go")
        assert (await called(client, "result", run_id="w1", wait_s=20))["state"] == "completed"
        assert again["run_id"] == "w1"


@pytest.mark.parametrize(
    ("options", "variables"),
    [(("--read-only",), {}), ((), {"HANDRAIL_STEP": "handrail/j/r/pack"})],
    ids=["read-only", "within a step"],
)
async def test_what_acts_is_not_offered(
    project: Path, options: tuple[str, ...], variables: dict[str, str]
) -> None:
    """Neither to who asked to read only, nor to an agent that a step started."""
    async with client_of(project, *options, **variables) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == READING
        for name in [*ACTING, "run_ship"]:
            assert name in await refused(client, name, run_id="r", workflow="flows.py:ship")


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("status", {"run_id": "none"}, "there are no runs"),
    ("result", {}, "'run_id' is a required property"),
    ("result", {"run_id": "r", "wait_s": "long"}, "wait_s: 'long' is not of type 'number'"),
    ("run", {"workflow": "flows.py:shop"}, "ship"),
    ("run", {}, "run needs a workflow or a run_id"),
    ("run_ship", {"order": {}}, "item"),
    ("run_ship", {"order": {"item": 3}}, "item"),
    ("run_ship", {"order": {"item": "tea"}, "pace": 1}, "pace"),
    ("answer", {"run_id": "none", "path": "p", "answer": True}, "there are no runs"),
    ("run_shop", {}, "there is no tool 'run_shop'"),
]


async def test_a_wrong_call_says_why(project: Path) -> None:
    """As an error of the tool, which a model can read and mend; the next call is served."""
    async with client_of(project) as client:
        for tool, given, why in WRONG:
            assert why in await refused(client, tool, **given), tool
