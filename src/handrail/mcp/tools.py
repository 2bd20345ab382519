"""The tools: what each is called with, and the words of the command that does it. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Any

from handrail.errors import WrongUse
from handrail.model.dataclass import dataclass

Words = Callable[[Mapping[str, Any]], Sequence[str]]
"""From a tool's arguments to the words of a command."""

_RUN_ID = {"type": "string", "description": "The run's id, or the beginning of it."}
_TEXT = {"type": "string"}
LONGEST_WAIT_S = 600
_WAIT = {
    "type": "number",
    "minimum": 0,
    "maximum": LONGEST_WAIT_S,
    "default": 0,
    "description": "Seconds to wait for the run to end, or to need an answer.",
}


@dataclass(frozen=True, slots=True)
class ToolText:
    """A tool. ``words``: of the command that does it; None: the server reads the journal itself."""

    name: str
    about: str
    properties: Mapping[str, Any]
    required: Sequence[str] = ()
    words: Words | None = None
    acts: bool = True
    """False for what only reads."""
    parts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The named parts of the schema."""

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of its arguments."""
        return {
            "type": "object",
            "properties": dict(self.properties),
            "required": list(self.required),
            "additionalProperties": False,
            **({"$defs": dict(self.parts)} if self.parts else {}),
        }


def _run(given: Mapping[str, Any]) -> Sequence[str]:
    """Begin a run detached, or go on with one that has begun."""
    run_id, target = given.get("run_id", ""), given.get("workflow", "")
    if not target and not run_id:
        raise WrongUse("run needs a workflow or a run_id")
    if not target:
        return ("resume", "--detach", run_id)
    named = ("--run-id", run_id) if run_id else ()
    inputs = ("--inputs", json.dumps(given["inputs"])) if given.get("inputs") else ()
    return ("run", "--detach", *named, *inputs, target)


def _begin(target: str, inputs: Mapping[str, Any]) -> Sequence[str]:
    return _run({"workflow": target, "inputs": dict(inputs)})


def _answer(given: Mapping[str, Any]) -> Sequence[str]:
    answer = given["answer"]
    text = answer if isinstance(answer, str) else json.dumps(answer)
    return ("answer", given["run_id"], given["path"], text)


def _guide(given: Mapping[str, Any]) -> Sequence[str]:
    path = given.get("path", "")
    return ("guide", given["run_id"], given["text"], *(("--path", path) if path else ()))


TOOLS: Sequence[ToolText] = (
    ToolText(
        "workflows",
        "List the workflows of this folder: their names, inputs as JSON schemas, and steps.",
        {},
        acts=False,
    ),
    ToolText(
        "status",
        "Show a run: its state, its steps, what it waits for and the questions that are open; "
        "without a run_id, list the runs.",
        {"run_id": _RUN_ID},
        acts=False,
    ),
    ToolText(
        "result",
        "Give a run's result, once it has ended. If it needs an answer first, a client that can "
        "ask its user does so.",
        {"run_id": _RUN_ID, "wait_s": _WAIT},
        ("run_id",),
        acts=False,
    ),
    ToolText(
        "plan",
        "Show what resuming a run would do, step by step. Nothing is run.",
        {"run_id": _RUN_ID},
        ("run_id",),
        lambda given: ("plan", given["run_id"]),
        acts=False,
    ),
    ToolText(
        "run",
        "Begin a run of a workflow, and return its id at once; or, with a run_id alone, go on with "
        "a run that was stopped, killed or failed. The run outlives this client.",
        {
            "workflow": {**_TEXT, "description": "A workflow's target, as `workflows` lists it."},
            "inputs": {"type": "object", "description": "Its inputs, by name."},
            "run_id": {**_TEXT, "description": "The id of the run; by default a new one."},
        },
        words=_run,
    ),
    ToolText(
        "answer",
        "Answer an open question of a run, on behalf of the person who decided it.",
        {
            "run_id": _RUN_ID,
            "path": {**_TEXT, "description": "The path of the step that asks."},
            "answer": {"description": "The answer: one of the choices, or a value of its type."},
        },
        ("run_id", "path", "answer"),
        _answer,
    ),
    ToolText(
        "guide",
        "Send guidance to the agents at work in a run, or to its next agent.",
        {
            "run_id": _RUN_ID,
            "text": _TEXT,
            "path": {**_TEXT, "description": "Only for the agent of this step."},
        },
        ("run_id", "text"),
        _guide,
    ),
    ToolText(
        "stop",
        "Suspend a run; `run` with its id goes on with it.",
        {"run_id": _RUN_ID},
        ("run_id",),
        lambda given: ("stop", given["run_id"]),
    ),
)
"""What is offered besides a tool for each workflow."""


def tools_of_workflows(workflows: Sequence[Mapping[str, Any]]) -> Sequence[ToolText]:
    """A tool for each workflow, called with its inputs; as ``workflows`` lists them."""
    taken = {tool.name for tool in TOOLS}
    found: list[ToolText] = []
    for workflow in workflows:
        target: str = workflow["target"]
        name = f"run_{re.sub('[^A-Za-z0-9_-]', '_', target.rpartition(':')[2])}"[:60]
        while name in taken:
            name += "_"
        taken.add(name)
        about = f"Begin a run of the workflow {target}, and return its id. {workflow['about']}"
        schema = workflow["inputs"]
        found.append(
            ToolText(
                name,
                about.strip(),
                schema.get("properties", {}),
                schema.get("required", ()),
                partial(_begin, target),
                parts=schema.get("$defs", {}),
            )
        )
    return found
